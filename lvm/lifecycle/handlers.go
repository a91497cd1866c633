package lifecycle

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/stateofworld/stateofworld/cache"
)

// EventHandler takes the events of one informer. It has the methods of client-go's ResourceEventHandler.
type EventHandler struct {
	observe func(obj any) bool
	forget  func(obj any, key string) bool
	odd     func(obj any)
}

// OnAdd takes a new object.
func (h EventHandler) OnAdd(obj any, isInInitialList bool) { h.take(obj) }

// OnUpdate takes a changed object.
func (h EventHandler) OnUpdate(oldObj, newObj any) { h.take(newObj) }

func (h EventHandler) take(obj any) {
	if !h.observe(obj) {
		h.odd(obj)
	}
}

// OnDelete takes a deleted object, or a tombstone: client-go's DeletedFinalStateUnknown, or any struct like it with a string Key and an
// Obj of any type.
func (h EventHandler) OnDelete(obj any) {
	if h.forget(obj, "") {
		return
	}
	inside, key, ok := cache.OpenTombstone(obj)
	if !ok || !h.forget(inside, key) {
		h.odd(obj)
	}
}

// Claims is the handler for the events of claims: of all, or of those with Annotations.NodeSelector.
func (a *Agent) Claims() EventHandler {
	return EventHandler{
		observe: func(obj any) bool {
			pvc, ok := obj.(*v1.PersistentVolumeClaim)
			if ok = ok && pvc != nil; ok {
				a.observeClaim(pvc)
			}
			return ok
		},
		forget: func(obj any, key string) bool {
			if pvc, ok := obj.(*v1.PersistentVolumeClaim); ok && pvc != nil {
				a.claims.RemoveIf(nameOf(pvc), func(c claim) bool { return c.UID == pvc.UID })
				return true
			}
			namespace, name, ok := strings.Cut(key, "/")
			if ok {
				a.claims.Remove(types.NamespacedName{Namespace: namespace, Name: name})
			}
			return ok
		},
		odd: func(obj any) { a.unexpected(KindClaim, obj) },
	}
}

// Volumes is the handler for the events of volumes: of all, or of those with Annotations.NodeSelector.
func (a *Agent) Volumes() EventHandler {
	return EventHandler{
		observe: func(obj any) bool {
			pv, ok := obj.(*v1.PersistentVolume)
			if ok = ok && pv != nil; ok {
				a.observeVolume(pv)
			}
			return ok
		},
		forget: func(obj any, key string) bool {
			if pv, ok := obj.(*v1.PersistentVolume); ok && pv != nil {
				a.volumes.RemoveIf(pv.Name, func(v volume) bool { return v.UID == pv.UID })
				return true
			}
			if key == "" || strings.Contains(key, "/") {
				return false
			}
			a.volumes.Remove(key)
			return true
		},
		odd: func(obj any) { a.unexpected(KindVolume, obj) },
	}
}

func (a *Agent) unexpected(k Kind, obj any) {
	a.notify(Notice{Type: NoticeUnexpected, Kind: k, Message: fmt.Sprintf("the handler for a %s was given a %T", k, obj)})
}

func nameOf(obj interface {
	GetNamespace() string
	GetName() string
}) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// observeClaim takes in what an informer says.
func (a *Agent) observeClaim(obj *v1.PersistentVolumeClaim) {
	a.observing.Lock()
	defer a.observing.Unlock()
	a.storeClaim(nameOf(obj), a.rules.claimOf(obj))
}

// sawClaim takes in what the API server has answered about a claim that an informer has told of, which is news unless the informer was faster.
func (a *Agent) sawClaim(obj *v1.PersistentVolumeClaim) claim {
	a.observing.Lock()
	defer a.observing.Unlock()
	c := a.rules.claimOf(obj)
	if have, ok := a.claims.Get(nameOf(obj)); ok && newer(c.Version, have.Version) {
		a.storeClaim(nameOf(obj), c)
	}
	return c
}

// storeClaim keeps claims of this node with a request.
func (a *Agent) storeClaim(n types.NamespacedName, c claim) {
	if !a.rules.claimIsOurs(c) || c.Lifecycle == "" {
		a.claims.Remove(n)
		return
	}
	have, ok := a.claims.Get(n)
	if ok && have.UID == c.UID && have.Lifecycle == c.Lifecycle && have.Failure != "" && c.Failure == "" {
		a.retry(claimKey(n), c.request())
	}
	a.claims.Add(n, c)
}

func (a *Agent) observeVolume(obj *v1.PersistentVolume) {
	a.observing.Lock()
	defer a.observing.Unlock()
	a.storeVolume(obj.Name, a.rules.volumeOf(obj))
}

func (a *Agent) sawVolume(obj *v1.PersistentVolume) volume {
	a.observing.Lock()
	defer a.observing.Unlock()
	v := a.rules.volumeOf(obj)
	if have, ok := a.volumes.Get(obj.Name); ok && newer(v.Version, have.Version) {
		a.storeVolume(obj.Name, v)
	}
	return v
}

// storeVolume keeps volumes of this node.
func (a *Agent) storeVolume(name string, v volume) {
	if v.Foreign || !v.Placement.Here && v.BadAffinity == "" {
		a.volumes.Remove(name)
		return
	}
	have, ok := a.volumes.Get(name)
	if ok && have.UID == v.UID && have.Lifecycle == v.Lifecycle && have.Failure != "" && v.Failure == "" {
		a.retry(key{kind: volumeKind, name: name}, v.request())
	}
	a.volumes.Add(name, v)
}

// retry: somebody has taken the failure away, and so asks for another attempt at once.
func (a *Agent) retry(k key, r request) {
	e, _ := a.book.look(k, r)
	a.book.failed(k, r, Failure{})
	if e.opName != "" {
		a.ops.Forget(e.op, e.opName)
	}
	a.ops.Forget(reportKey(k), "report") // what comes of it is told at once, too
}

// newer reports whether a is a later version than b. Versions that cannot be compared are taken to be.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

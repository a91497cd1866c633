package populator

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// Handler takes the events of one informer. It has the methods of client-go's
// ResourceEventHandler.
type Handler struct {
	changed func(obj any)
	deleted func(obj any)
}

// OnAdd takes a new object. isInInitialList makes no difference: see
// [Populator.MarkSynced].
func (h Handler) OnAdd(obj any, isInInitialList bool) {
	h.changed(obj)
}

// OnUpdate takes a changed object. What it was before is not asked for: the Populator knows
// what it was told.
func (h Handler) OnUpdate(oldObj, newObj any) {
	h.changed(newObj)
}

// OnDelete takes a deleted object, or a tombstone: client-go's DeletedFinalStateUnknown,
// or any struct like it with a string Key and an Obj of any type.
func (h Handler) OnDelete(obj any) {
	h.deleted(obj)
}

// handle makes a Handler of functions for one type of object, which run with the lock
// held. For a tombstone without object, obj is nil and only the name is known.
func handle[T any](p *Populator, changed func(obj *T), deleted func(name types.NamespacedName, obj *T)) Handler {
	return Handler{
		changed: func(given any) {
			obj, ok := given.(*T)
			if !ok || obj == nil {
				p.unexpected(fmt.Errorf("the handler wants a %T that is not nil, and got a %T", obj, given))
				return
			}
			p.update(func() { changed(obj) })
		},
		deleted: func(given any) {
			obj, _ := given.(*T)
			var key string
			if obj == nil {
				var inside any
				inside, key, _ = cache.OpenTombstone(given)
				obj, _ = inside.(*T)
			}
			switch {
			case obj != nil:
				p.update(func() { deleted(nameOf(obj), obj) })
			case key != "":
				p.update(func() { deleted(splitKey(key), nil) })
			default:
				p.unexpected(fmt.Errorf("the handler wants a %T that is not nil, or a tombstone of one, and got a %T", obj, given))
			}
		},
	}
}

func splitKey(key string) types.NamespacedName {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return types.NamespacedName{Name: key}
}

func nameOf(obj any) types.NamespacedName {
	o := obj.(interface {
		GetNamespace() string
		GetName() string
	})
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// unexpected reports an object of the wrong type, which changes nothing.
func (p *Populator) unexpected(err error) {
	if p.config.OnProblem != nil {
		p.config.OnProblem(Problem{Kind: UnexpectedObject, Err: err, Since: p.config.Clock.Now()})
	}
}

package fake

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// EventHandler is the shape of client-go's ResourceEventHandler.
type EventHandler interface {
	OnAdd(obj any, isInInitialList bool)
	OnUpdate(oldObj, newObj any)
	OnDelete(obj any)
}

// Tombstone is what OnDelete is given for an object whose deletion was not seen, as client-go's DeletedFinalStateUnknown.
type Tombstone struct {
	Key string
	Obj any
}

// Feed is a pair of informers without goroutines: who changes an object delivers the event before his call returns, unless somebody else is
// delivering just then. It misses nothing, except while it is paused.
type Feed struct {
	api      *API
	handlers map[apiResource]EventHandler
	selector labels.Selector

	// guarded by API.mu
	queue      []apiEvent
	delivering bool
	paused     bool
	stopped    bool
	known      map[apiResource]map[types.NamespacedName]apiObject // what the handlers were told last

	deliverer sync.Mutex // serialises the handlers
}

// Feed tells the handlers, either of which may be nil, of all objects there are that the selector matches, and then of every change. A nil selector
// matches everything.
func (a *API) Feed(claims, volumes EventHandler, selector labels.Selector) *Feed {
	if selector == nil {
		selector = labels.Everything()
	}
	f := &Feed{api: a, selector: selector, handlers: map[apiResource]EventHandler{}, paused: true}
	if claims != nil {
		f.handlers[apiClaims] = claims
	}
	if volumes != nil {
		f.handlers[apiVolumes] = volumes
	}
	f.known = map[apiResource]map[types.NamespacedName]apiObject{apiClaims: {}, apiVolumes: {}}
	a.mu.Lock()
	a.feeds = append(a.feeds, f)
	a.mu.Unlock()
	f.Resume()
	return f
}

// Pause makes the feed miss everything until Resume.
func (f *Feed) Pause() {
	f.api.mu.Lock()
	defer f.api.mu.Unlock()
	f.paused = true
}

// Resume makes up for what was missed, as an informer does that lists again: of what has changed more than once only the last state is told, and of what
// is gone a Tombstone.
func (f *Feed) Resume() {
	f.api.mu.Lock()
	if f.paused && !f.stopped {
		f.paused = false
		for _, r := range []apiResource{apiClaims, apiVolumes} {
			f.lockedRelist(r)
		}
	}
	f.api.mu.Unlock()
	f.api.deliver()
}

// Stop ends the feed.
func (f *Feed) Stop() {
	f.api.mu.Lock()
	f.stopped, f.queue = true, nil
	f.api.feeds = slices.DeleteFunc(f.api.feeds, func(other *Feed) bool { return other == f })
	f.api.mu.Unlock()
	f.deliverer.Lock() // what is being delivered is
	defer f.deliverer.Unlock()
}

// relisted marks an event that was not seen but concluded.
const relisted watch.EventType = "RELISTED"

func (f *Feed) lockedRelist(r apiResource) {
	listed := map[types.NamespacedName]bool{}
	for _, obj := range f.api.lockedList(r, apiSelector{labels: f.selector, fields: fields.Everything()}) {
		listed[keyOf(obj)] = true
		switch before := f.known[r][keyOf(obj)]; {
		case before == nil:
			f.lockedTell(apiEvent{resource: r, kind: watch.Added, object: obj})
		case before.GetResourceVersion() != obj.GetResourceVersion():
			f.lockedTell(apiEvent{resource: r, kind: watch.Modified, object: obj, before: before})
		}
	}
	for key, obj := range f.known[r] {
		if !listed[key] {
			f.lockedTell(apiEvent{resource: r, kind: relisted, object: obj})
		}
	}
}

// lockedPush takes a change of the server.
func (f *Feed) lockedPush(e apiEvent) {
	if f.paused || f.stopped || f.handlers[e.resource] == nil {
		return
	}
	s := apiSelector{labels: f.selector, fields: fields.Everything()}
	if seen, ok := s.selected(e); ok {
		f.lockedTell(apiEvent{resource: e.resource, kind: seen.Type, object: seen.Object.(apiObject), before: e.before})
	}
}

func (f *Feed) lockedTell(e apiEvent) {
	if f.handlers[e.resource] == nil {
		return
	}
	f.queue = append(f.queue, e)
	if e.kind == watch.Deleted || e.kind == relisted {
		delete(f.known[e.resource], keyOf(e.object))
	} else {
		f.known[e.resource][keyOf(e.object)] = e.object
	}
}

// deliver tells all feeds what they have not told yet. The server must not be locked.
func (a *API) deliver() {
	a.mu.Lock()
	feeds := slices.Clone(a.feeds)
	a.mu.Unlock()
	for _, f := range feeds {
		f.deliver()
	}
}

func (f *Feed) deliver() {
	f.api.mu.Lock()
	defer f.api.mu.Unlock()
	if f.delivering {
		return
	}
	f.delivering = true
	for len(f.queue) > 0 && !f.stopped {
		e := f.queue[0]
		f.queue = f.queue[1:]
		f.api.mu.Unlock()
		f.deliverer.Lock()
		f.tell(e)
		f.deliverer.Unlock()
		f.api.mu.Lock()
	}
	f.delivering = false
}

func (f *Feed) tell(e apiEvent) {
	h := f.handlers[e.resource]
	switch e.kind {
	case watch.Added:
		h.OnAdd(clone(e.object), e.version == 0)
	case watch.Modified:
		h.OnUpdate(clone(e.before), clone(e.object))
	case watch.Deleted:
		h.OnDelete(clone(e.object))
	case relisted:
		h.OnDelete(Tombstone{Key: storeKey(e.object), Obj: clone(e.object)})
	}
}

// storeKey is how informers name an object.
func storeKey(obj metav1.Object) string {
	if obj.GetNamespace() == "" {
		return obj.GetName()
	}
	return obj.GetNamespace() + "/" + obj.GetName()
}

package fake

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// apiWatch delivers events to one watcher, however slow that is.
type apiWatch struct {
	api      *API
	resource apiResource
	selector apiSelector
	results  chan watch.Event

	mu    sync.Mutex
	queue []watch.Event
	more  chan struct{}
	stop  context.CancelFunc
	ended chan struct{}
}

func newAPIWatch(ctx context.Context, a *API, r apiResource, s apiSelector) *apiWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &apiWatch{api: a, resource: r, selector: s, results: make(chan watch.Event), more: make(chan struct{}, 1), stop: cancel, ended: make(chan struct{})}
	go w.deliver(ctx)
	return w
}

// selected is the event as one sees it who selects some objects only: whether an object comes or goes depends on whether it was selected before.
func (s apiSelector) selected(e apiEvent) (watch.Event, bool) {
	now := e.kind != watch.Deleted && s.matches(e.object)
	before := e.before != nil && s.matches(e.before)
	switch {
	case now && before:
		return watch.Event{Type: watch.Modified, Object: clone(e.object)}, true
	case now:
		return watch.Event{Type: watch.Added, Object: clone(e.object)}, true
	case before:
		gone := clone(e.before)
		gone.SetResourceVersion(e.object.GetResourceVersion())
		return watch.Event{Type: watch.Deleted, Object: gone}, true
	}
	return watch.Event{}, false
}

func (w *apiWatch) send(e apiEvent) {
	if e.resource != w.resource {
		return
	}
	seen, ok := w.selector.selected(e)
	if !ok {
		return
	}
	w.mu.Lock()
	w.queue = append(w.queue, seen)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *apiWatch) deliver(ctx context.Context) {
	defer close(w.ended)
	defer close(w.results)
	defer func() {
		w.api.mu.Lock()
		delete(w.api.watches, w)
		w.api.mu.Unlock()
	}()
	for {
		w.mu.Lock()
		queue := w.queue
		w.queue = nil
		w.mu.Unlock()
		for _, e := range queue {
			select {
			case w.results <- e:
			case <-ctx.Done():
				return
			}
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-w.more:
		case <-ctx.Done():
			return
		}
	}
}

// Stop ends the watch. It may be called more than once.
func (w *apiWatch) Stop() {
	w.stop()
	<-w.ended
}

// ResultChan is closed when the watch has ended.
func (w *apiWatch) ResultChan() <-chan watch.Event { return w.results }

// BreakWatches ends all watches, as a server does now and then.
func (a *API) BreakWatches() {
	a.mu.Lock()
	var all []*apiWatch
	for w := range a.watches {
		all = append(all, w)
	}
	a.mu.Unlock()
	for _, w := range all {
		w.Stop()
	}
}

// Watches returns how many watches there are.
func (a *API) Watches() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.watches)
}

package fake

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// APICall is one call of an API. As a pattern, empty parts match anything.
type APICall struct {
	Verb            string // get, list, watch, create, update, patch, delete
	Resource        string // persistentvolumeclaims, persistentvolumes
	Namespace, Name string
}

// String is the call as it is recorded: "patch claim default/a", "list volumes".
func (c APICall) String() string {
	s := c.Verb + " " + apiResource(c.Resource).short()
	if c.Verb == "list" || c.Verb == "watch" {
		s += "s"
	}
	switch {
	case c.Name == "":
		return s
	case c.Namespace == "":
		return s + " " + c.Name
	}
	return s + " " + c.Namespace + "/" + c.Name
}

func (c APICall) matches(call APICall) bool {
	for _, part := range [][2]string{{c.Verb, call.Verb}, {c.Resource, call.Resource}, {c.Namespace, call.Namespace}, {c.Name, call.Name}} {
		if part[0] != "" && part[0] != part[1] {
			return false
		}
	}
	return true
}

// APISession is one process's connection to an API: its calls are recorded apart, and it can be stopped at any of them.
type APISession struct {
	api *API

	mu      sync.Mutex
	calls   []string
	stopIn  int
	when    StopWhen
	stopped bool
	onStop  func()
	also    func() bool
	direct  bool
}

// Session returns a new connection.
func (a *API) Session() *APISession { return &APISession{api: a} }

// Direct returns a connection that meets none of the faults that are arranged: for what the test itself does and looks at.
func (a *API) Direct() *APISession { return &APISession{api: a, direct: true} }

// Claims returns a client for the claims of a namespace; an empty namespace lists and watches all of them.
func (s *APISession) Claims(namespace string) *ClaimClient {
	c := &ClaimClient{}
	c.session, c.resource, c.namespace = s, apiClaims, namespace
	return c
}

// Volumes returns a client for volumes.
func (s *APISession) Volumes() *VolumeClient {
	c := &VolumeClient{}
	c.session, c.resource = s, apiVolumes
	return c
}

// Calls returns the calls that came, in order.
func (s *APISession) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// ForgetCalls empties Calls.
func (s *APISession) ForgetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// StopAt stops the process at its n-th call from now on, counted from 1: that call ends in ErrStopped without its effect (StopBefore) or with it
// (StopAfter), and all later ones end in ErrStopped.
func (s *APISession) StopAt(n int, when StopWhen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopIn, s.when = n, when
}

// Stop stops the process now.
func (s *APISession) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
}

// Stopped is whether the process was stopped.
func (s *APISession) Stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// OnStop has f called when StopAt stops the process, so that what else it uses can be stopped in the same moment.
func (s *APISession) OnStop(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onStop = f
}

// StopWith makes the process count as stopped when stopped reports so, for instance because something else that it uses has stopped it. It is asked
// at every call.
func (s *APISession) StopWith(stopped func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.also = stopped
}

// arrive records a call and says whether the process stops at it.
func (s *APISession) arrive(call APICall) (StopWhen, error) {
	s.mu.Lock()
	s.stopped = s.stopped || s.also != nil && s.also()
	if s.stopped {
		s.mu.Unlock()
		return "", ErrStopped
	}
	s.calls = append(s.calls, call.String())
	var stop StopWhen
	var onStop func()
	if s.stopIn > 0 {
		if s.stopIn--; s.stopIn == 0 {
			s.stopped, stop, onStop = true, s.when, s.onStop
		}
	}
	s.mu.Unlock()
	if onStop != nil {
		onStop()
	}
	if stop == StopBefore {
		return stop, ErrStopped
	}
	return stop, nil
}

// call makes one call, with all that was arranged to happen to it. f runs with the server locked.
func (s *APISession) call(ctx context.Context, call APICall, f func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	stop, err := s.arrive(call)
	if err != nil {
		return err
	}
	var fault *apiFault
	if !s.direct {
		fault = s.api.takeFault(call)
	}
	if err := fault.before(ctx); err != nil {
		return err
	}
	s.api.mu.Lock()
	err = f()
	s.api.mu.Unlock()
	s.api.deliver()
	switch {
	case stop != "":
		return ErrStopped
	case fault != nil && fault.lose != nil:
		return fault.lose
	}
	return err
}

// errLost is the reply that did not come.
var errLost = errors.New("fake: the reply was lost")

// apiFault is what happens to one call to come.
type apiFault struct {
	call   APICall
	err    error  // instead of the call
	lose   error  // instead of its reply
	first  func() // before it
	held   *APIHeld
	always bool
}

// APIHeld is a call that does not go on.
type APIHeld struct {
	started, release chan struct{}
	start, free      sync.Once
}

// Started is closed when the call has come.
func (h *APIHeld) Started() <-chan struct{} { return h.started }

// Release lets the call go on. It may be called more than once.
func (h *APIHeld) Release() { h.free.Do(func() { close(h.release) }) }

// FailNext lets the next calls that match fail, one with each error, without any effect.
func (a *API) FailNext(call APICall, errs ...error) {
	for _, err := range errs {
		a.addFault(&apiFault{call: call, err: err})
	}
}

// Fail lets every call that matches fail, until Heal.
func (a *API) Fail(call APICall, err error) {
	a.addFault(&apiFault{call: call, err: err, always: true})
}

// Heal drops all that FailNext and its neighbours have arranged and that has not happened yet.
func (a *API) Heal() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = nil
}

// LoseReply lets the next call that matches have its effect and fail all the same.
func (a *API) LoseReply(call APICall) { a.addFault(&apiFault{call: call, lose: errLost}) }

// BeforeNext has f called right before the next call that matches: what somebody else does in the worst moment. f may use the API.
func (a *API) BeforeNext(call APICall, f func()) { a.addFault(&apiFault{call: call, first: f}) }

// Hold lets the next call that matches wait until Release, or the end of its context.
func (a *API) Hold(call APICall) *APIHeld {
	h := &APIHeld{started: make(chan struct{}), release: make(chan struct{})}
	a.addFault(&apiFault{call: call, held: h})
	return h
}

func (a *API) addFault(f *apiFault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, f)
}

func (a *API) takeFault(call APICall) *apiFault {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, f := range a.faults {
		if f.call.matches(call) {
			if !f.always {
				a.faults = slices.Delete(a.faults, i, i+1)
			}
			return f
		}
	}
	return nil
}

// before is what happens instead of, or ahead of, a call.
func (f *apiFault) before(ctx context.Context) error {
	if f == nil {
		return nil
	}
	if f.first != nil {
		f.first()
	}
	if f.held != nil {
		f.held.start.Do(func() { close(f.held.started) })
		select {
		case <-f.held.release:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return f.err
}

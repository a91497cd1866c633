// Package fake has test doubles for the whole library: what unit tests of controllers and agents are written with. No
// sleeps, no magic names, no cluster, no root.
//
// For attaching and detaching, [World] is a test in one value: both worlds, a scripted [Driver], a recording sink of
// [Reports], [LiveChecks], a clock that stands until it is moved, and the reconciler.
//
//	w := fake.NewWorld(t)
//	w.Node("a", "b")
//	w.Pod("web-0", "vol-1", "a")
//	w.Settle()
//	require.Equal(t, []string{"attach vol-1 a"}, w.Driver.Calls())
//
// [RunScript] runs the same, written as a transcript. At the end of each test [World.Check] looks for what must never be
// so.
//
// Nothing but tests and examples imports this package.
package fake

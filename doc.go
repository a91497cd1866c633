// Package stateofworld is the root of a library of state-of-world caches for Kubernetes volume controllers. It holds no
// code: import the packages that you need.
//
// # The worlds
//
// Package cache has the two worlds of attachments: the desired one (nodes, their volumes, the pods that use them) and the
// actual one (volumes, and the nodes that they are attached to, or may be). They are data, safe for concurrent use, indexed
// both ways, and they tell their subscribers which pairs of volume and node have changed. Its generic World is for worlds of
// other things. Package cache/populator fills both worlds from what informers deliver.
//
// # The operations
//
// Package executor runs functions in goroutines of their own: one at a time for a key, with back-off, deadlines and caps. On
// top of that it attaches, detaches and verifies volumes with a driver, and writes what came of it into the actual world.
// There are five outcomes, never mixed: done, refused, failed for certain, unknown, gone.
//
// # The loop
//
// Package reconciler brings the actual world to the desired one. A pure function decides on each pair; the same function
// explains. Under it, package reconciler/engine is a queue with due times for keys of any kind, and package
// reconciler/nodestatus publishes which volumes are attached to a node.
//
//	informers -> populator -> DesiredStateOfWorld --changed pairs--> reconciler: decide(pair) -> executor -> driver
//	                          ActualStateOfWorld  <--outcomes-------------------------------------'
//	                                 '--changed nodes--> nodestatus (report) --> API
//
// # Tests
//
// Package fake has doubles for all of it. Nothing but tests and examples imports it.
//
// The arrows between packages point one way: reconciler to executor to cache, and cache imports none of the others. Nothing
// in this module depends on client-go: where the API server is needed, a narrow interface with client-go's signatures asks
// for it.
package stateofworld

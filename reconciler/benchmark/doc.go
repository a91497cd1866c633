// Package benchmark measures this library beside its peers, the same work on every side in one run: Kubernetes' attach/detach
// controller, StateDB, and a bare map under a lock. It is a module of its own, so that nobody who uses the library needs
// Kubernetes to build it. There is nothing to import: see README.md for the commands.
package benchmark

// Package stateofworld is the root of a library of state-of-world caches for Kubernetes volume controllers.
package stateofworld

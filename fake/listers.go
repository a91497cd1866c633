package fake

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Listers is what an informer's stores would hold of claims and persistent volumes, for package populator:
//
//	l := fake.NewListers()
//	p, err := populator.New(populator.Config{Claims: l.Claims(), Volumes: l.Volumes(), ...})
//
// All methods may be called concurrently.
type Listers struct {
	mu      sync.RWMutex
	claims  map[types.NamespacedName]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume
	err     error
}

// NewListers returns empty stores.
func NewListers() *Listers {
	return &Listers{claims: map[types.NamespacedName]*v1.PersistentVolumeClaim{}, volumes: map[string]*v1.PersistentVolume{}}
}

// Add adds, or replaces, a claim or a persistent volume, or both; nil is neither.
func (l *Listers) Add(claim *v1.PersistentVolumeClaim, volume *v1.PersistentVolume) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if claim != nil {
		l.claims[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = claim
	}
	if volume != nil {
		l.volumes[volume.Name] = volume
	}
}

// Remove removes a claim or a persistent volume, or both, by their names.
func (l *Listers) Remove(claim *v1.PersistentVolumeClaim, volume *v1.PersistentVolume) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if claim != nil {
		delete(l.claims, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
	}
	if volume != nil {
		delete(l.volumes, volume.Name)
	}
}

// Fail makes every look-up fail, until it is called with nil.
func (l *Listers) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// ClaimLister looks claims up; it is a populator.ClaimGetter.
type ClaimLister struct{ l *Listers }

// VolumeLister looks persistent volumes up; it is a populator.VolumeGetter.
type VolumeLister struct{ l *Listers }

// Claims returns the claims.
func (l *Listers) Claims() ClaimLister { return ClaimLister{l} }

// Volumes returns the persistent volumes.
func (l *Listers) Volumes() VolumeLister { return VolumeLister{l} }

// Get returns the claim, an error that apierrors.IsNotFound knows, or the error of Listers.Fail.
func (c ClaimLister) Get(namespace, name string) (*v1.PersistentVolumeClaim, error) {
	c.l.mu.RLock()
	defer c.l.mu.RUnlock()
	claim, ok := c.l.claims[types.NamespacedName{Namespace: namespace, Name: name}]
	if c.l.err != nil || !ok {
		return nil, lookupError(c.l.err, "persistentvolumeclaims", name)
	}
	return claim, nil
}

// Get returns the persistent volume, an error that apierrors.IsNotFound knows, or the error of Listers.Fail.
func (v VolumeLister) Get(name string) (*v1.PersistentVolume, error) {
	v.l.mu.RLock()
	defer v.l.mu.RUnlock()
	volume, ok := v.l.volumes[name]
	if v.l.err != nil || !ok {
		return nil, lookupError(v.l.err, "persistentvolumes", name)
	}
	return volume, nil
}

func lookupError(err error, resource, name string) error {
	if err != nil {
		return err
	}
	return apierrors.NewNotFound(v1.Resource(resource), name)
}

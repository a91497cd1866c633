package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// backend is the storage: it knows what is really attached, takes its time, fails now and then, and refuses to attach an
// exclusive volume twice. It is what a user of the library writes against his own storage.
type backend struct {
	plugins  *cache.VolumePluginMgr
	latency  time.Duration // of a call, on average
	failRate float64
	seed     uint64

	mu       sync.Mutex
	attached map[v1.UniqueVolumeName]map[types.NodeName]string // device paths
	calls    map[call]int                                      // how often each call was made
	planned  map[call]int                                      // how many of the next ones fail for sure
}

var _ executor.Attacher = (*backend)(nil)

// call is what a caller asks for.
type call struct {
	operation string
	volume    v1.UniqueVolumeName
	node      types.NodeName
}

func newBackend(plugins *cache.VolumePluginMgr, o options) *backend {
	return &backend{
		plugins: plugins, latency: o.latency, failRate: o.failRate, seed: o.seed,
		attached: map[v1.UniqueVolumeName]map[types.NodeName]string{}, calls: map[call]int{}, planned: map[call]int{},
	}
}

// setAttached makes a volume attached without a call: it was so before.
func (b *backend) setAttached(volume v1.UniqueVolumeName, node types.NodeName, devicePath string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attached[volume][node] == "" {
		b.lockedAttach(volume, node, devicePath)
	}
}

func (b *backend) lockedAttach(volume v1.UniqueVolumeName, node types.NodeName, devicePath string) {
	nodes := b.attached[volume]
	if nodes == nil {
		nodes = make(map[types.NodeName]string, 1)
		b.attached[volume] = nodes
	}
	nodes[node] = devicePath
}

// failNext makes the next n calls of an operation fail.
func (b *backend) failNext(operation string, volume v1.UniqueVolumeName, node types.NodeName, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.planned[call{operation, volume, node}] = n
}

// Attach implements executor.Attacher.
func (b *backend) Attach(ctx context.Context, v cache.VolumeToAttach) (string, error) {
	chance, err := b.begin(ctx, call{executor.OpAttach, v.VolumeName, v.NodeName})
	if err != nil {
		return "", err
	}
	exclusive, err := b.isExclusive(v.VolumeSpec)
	if err != nil {
		return "", executor.NothingHappened(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if path, ok := b.attached[v.VolumeName][v.NodeName]; ok {
		return path, chance.lost()
	}
	if elsewhere := b.lockedNodes(v.VolumeName); exclusive && len(elsewhere) > 0 {
		return "", &executor.DanglingError{Node: elsewhere[0], Err: errors.New("the volume can be attached to one node only")}
	}
	path := fmt.Sprintf("/dev/disk/by-id/%016x", hash(string(v.VolumeName)))
	b.lockedAttach(v.VolumeName, v.NodeName, path)
	return path, chance.lost()
}

// Detach implements executor.Attacher. What is not attached is a success: the caller may ask again after a reply was lost.
func (b *backend) Detach(ctx context.Context, v cache.AttachedVolume) error {
	chance, err := b.begin(ctx, call{executor.OpDetach, v.VolumeName, v.NodeName})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.attached[v.VolumeName], v.NodeName)
	if len(b.attached[v.VolumeName]) == 0 {
		delete(b.attached, v.VolumeName)
	}
	return chance.lost()
}

// VerifyAttached implements executor.Attacher.
func (b *backend) VerifyAttached(_ context.Context, node types.NodeName, volumes []cache.AttachedVolume) (map[v1.UniqueVolumeName]executor.Verification, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	answer := make(map[v1.UniqueVolumeName]executor.Verification, len(volumes))
	for _, v := range volumes {
		answer[v.VolumeName] = executor.NotAttached
		if _, ok := b.attached[v.VolumeName][node]; ok {
			answer[v.VolumeName] = executor.StillAttached
		}
	}
	return answer, nil
}

func (b *backend) isExclusive(spec *cache.VolumeSpec) (bool, error) {
	plugin, err := b.plugins.FindAttachablePluginBySpec(spec)
	if err != nil {
		return false, err
	}
	return !plugin.CanMultiAttach(spec), nil
}

func (b *backend) lockedNodes(volume v1.UniqueVolumeName) []types.NodeName {
	nodes := make([]types.NodeName, 0, len(b.attached[volume]))
	for node := range b.attached[volume] {
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	return nodes
}

// begin takes the time of a call and throws its dice. An error is that of a call that did nothing.
func (b *backend) begin(ctx context.Context, c call) (chance, error) {
	b.mu.Lock()
	b.calls[c]++
	planned := b.planned[c] > 0
	if planned {
		b.planned[c]--
	}
	chance := b.throw(c, b.calls[c])
	b.mu.Unlock()

	timer := time.NewTimer(chance.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return chance, context.Cause(ctx)
	}
	if planned || chance.fails && chance.certain {
		return chance, executor.NothingHappened(errors.New("storage is busy"))
	}
	return chance, nil
}

// chance is the luck of one call.
type chance struct {
	takes   time.Duration
	fails   bool
	certain bool // it is known that nothing has happened; otherwise it has, and the reply is lost
}

// throw depends on the call alone and on how often it was made, not on the order in which calls happen to come.
func (b *backend) throw(c call, times int) chance {
	r := rand.New(rand.NewPCG(b.seed, hash(c.operation, string(c.volume), string(c.node), fmt.Sprint(times))))
	return chance{
		takes:   time.Duration((0.5 + r.Float64()) * float64(b.latency)),
		fails:   r.Float64() < b.failRate,
		certain: r.Float64() < 0.5,
	}
}

// lost is the error of a call that was carried out although the caller cannot know.
func (c chance) lost() error {
	if c.fails {
		return errors.New("connection to the storage was lost")
	}
	return nil
}

func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, part := range parts {
		_, _ = h.Write([]byte(part)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

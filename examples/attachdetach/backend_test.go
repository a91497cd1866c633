package main

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

func toAttach(claim string, mode v1.PersistentVolumeAccessMode, node types.NodeName) cache.VolumeToAttach {
	_, pv := builtinVolume(claim, mode)
	return cache.VolumeToAttach{VolumeName: builtinName(claim), NodeName: node, VolumeSpec: cache.NewSpecFromPersistentVolume(pv, false)}
}

func toDetach(claim string, node types.NodeName) cache.AttachedVolume {
	return cache.AttachedVolume{VolumeName: builtinName(claim), NodeName: node}
}

func TestTheStorageRefusesASecondAttachOfAnExclusiveVolume(t *testing.T) {
	b := newBackend(newDump().plugins(), options{})
	_, err := b.Attach(t.Context(), toAttach("one", v1.ReadWriteOnce, "a"))
	require.NoError(t, err)
	path, err := b.Attach(t.Context(), toAttach("one", v1.ReadWriteOnce, "a"))
	require.NoError(t, err, "again on the same node is a success")
	require.NotEmpty(t, path)

	_, err = b.Attach(t.Context(), toAttach("one", v1.ReadWriteOnce, "b"))
	var dangling *executor.DanglingError
	require.ErrorAs(t, err, &dangling)
	require.Equal(t, types.NodeName("a"), dangling.Node)

	require.NoError(t, b.Detach(t.Context(), toDetach("one", "a")))
	require.NoError(t, b.Detach(t.Context(), toDetach("one", "a")), "again is a success")
	_, err = b.Attach(t.Context(), toAttach("one", v1.ReadWriteOnce, "b"))
	require.NoError(t, err)

	for _, node := range []types.NodeName{"a", "b"} {
		_, err = b.Attach(t.Context(), toAttach("many", v1.ReadWriteMany, node))
		require.NoError(t, err)
	}
}

func TestTheStorageFailsAsOftenAsAskedAndTellsTheTruthAboutIt(t *testing.T) {
	b := newBackend(newDump().plugins(), options{failRate: 0.3, seed: 1})
	outcomes := map[executor.Outcome]int{}
	for i := range 1000 {
		volume := toAttach(fmt.Sprint(i), v1.ReadWriteOnce, "a")
		_, err := b.Attach(t.Context(), volume)
		outcome := executor.Classify(err)
		outcomes[outcome]++
		answer, verifyErr := b.VerifyAttached(t.Context(), "a", []cache.AttachedVolume{{VolumeName: volume.VolumeName}})
		require.NoError(t, verifyErr)
		if outcome == executor.FailedForCertain {
			require.Equal(t, executor.NotAttached, answer[volume.VolumeName])
		} else {
			require.Equal(t, executor.StillAttached, answer[volume.VolumeName], "done, also when the reply was lost")
		}
	}
	require.InDelta(t, 700, outcomes[executor.Done], 50)
	require.InDelta(t, 150, outcomes[executor.FailedForCertain], 40)
	require.InDelta(t, 150, outcomes[executor.Unknown], 40)
	require.Len(t, outcomes, 3)
}

func TestTheStoragesLuckDependsOnTheSeedAlone(t *testing.T) {
	luck := func(seed uint64, order []int) map[int]chance {
		b := newBackend(newDump().plugins(), options{failRate: 0.5, latency: time.Second, seed: seed})
		all := map[int]chance{}
		for _, i := range order {
			all[i] = b.throw(call{executor.OpAttach, "v", "n"}, i)
		}
		return all
	}
	require.Equal(t, luck(1, []int{1, 2, 3, 4}), luck(1, []int{4, 3, 2, 1}))
	require.NotEqual(t, luck(1, []int{1, 2, 3, 4}), luck(2, []int{1, 2, 3, 4}))
}

func TestACallThatIsCancelledDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(newDump().plugins(), options{latency: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Attach(ctx, toAttach("one", v1.ReadWriteOnce, "a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, b.attached)
	})
}

// Whatever fails, in the end the worlds say what the storage knows, and no exclusive volume was ever on two nodes.
func TestTheWorldsEndWithTheTruth(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			d := builtinWorld()
			s, err := newSimulation(d, options{latency: 200 * time.Millisecond, failRate: 0.4, seed: seed})
			require.NoError(t, err)
			storage := s.storage
			v, err := s.run(t.Context(), time.Hour, func() {
				for volume, nodes := range storage.truth() {
					if volume != builtinName("images") {
						require.LessOrEqual(t, len(nodes), 1, "%s on %v", volume, nodes)
					}
				}
			})
			require.NoError(t, err)
			require.True(t, v.converged, v.why)
			told := map[v1.UniqueVolumeName][]types.NodeName{}
			for _, r := range v.rows {
				require.Equal(t, "attached", r.State)
				told[r.Volume] = append(told[r.Volume], r.Node)
			}
			require.Equal(t, told, storage.truth())
			require.NoError(t, s.worlds.desired.CheckInvariants())
			require.NoError(t, s.worlds.actual.CheckInvariants())
		})
	}
}

// truth is what is attached where.
func (b *backend) truth() map[v1.UniqueVolumeName][]types.NodeName {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[v1.UniqueVolumeName][]types.NodeName{}
	for volume := range b.attached {
		all[volume] = b.lockedNodes(volume)
	}
	return all
}

func TestTheStorageBeginsWithWhatTheDumpSays(t *testing.T) {
	var progress loading
	d, err := load(t.Context(), []string{"testdata/stuck.json"}, nil, &progress)
	require.NoError(t, err)
	s, err := newSimulation(d, options{files: []string{"testdata/stuck.json"}})
	require.NoError(t, err)
	name := func(handle string) v1.UniqueVolumeName {
		return v1.UniqueVolumeName("kubernetes.io/csi/driver.longhorn.io^" + handle)
	}
	require.Equal(t, map[v1.UniqueVolumeName][]types.NodeName{
		name("pvc-mysql"): {"worker-1"}, name("pvc-queue"): {"worker-1"}, name("pvc-cache"): {"worker-3"},
		name("pvc-old"): {"worker-4"}, name("pvc-search"): {"worker-8"},
	}, s.storage.truth())
	require.EqualValues(t, 32, progress.objects.Load())
}

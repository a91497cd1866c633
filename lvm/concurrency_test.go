package lvm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

func twoGroups() *fake.LVM {
	l := fake.NewLVM()
	l.AddVG("vg0", 4<<20, fake.Disk{Device: "/dev/sda", Size: 400 << 20})
	l.AddVG("vg1", 4<<20, fake.Disk{Device: "/dev/sdb", Size: 400 << 20})
	return l
}

// L20, harvester/harvester#11098
func TestHungGroupHoldsNobodyPastHisDeadlineAndNoOtherGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := twoGroups()
		hung := l.Hang("vg0")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := l.List(ctx, "vg0")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = l.Create(t.Context(), lvm.CreateOptions{VG: "vg1", Name: "a", Size: 1})
		require.NoError(t, err)

		// Whoever comes does not start one more process that will hang.
		l.ForgetCalls()
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := l.List(ctx, "vg0")
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Empty(t, l.Calls())
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = l.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "a", Size: 1})
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Len(t, l.Calls(), 1)
		hung.Release()
		_, err = l.List(t.Context(), "vg0")
		require.NoError(t, err)
	})
}

// L20: the backend's own deadline holds where the caller has none.
func TestEveryCommandHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fake.NewLVMWithOptions(lvm.Options{ReportTimeout: time.Minute, ChangeTimeout: time.Hour})
		l.AddVG("vg0", 4<<20, fake.Disk{Device: "/dev/sda", Size: 400 << 20})
		start := time.Now()
		l.Hold("vgs")
		_, err := l.VolumeGroups(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(start))
		l.Hold("lvcreate")
		_, err = l.Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "a", Size: 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour+time.Minute, time.Since(start))
	})
}

// L20, Azure/local-csi-driver#153
func TestTwentyListsAreOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := twoGroups()
		_, err := l.Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "a", Size: 1})
		require.NoError(t, err)
		l.ForgetCalls()
		held := l.Hold("lvs")
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				lvs, err := l.List(t.Context(), "vg0")
				if err != nil || len(lvs) != 1 {
					t.Errorf("%v %v", lvs, err)
				}
			})
		}
		synctest.Wait()
		require.Len(t, l.Calls(), 1)
		held.Release()
		callers.Wait()
		require.Len(t, l.Calls(), 1)
	})
}

// A report that began before a change is not an answer to a question asked after it.
func TestListSeesEveryChangeMadeBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := twoGroups()
		held := l.Hold("lvs")
		old := make(chan int, 1)
		go func() {
			lvs, err := l.List(t.Context(), "vg0")
			if err != nil {
				t.Error(err)
			}
			old <- len(lvs)
		}()
		synctest.Wait()
		_, err := l.Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "a", Size: 1})
		require.NoError(t, err)
		lvs, err := l.List(t.Context(), "vg0")
		require.NoError(t, err)
		require.Len(t, lvs, 1)
		held.Release()
		<-old
	})
}

// L32, metal-stack/csi-lvm PR#22
func TestChangesOfOneGroupAreSerialAndOfTwoParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := twoGroups()
		held := l.Hold("lvcreate")
		results := make(chan error, 2)
		create := func(vg, name string) {
			_, err := l.Create(t.Context(), lvm.CreateOptions{VG: vg, Name: name, Size: 1})
			results <- err
		}
		go create("vg0", "a")
		synctest.Wait()
		go create("vg0", "b")
		synctest.Wait()
		require.Equal(t, 1, countPrefix(l.Calls(), "lvcreate"))
		_, err := l.Create(t.Context(), lvm.CreateOptions{VG: "vg1", Name: "a", Size: 1})
		require.NoError(t, err)
		held.Release()
		require.NoError(t, errors.Join(<-results, <-results))
		require.Equal(t, 3, countPrefix(l.Calls(), "lvcreate"))
	})
}

// L32: two creates of the same name are one lvcreate.
func TestSameNameIsCreatedOnce(t *testing.T) {
	l := twoGroups()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if _, err := l.Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "a", Size: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	require.Equal(t, 1, countPrefix(l.Calls(), "lvcreate"))
}

// Another process looks while a volume carries its mark, and acts when the volume is finished and handed out: it must not
// be removed then.
func TestVolumeThatWasFinishedSinceItLookedHalfMadeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := twoGroups()
		other := lvm.NewCLI(l, lvm.Options{})
		o := lvm.CreateOptions{VG: "vg0", Name: "a", Size: 1}
		unmark := l.Hold("lvchange")
		type made struct {
			lv  lvm.LogicalVolume
			err error
		}
		first, second := make(chan made, 1), make(chan made, 1)
		go func() { lv, err := l.Create(t.Context(), o); first <- made{lv, err} }()
		synctest.Wait()
		remove := l.Hold("lvremove")
		go func() { lv, err := other.Create(t.Context(), o); second <- made{lv, err} }()
		synctest.Wait()
		unmark.Release()
		mine := <-first
		require.NoError(t, mine.err)
		remove.Release()
		theirs := <-second
		require.NoError(t, theirs.err)
		require.Equal(t, mine.lv.UUID, theirs.lv.UUID)
		require.Equal(t, 1, countPrefix(l.Calls(), "lvcreate"))
	})
}

func countPrefix(calls []string, prefix string) int {
	n := 0
	for _, call := range calls {
		if len(call) >= len(prefix) && call[:len(prefix)] == prefix {
			n++
		}
	}
	return n
}

// Everything at once, with failures in between: no extent is lost or held twice, and what was reported made is there.
func TestManyCallersAndFailures(t *testing.T) {
	l := twoGroups()
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			vg := fmt.Sprintf("vg%d", i%2)
			for n := range 30 {
				name := lvm.Name{VG: vg, LV: fmt.Sprintf("lv%d", (i+n)%5)}
				if n%7 == 0 {
					l.FailNext([]string{"lvcreate", "lvremove", "lvs", "lvchange"}[n%4], "Can't get lock")
				}
				if _, err := l.Create(t.Context(), lvm.CreateOptions{VG: name.VG, Name: name.LV, Size: uint64(1+n%3) << 22}); err == nil {
					if _, err := l.Grow(t.Context(), name, 12<<20); err != nil && !errors.Is(err, lvm.ErrNotFound) && !injected(err) {
						t.Error(err)
					}
				} else if !errors.Is(err, lvm.ErrExistsMismatch) && !injected(err) {
					t.Error(err)
				}
				if err := l.Remove(t.Context(), name, lvm.RemoveOptions{Wipe: []lvm.WipePolicy{lvm.WipeNone, lvm.WipeZero}[n%2]}); err != nil && !injected(err) {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	require.NoError(t, l.Check())
}

func injected(err error) bool {
	var failure *lvm.Error
	return errors.As(err, &failure) && failure.Stderr == "  Can't get lock\n"
}

package cache

import (
	"cmp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func TestSubscriptionIsOverAfterCancel(t *testing.T) {
	var s subscribers[int]
	require.False(t, s.active())
	var one, two recorder[int]
	cancelOne, cancelTwo := s.add(one.add), s.add(two.add)
	require.True(t, s.active())
	s.notify(1)
	cancelOne()
	cancelOne()
	s.notify(2)
	require.Equal(t, []int{1}, one.seen)
	require.Equal(t, []int{1, 2}, two.seen)
	cancelTwo()
	require.False(t, s.active(), "nobody listens, so nothing is collected")
	s.notify(3)
	require.Equal(t, []int{1, 2}, two.seen)
}

func TestSubscriberThatAnotherOneCancelledIsNotCalled(t *testing.T) {
	var s subscribers[int]
	var second recorder[int]
	var cancel func()
	s.add(func(int) { cancel() })
	cancel = s.add(second.add)
	s.notify(1)
	require.Empty(t, second.seen)
}

func TestNilSubscriberIsNone(t *testing.T) {
	var s subscribers[int]
	cancel := s.add(nil)
	require.False(t, s.active())
	cancel()
}

func TestSubscriberMayCancelAndSubscribe(t *testing.T) {
	var s subscribers[int]
	var later recorder[int]
	var cancel func()
	calls := 0
	cancel = s.add(func(int) {
		calls++
		cancel()
		s.add(later.add)
	})
	s.notify(1)
	s.notify(2)
	require.Equal(t, 1, calls)
	require.Equal(t, []int{2}, later.seen)
}

func TestGatheredIsToldOnceEach(t *testing.T) {
	var s subscribers[int]
	var g gathered[int]
	g.add(&s, 7)
	require.False(t, g.any, "nobody listens")
	var told recorder[int]
	s.add(told.add)
	g.tell(&s, cmp.Compare[int])
	require.Empty(t, told.take())
	for _, x := range []int{3, 1, 2, 3, 1} {
		g.add(&s, x)
	}
	g.tell(&s, cmp.Compare[int])
	require.ElementsMatch(t, []int{1, 2, 3}, told.take())
	g = gathered[int]{}
	g.add(&s, 5)
	g.tell(&s, cmp.Compare[int])
	require.Equal(t, []int{5}, told.take())
}

func TestSubscribingWhileChangesAreTold(t *testing.T) {
	w, _ := newActual(t)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for range 500 {
				cancel := w.Subscribe(func(Pair) {})
				if err := w.MarkVolumeAsUncertain("v", nil, types.NodeName(rune('a'+g))); err != nil {
					t.Error(err)
				}
				cancel()
				w.DeleteVolumeNode("v", types.NodeName(rune('a'+g)))
			}
		})
	}
	wg.Wait()
	require.False(t, w.pairSubscribers.active())
}

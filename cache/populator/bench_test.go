package populator

import (
	"fmt"
	"runtime"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// benchCluster has n pods with a volume each, 30 on a node.
func benchCluster(b *testing.B, n int) (*cluster, []*v1.Pod) {
	c := newCluster(b)
	for i := range n/30 + 1 {
		c.add(makeNode(fmt.Sprint("node-", i)))
	}
	pods := make([]*v1.Pod, n)
	for i := range pods {
		claim, pv := fmt.Sprint("claim-", i), fmt.Sprint("pv-", i)
		c.add(makePV(pv, claim), makeClaim(claim, pv))
		pods[i] = makePod(fmt.Sprint("uid-", i), fmt.Sprint("pod-", i), fmt.Sprint("node-", i/30), claim)
	}
	return c, pods
}

func eachSize(b *testing.B, run func(b *testing.B, n int)) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint("n=", n), func(b *testing.B) {
			b.ReportAllocs()
			run(b, n)
		})
	}
}

// A pod comes and goes.
func BenchmarkPodAddDelete(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		c, pods := benchCluster(b, n)
		c.add(toAny(pods[1:])...)
		for b.Loop() {
			c.Pods().OnAdd(pods[0], false)
			c.Pods().OnDelete(pods[0])
		}
	})
}

// The status of a pod changes, which is the most frequent event of all.
func BenchmarkPodUpdate(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		c, pods := benchCluster(b, n)
		c.add(toAny(pods)...)
		i := 0
		for b.Loop() {
			pod := pods[i%n]
			i++
			c.Pods().OnUpdate(pod, pod)
		}
	})
}

// The heartbeat of a node, with 30 volumes in use.
func BenchmarkNodeUpdate(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		c, pods := benchCluster(b, n)
		c.add(toAny(pods)...)
		node := makeNode("node-0")
		for i := range 30 {
			node.Status.VolumesInUse = append(node.Status.VolumesInUse, unique(fmt.Sprint("pv-", i)))
		}
		c.Nodes().OnUpdate(node, node)
		for b.Loop() {
			c.Nodes().OnUpdate(node, node)
		}
	})
}

// What the Populator itself keeps for a pod with one claim, beside the worlds.
func BenchmarkMemoryPerPod(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		for b.Loop() {
			c, pods := benchCluster(b, n)
			c.add(toAny(pods)...)
			with := heap()
			c.Populator.pods = newPodIndex()
			b.ReportMetric((with-heap())/float64(n), "B/pod")
			runtime.KeepAlive(c)
			runtime.KeepAlive(pods)
		}
	})
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func toAny(pods []*v1.Pod) []any {
	list := make([]any, len(pods))
	for i, pod := range pods {
		list[i] = pod
	}
	return list
}

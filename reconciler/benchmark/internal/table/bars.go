package table

import "fmt"

// row is one kind of work, and the figure that stands for it.
type row struct {
	work  string
	bench string
	unit  string
	bars  []bar
}

// bar is a target. Text says it; check says, for one size, what was measured and whether that is enough.
type bar struct {
	text  string
	at    int // the size that it is for; 0 is every size
	check func(run *Run, r row, size int) verdict
}

func (b bar) applies(size int) bool { return b.at == 0 || b.at == size }

type verdict struct {
	known   bool
	reached bool
	detail  string
}

// atMost is a limit for a figure of ours, at every size.
func atMost(limit float64, unit, text string) bar {
	return bar{text, 0, func(run *Run, r row, size int) verdict {
		v, ok := run.median(key{r.bench, size, ours, unit})
		return verdict{ok, v <= limit, format(v, unit)}
	}}
}

func atLeast(limit float64, unit, text string) bar {
	return bar{text, 0, func(run *Run, r row, size int) verdict {
		v, ok := run.median(key{r.bench, size, ours, unit})
		return verdict{ok, v >= limit, format(v, unit)}
	}}
}

// idle is a limit for the processor time of ours, in percent of a core, beyond that of a process that only sleeps: the Go runtime
// itself looks around now and then.
func idle(limit float64) bar {
	return bar{"≤ 0.1 % of a core more than a process that sleeps", 0, func(run *Run, r row, size int) verdict {
		v, ok := run.median(key{r.bench, size, ours, r.unit})
		asleep, have := run.median(key{r.bench, size, bareMap, r.unit})
		return verdict{ok && have, v-asleep <= limit, format(max(0, v-asleep), r.unit)}
	}}
}

// better is how many times better than Kubernetes the figure has to be, at one size.
func better(factor float64, at int) bar {
	text := fmt.Sprintf("≥ %s× Kubernetes", number(factor))
	if factor == 1 {
		text = "no slower than Kubernetes"
	}
	return bar{text, at, func(run *Run, r row, size int) verdict {
		ratio, ok := run.ratio(r, size, kubernetes)
		return verdict{ok, ratio >= factor, number(ratio) + "×"}
	}}
}

// flat is that the figure grows no more than twofold from the smallest size to the largest, beyond what the same growth costs the
// bare map of the benchmark called floor, in unit: memory that is not in the processor's cache is slower for everybody.
func flat(from, to int, floor, unit string) bar {
	text := fmt.Sprintf("flat from %s", thousands(from))
	return bar{text, to, func(run *Run, r row, size int) verdict {
		growth, ok := run.growth(key{r.bench, 0, ours, r.unit}, from, to)
		if !ok {
			return verdict{}
		}
		detail := fmt.Sprintf("×%s", number(growth))
		allowed := 2.0
		if floor != "" {
			least, ok := run.growth(key{floor, 0, bareMap, unit}, from, to)
			if !ok {
				return verdict{}
			}
			detail += fmt.Sprintf(", bare map ×%s", number(least))
			allowed *= max(1, least)
		}
		return verdict{true, growth <= allowed, detail}
	}}
}

// The sides, as the benchmarks call them.
const (
	ours       = "ours"
	kubernetes = "kubernetes"
	stateDB    = "statedb"
	bareMap    = "floor"
)

const large = 100_000

// rows are all that is compared, with the bar of each.
var rows = []row{
	{"an idle pass", "IdlePass", "ns/op", []bar{atMost(0, "evaluations", "0 decisions"), atMost(0, "allocs/op", "0 allocations")}},
	{"processor while idle", "IdleCPU", "%core", []bar{idle(0.1)}},
	{"wish → driver call, median", "WishToDriverCall", "p50-us", []bar{atMost(50, "p50-us", "≤ 50 µs")}},
	{"wish → driver call, 99 %", "WishToDriverCall", "p99-us", []bar{atMost(300, "p99-us", "≤ 300 µs")}},
	{"one changed pod", "OneChangedPod", "us/change", []bar{atMost(20, "us/change", "≤ 20 µs"), flat(1_000, large, "GetAttachState", "ns/op")}},
	{"one changed pod, processor time", "OneChangedPod", "cpu-us/change", nil},
	{"is an operation pending?", "IsOperationPending", "ns/question", []bar{better(500, 10_000), flat(1_000, large, "IsOperationPending", "ns/question")}},
	{"start an operation", "StartOperation", "ns/op", []bar{better(100, 10_000), flat(1_000, large, "StartOperation", "ns/op")}},
	{"attached volumes of one node", "NodeAttachments", "ns/op", []bar{better(5000, large)}},
	{"reports to write, one node changed", "ReportsOneNodeChanged", "ns/op", []bar{better(25, large), flat(1_000, large, "NodeAttachments", "ns/op")}},
	{"in-use list of one node, unchanged", "InUseListSame", "ns/op", []bar{better(1, large), flat(1_000, large, "NodeAttachments", "ns/op")}},
	{"in-use list of one node, one volume changed", "InUseListChanged", "ns/op", []bar{better(1, large), flat(1_000, large, "NodeAttachments", "ns/op")}},
	{"is it attached?", "GetAttachState", "ns/op", []bar{better(1.3, large)}},
	{"is it wished?", "VolumeExists", "ns/op", []bar{better(1.3, large)}},
	{"add one attachment", "AddAttachment", "ns/op", []bar{better(1, large)}},
	{"delete one attachment", "DeleteAttachment", "ns/op", []bar{better(1, large)}},
	{"parallel mix, 9 reads : 1 write", "ParallelMix", "ns/mixed", []bar{better(2, large)}},
	{"a write while all is read, median", "WriteDuringFullRead", "p50-us", nil},
	{"a write while all is read, 99 %", "WriteDuringFullRead", "p99-us", []bar{atMost(1000, "p99-us", "≤ 1 ms")}},
	{"read all attachments", "ReadAllAttachments", "ms/read", []bar{atMost(5, "ms/read", "≤ 5 ms"), noAllocations}},
	{"read all wishes", "ReadAllWishes", "ms/read", []bar{atMost(5, "ms/read", "≤ 5 ms"), noAllocations}},
	{"memory per attachment", "Memory", "B/attachment", []bar{better(2, large)}},
	{"converge, per attach", "Converge", "ns/attach", []bar{atMost(2300, "ns/attach", "≤ 2.3 µs"), flat(1_000, 300_000, "", "")}},
	{"converge, processor time per attach", "Converge", "cpu-ns/attach", nil},
	{"1,000 detaches, a report takes 5 ms", "DetachWithSlowReports", "ms/all", []bar{better(50, 1_000)}},
	{"operations of 10 ms", "SlowOperations", "ops/s", []bar{atLeast(50_000, "ops/s", "all at once: ≥ 50,000/s")}},
	{"wish → driver call, another stuck, median", "StuckOperation", "p50-us", []bar{atMost(300, "p50-us", "not delayed: ≤ 300 µs")}},
}

// noAllocations allows for the few that do not depend on the number of elements, and for one buffer for many elements.
var noAllocations = atMost(0.02, "allocs/element", "0 allocations an element")

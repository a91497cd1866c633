package reconciler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// NoticeKind says what a notice is about. It may be used as an event's reason: a wait can be told from a failure by it.
type NoticeKind string

// The kinds of notices.
const (
	// NoticeMultiAttach: an exclusive volume is used elsewhere; given to each waiting pod, once per set of blockers.
	NoticeMultiAttach NoticeKind = "VolumeInUseElsewhere"
	// NoticeWaitingForDetach: an exclusive volume is not used elsewhere any more, but still attached there, or perhaps is.
	NoticeWaitingForDetach NoticeKind = "WaitingForVolumeDetach"
	// NoticeAttachFailed and NoticeDetachFailed: once per change of the error's text.
	NoticeAttachFailed NoticeKind = "AttachVolumeFailed"
	NoticeDetachFailed NoticeKind = "DetachVolumeFailed"
	// NoticeForcedDetach: a volume in use is being detached; once per detach request.
	NoticeForcedDetach NoticeKind = "ForcedVolumeDetach"
)

// Notice tells a person something about a volume. It becomes an event of Pod, or of the volume when Pod is nil.
type Notice struct {
	Kind   NoticeKind
	Pair   cache.Pair
	Reason Reason
	// Pod is whom it concerns; nil when the pod is gone, as it is for a detach. It must not be changed.
	Pod *v1.Pod
	// Blocker is the other node, for the first two kinds. BlockingPods are the pods there that use the volume and are in
	// Pod's namespace, as namespace/name; OtherPods counts those of other namespaces, which are not named.
	Blocker      types.NodeName
	BlockingPods []string
	OtherPods    int
	// Err is the error of a failure.
	Err error
	// Message is a sentence for an event.
	Message string
}

// noticeBook is what was said about a pair, so that it is not said again.
type noticeBook struct {
	waits   map[cache.UniquePodName]said
	failure map[string]string // by operation: the text of the last error
}

type said struct {
	cause string
	at    time.Time
}

// noticeWait tells the pods that wait for an exclusive volume what they wait for, each once per change of cause, and
// returns when to say it again.
func (r *Reconciler) noticeWait(f *view, d Decision) time.Time {
	if r.cfg.Notices == nil || (d.Reason != AttachedElsewhere && d.Reason != UncertainElsewhere) {
		return time.Time{}
	}
	blockers := r.desired.PodsOf(f.Pair.Volume, d.Blocker)
	cause := fmt.Sprint(d.Reason, d.Blocker)
	for _, b := range blockers {
		cause += "\x00" + string(b.PodName)
	}
	waiting := r.desired.PodsOf(f.Pair.Volume, f.Pair.Node)
	for _, pod := range r.book.unsaid(f.Pair, waiting, cause, f.Now, r.cfg.NoticeRepeat) {
		r.cfg.Notices(waitNotice(f.Pair, d, pod.Pod, blockers))
	}
	if r.cfg.NoticeRepeat == 0 {
		return time.Time{}
	}
	return f.Now.Add(r.cfg.NoticeRepeat)
}

func waitNotice(pair cache.Pair, d Decision, pod *v1.Pod, blockers []cache.PodToAdd) Notice {
	n := Notice{Kind: NoticeMultiAttach, Pair: pair, Reason: d.Reason, Pod: pod, Blocker: d.Blocker}
	for _, b := range blockers {
		if b.Pod.Namespace == pod.Namespace {
			n.BlockingPods = append(n.BlockingPods, podName(b.Pod))
		} else {
			n.OtherPods++
		}
	}
	state := "attached to"
	if d.Reason == UncertainElsewhere {
		state = "perhaps attached to"
	}
	if len(blockers) == 0 {
		n.Kind = NoticeWaitingForDetach
		n.Message = fmt.Sprintf("Volume %q is still %s node %q; waiting until it is detached there", pair.Volume, state, d.Blocker)
	} else {
		n.Message = fmt.Sprintf("Volume %q is %s node %q and used there by %s", pair.Volume, state, d.Blocker, describePods(n.BlockingPods, n.OtherPods))
	}
	return n
}

func podName(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// describePods names pods, and counts those that may not be named.
func describePods(names []string, others int) string {
	parts := slices.Clone(names)
	switch {
	case others == 1:
		parts = append(parts, "1 pod in another namespace")
	case others > 1:
		parts = append(parts, fmt.Sprintf("%d pods in other namespaces", others))
	}
	return strings.Join(parts, ", ")
}

// noticeFailure tells of a failed operation, once per change of its error's text. A refusal is no failure.
func (r *Reconciler) noticeFailure(pair cache.Pair, ev executor.Event) {
	if ev.Outcome != executor.FailedForCertain && ev.Outcome != executor.Unknown {
		return
	}
	if r.cfg.Notices == nil || !r.book.newFailure(pair, ev.Operation, ev.Err.Error()) {
		return
	}
	n := Notice{
		Kind: NoticeAttachFailed, Pair: pair, Reason: AttachBackoff, Err: ev.Err,
		Message: fmt.Sprintf("Attaching volume %q to node %q failed: %v", pair.Volume, pair.Node, ev.Err),
	}
	if ev.Operation == executor.OpDetach {
		n.Kind, n.Reason = NoticeDetachFailed, DetachBackoff
		n.Message = fmt.Sprintf("Detaching volume %q from node %q failed: %v", pair.Volume, pair.Node, ev.Err)
		r.cfg.Notices(n)
		return
	}
	pods := r.desired.PodsOf(pair.Volume, pair.Node)
	for _, pod := range pods {
		n.Pod = pod.Pod
		r.cfg.Notices(n)
	}
	if len(pods) == 0 {
		r.cfg.Notices(n)
	}
}

func (r *Reconciler) noticeForced(pair cache.Pair, reason Reason) {
	if r.cfg.Notices == nil {
		return
	}
	r.cfg.Notices(Notice{
		Kind: NoticeForcedDetach, Pair: pair, Reason: reason,
		Message: fmt.Sprintf("Volume %q was in use on node %q, as far as known, and its detach is forced: %s", pair.Volume, pair.Node, reasonTexts[reason]),
	})
}

// unsaid returns the pods that were not told the cause yet, or not lately, notes that they are now, and forgets pods that
// do not wait any more.
func (b *book) unsaid(pair cache.Pair, pods []cache.PodToAdd, cause string, now time.Time, repeat time.Duration) []cache.PodToAdd {
	b.mu.Lock()
	defer b.mu.Unlock()
	notes := b.entryLocked(pair).noticesLocked()
	waiting := map[cache.UniquePodName]bool{}
	var news []cache.PodToAdd
	for _, pod := range pods {
		waiting[pod.PodName] = true
		last, ok := notes.waits[pod.PodName]
		if ok && last.cause == cause && (repeat == 0 || now.Sub(last.at) < repeat) {
			continue
		}
		notes.waits[pod.PodName] = said{cause: cause, at: now}
		news = append(news, pod)
	}
	maps.DeleteFunc(notes.waits, func(pod cache.UniquePodName, _ said) bool { return !waiting[pod] })
	return news
}

// newFailure reports whether the operation's last error had another text.
func (b *book) newFailure(pair cache.Pair, operation, text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	notes := b.entryLocked(pair).noticesLocked()
	if last, ok := notes.failure[operation]; ok && last == text {
		return false
	}
	notes.failure[operation] = text
	return true
}

func (e *entry) noticesLocked() *noticeBook {
	if e.notices == nil {
		e.notices = &noticeBook{waits: map[cache.UniquePodName]said{}, failure: map[string]string{}}
	}
	return e.notices
}

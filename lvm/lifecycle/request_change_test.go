package lifecycle

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

// The back-off of writing a failure down belongs to that failure: what comes of another request is told at once.
func TestAnotherRequestIsAnsweredWithoutTheBackoffOfTheLastReport(t *testing.T) {
	tooBig := func(n uint64) string { return spec("pvc-1", n*gib) }
	for name, c := range map[string]struct{ first, second, want string }{
		"both were tried":              {tooBig(2), tooBig(3), "creating NoSpace"},
		"both can never be":            {`{"first":1}`, `{"second":2}`, "creating InvalidSpec"},
		"the second can never be":      {tooBig(2), `nonsense`, "creating InvalidSpec"},
		"the first could never be":     {`nonsense`, tooBig(2), "creating NoSpace"},
		"the first could, the last is": {`nonsense`, spec("pvc-1", mib), "created"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t)
			w.api.Fail(patchClaim, errServer)
			w.claim("data", c.first)
			w.advance(time.Minute)
			require.Equal(t, "creating", w.claimState("data"), "it cannot be written")
			w.api.Heal()
			w.idle()
			require.Equal(t, "creating", w.claimState("data"), "it waits for its back-off")
			w.session.ForgetCalls()
			w.annotate("data", map[string]string{keys.Spec(): c.second})
			w.idle()
			require.Equal(t, c.want, w.claimState("data"))
			patches := slices.DeleteFunc(w.session.Calls(), func(c string) bool { return !strings.HasPrefix(c, "patch") })
			require.Len(t, patches, 1, "and nothing of the failure that is no more")
		})
	}
}

// What is on the object of the last request says nothing of this one: the same failure is found anew, and is not written again.
func TestAnotherRequestIsTriedAtOnceAlthoughTheLastFailureIsOnTheClaim(t *testing.T) {
	w := newTestWorld(t)
	w.claim("data", spec("pvc-1", 2*gib))
	w.advance(time.Minute)
	require.Equal(t, "creating NoSpace", w.claimState("data"))
	w.annotate("data", map[string]string{keys.Spec(): spec("pvc-1", mib)})
	w.idle()
	require.Equal(t, "created", w.claimState("data"), "without the back-off of the last")
}

// Who takes the failure away is answered at once, although the last could not be written.
func TestAnotherAttemptIsAnsweredWithoutTheBackoffOfTheLastReport(t *testing.T) {
	w := newTestWorld(t)
	w.claim("data", spec("pvc-1", 2*gib))
	w.idle()
	require.Equal(t, "creating NoSpace", w.claimState("data"))
	w.api.Fail(patchClaim, errServer)
	w.makeLV("other") // there is less room, and so another message
	w.advance(time.Minute)
	w.api.Heal()
	w.annotate("data", map[string]string{keys.Error(): ""})
	w.idle()
	require.Equal(t, "creating NoSpace", w.claimState("data"))
}

// Between the provisioner's look and its patch the agent finishes what was asked for before. To write another spec beside "created" would be to say that it was made.
func TestARequestDoesNotOverwriteAnAnswerThatComesMeanwhile(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, p *testProvisioner) error{
		"another spec": func(ctx context.Context, p *testProvisioner) error {
			return p.CreateVolumeWithAnnotations(ctx, "default", "data", CreateSpec{VolumeGroup: "vg0", Name: "pvc-2", Size: mib})
		},
		"another size": func(ctx context.Context, p *testProvisioner) error {
			return p.CreateVolumeWithAnnotations(ctx, "default", "data", CreateSpec{VolumeGroup: "vg0", Name: "pvc-1", Size: 2 * mib})
		},
	} {
		bubble(t, name, func(t *testing.T) {
			p := newTestProvisioner(t, "watch")
			text, err := aSpec.Encode()
			require.NoError(t, err)
			p.labelled(map[string]string{keys.Lifecycle(): string(Creating), keys.Spec(): text})
			p.api.BeforeNext(patchClaim, func() { p.annotate(map[string]string{keys.Lifecycle(): string(Created)}) })
			result, _ := p.begin(func(ctx context.Context) error { return call(ctx, p) })
			require.ErrorIs(t, result(), ErrTaken)
			require.Equal(t, text, p.getClaim().Annotations[keys.Spec()])
			require.Equal(t, string(Created), p.getClaim().Annotations[keys.Lifecycle()])
		})
	}
}

// labelled makes a claim that was asked for something before. A first request puts the label on it, which is guarded by the version as a whole.
func (p *testProvisioner) labelled(annotations map[string]string) {
	pvc := p.claim(annotations)
	pvc.Labels = map[string]string{keys.NodeLabel(): nodeA}
	_, err := p.user.Claims("default").Update(p.ctx, pvc, metav1.UpdateOptions{})
	require.NoError(p.t, err)
}

// And with the same request: what was answered meanwhile is the answer.
func TestARepeatedRequestTakesTheAnswerThatComesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProvisioner(t, "watch")
		p.labelled(map[string]string{keys.Lifecycle(): string(Creating), keys.Spec(): `{"volumeGroup":"vg0","name":"pvc-1","size":1048576}`})
		p.api.BeforeNext(patchClaim, func() { p.annotate(map[string]string{keys.Lifecycle(): string(Created)}) })
		require.NoError(t, p.create(t.Context()))
		require.NotContains(t, p.getClaim().Annotations, keys.UID(), "nothing was written any more")
	})
}

// The grace is that of a logical volume as it is now: under another name or owner, nobody has looked for who refers to it yet.
func TestTheGraceOfAnOrphanBeginsAnewWhenItBecomesAnother(t *testing.T) {
	for name, change := range map[string]func(w *testWorld, lv lvm.LogicalVolume){
		"another owner": func(w *testWorld, lv lvm.LogicalVolume) {
			_, err := w.hand.ChangeTags(w.ctx, lv.Name, lvm.TagChange{Remove: []string{"sow.owner=owner"}, Add: []string{"sow.owner=another"}})
			require.NoError(w.t, err)
		},
		"another name": func(w *testWorld, lv lvm.LogicalVolume) {
			_, err := w.hand.ChangeTags(w.ctx, lv.Name, lvm.TagChange{Remove: []string{"sow.lv=vg0/pvc-1"}, Add: []string{"sow.lv=vg0/pvc-2"}})
			require.NoError(w.t, err)
			_, err = w.hand.Rename(w.ctx, lv.Name, "pvc-2")
			require.NoError(w.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t, func(c *AgentConfig) { c.Orphans = OrphanPolicy{Mode: OrphansReported, Grace: 2 * time.Hour} })
			lv := w.owned("pvc-1")
			w.advance(2*time.Hour + 30*time.Minute) // the passes at one and two hours
			change(w, lv)
			w.advance(2 * time.Hour) // at three and four
			require.Empty(t, w.said(NoticeOrphan))
			require.Empty(t, w.agent.Orphans())
			w.advance(time.Hour) // at five: two hours after it was first found as it is
			require.Len(t, w.said(NoticeOrphan), 1)
			orphans := w.agent.Orphans()
			require.Len(t, orphans, 1)
			require.Equal(t, lv.UUID, orphans[0].UUID)
			require.Equal(t, fake.Start().Add(3*time.Hour), orphans[0].Since)
		})
	}
}

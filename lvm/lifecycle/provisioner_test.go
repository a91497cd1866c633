package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

var aSpec = CreateSpec{VolumeGroup: "vg0", Name: "pvc-1", Size: mib}

// testProvisioner is a provisioner with an API server, and a user who answers by hand. It is used in a bubble of package synctest, where time passes only when
// everybody waits.
type testProvisioner struct {
	t    *testing.T
	ctx  context.Context
	api  *fake.API
	user *fake.APISession
	*Provisioner
}

// newTestProvisioner makes one. mode is what its clients can do: "watch", "poll", or "forbidden" when they only seem to be able to watch.
func newTestProvisioner(t *testing.T, mode string, change ...func(*ProvisionerConfig)) *testProvisioner {
	api := fake.NewAPI()
	p := &testProvisioner{t: t, ctx: t.Context(), api: api, user: api.Direct()}
	c := ProvisionerConfig{Claims: func(ns string) ClaimClient { return api.Claims(ns) }, Volumes: api.Volumes()}
	switch mode {
	case "poll":
		c.Claims = func(ns string) ClaimClient { return struct{ ClaimClient }{api.Claims(ns)} }
		c.Volumes = struct{ VolumeClient }{api.Volumes()}
	case "forbidden":
		api.Fail(fake.APICall{Verb: "watch"}, apierrors.NewForbidden(v1.Resource("persistentvolumeclaims"), "data", errors.New("no")))
	}
	for _, f := range change {
		f(&c)
	}
	var err error
	p.Provisioner, err = NewProvisioner(c)
	require.NoError(t, err)
	return p
}

// begin calls f in a goroutine of its own.
func (p *testProvisioner) begin(f func(ctx context.Context) error) (result func() error, cancel func()) {
	ctx, stop := context.WithCancelCause(p.ctx)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	synctest.Wait()
	return func() error { defer stop(nil); return <-done }, func() { stop(errors.New("the caller has enough")) }
}

func (p *testProvisioner) claim(annotations map[string]string) *v1.PersistentVolumeClaim {
	pvc := fake.NewClaim("data", nodeA)
	for k, v := range annotations {
		pvc.Annotations[k] = v
	}
	made, err := p.user.Claims("default").Create(p.ctx, pvc, metav1.CreateOptions{})
	require.NoError(p.t, err)
	return made
}

func (p *testProvisioner) getClaim() *v1.PersistentVolumeClaim {
	pvc, err := p.user.Claims("default").Get(p.ctx, "data", metav1.GetOptions{})
	require.NoError(p.t, err)
	return pvc
}

// asked is the claim once the request is on it.
func (p *testProvisioner) asked() *v1.PersistentVolumeClaim {
	synctest.Wait()
	require.Equal(p.t, string(Creating), p.getClaim().Annotations[keys.Lifecycle()])
	return p.getClaim()
}

// answer writes annotations as an agent does, and waits for what comes of it.
func (p *testProvisioner) answer(annotations map[string]string) {
	p.annotate(annotations)
	synctest.Wait()
}

func (p *testProvisioner) annotate(annotations map[string]string) {
	pvc := p.getClaim()
	for k, v := range annotations {
		pvc.Annotations[k] = v
	}
	_, err := p.user.Claims("default").Update(p.ctx, pvc, metav1.UpdateOptions{})
	require.NoError(p.t, err)
}

func (p *testProvisioner) create(ctx context.Context) error {
	return p.CreateVolumeWithAnnotations(ctx, "default", "data", aSpec)
}

// bubble is a subtest in a bubble of its own.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

var modes = []string{"watch", "poll", "forbidden"}

func TestProvisionerAsksAndWaitsForTheAnswer(t *testing.T) {
	for _, mode := range modes {
		bubble(t, mode, func(t *testing.T) {
			p := newTestProvisioner(t, mode)
			made := p.claim(map[string]string{"other": "x"})
			result, _ := p.begin(p.create)
			pvc := p.asked()
			require.Equal(t, map[string]string{
				"other": "x", keys.SelectedNode: nodeA, keys.Lifecycle(): "creating", keys.UID(): string(made.UID),
				keys.Spec(): `{"volumeGroup":"vg0","name":"pvc-1","size":1048576}`,
			}, pvc.Annotations)
			require.Equal(t, map[string]string{keys.NodeLabel(): nodeA}, pvc.Labels, "so that the agent's narrow watch sees it")
			p.answer(map[string]string{"unrelated": "y"})
			p.answer(map[string]string{keys.Lifecycle(): string(Created)})
			require.NoError(t, result())
			require.Zero(t, p.api.Watches())
		})
	}
}

// Defect 9 of the forerunner: it gave up after 16 seconds, and could not say why an agent failed.
func TestTheReasonOfAFailureComesBackTyped(t *testing.T) {
	for _, mode := range modes {
		bubble(t, mode, func(t *testing.T) {
			p := newTestProvisioner(t, mode)
			made := p.claim(nil)
			result, _ := p.begin(p.create)
			p.asked()
			p.answer(map[string]string{keys.Error(): Failure{Reason: ReasonInUse, Message: "of another life", UID: "before"}.Encode()})
			p.answer(map[string]string{keys.Error(): Failure{Reason: ReasonNoSpace, Message: "93 extents", UID: made.UID}.Encode()})
			err := result()
			require.ErrorIs(t, err, lvm.ErrNoSpace)
			var failed *FailedError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, ReasonNoSpace, failed.Reason)
			require.Equal(t, "create volume for claim default/data: claim default/data: the node's agent failed: NoSpace: 93 extents", err.Error())
		})
	}
}

func TestARepeatedRequestTakesTheOldFailureAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProvisioner(t, "watch")
		p.claim(map[string]string{
			keys.Lifecycle(): "creating", keys.Spec(): `{"vg":"vg0","name":"pvc-1","size":1048576,"tags":null}`,
			keys.Error(): Failure{Reason: ReasonNoSpace, Message: "old"}.Encode(),
		})
		result, _ := p.begin(p.create)
		require.NotContains(t, p.asked().Annotations, keys.Error())
		require.Equal(t, `{"vg":"vg0","name":"pvc-1","size":1048576,"tags":null}`, p.getClaim().Annotations[keys.Spec()], "the same, so it stays as it is written")
		p.answer(map[string]string{keys.Lifecycle(): string(Created)})
		require.NoError(t, result())
	})
}

func TestWhatIsDoneIsNotAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProvisioner(t, "watch")
		before := p.claim(map[string]string{keys.Lifecycle(): "created", keys.Spec(): `{"volumeGroup":"vg0","name":"pvc-1","size":1048576}`})
		require.NoError(t, p.create(t.Context()))
		require.NotContains(t, p.getClaim().Annotations, keys.UID())
		require.Equal(t, before.ResourceVersion, p.getClaim().ResourceVersion)
	})
}

func TestRequestsThatCannotBeMade(t *testing.T) {
	other := `{"volumeGroup":"vg0","name":"pvc-2","size":1048576}`
	for name, c := range map[string]struct {
		annotations map[string]string
		want        error
	}{
		"another is done":         {map[string]string{keys.Lifecycle(): "created", keys.Spec(): other}, ErrTaken},
		"it is being deleted":     {map[string]string{keys.Lifecycle(): "deleting", keys.Spec(): other}, ErrTaken},
		"a state that is none":    {map[string]string{keys.Lifecycle(): "x"}, ErrTaken},
		"no node":                 {map[string]string{keys.SelectedNode: ""}, ErrNoNode},
		"no node, though made on": {map[string]string{keys.SelectedNode: "", keys.Lifecycle(): "creating", keys.Spec(): other}, ErrNoNode},
	} {
		bubble(t, name, func(t *testing.T) {
			p := newTestProvisioner(t, "watch")
			before := p.claim(c.annotations)
			require.ErrorIs(t, p.create(t.Context()), c.want)
			require.Equal(t, before, p.getClaim())
		})
	}
	p := newTestProvisioner(t, "watch")
	require.True(t, apierrors.IsNotFound(p.create(t.Context())))
	p.claim(nil)
	require.ErrorIs(t, p.CreateVolumeWithAnnotations(t.Context(), "default", "data", CreateSpec{VolumeGroup: "@all", Name: "a", Size: 1}), lvm.ErrInvalid)
	require.ErrorIs(t, p.DeleteVolumeWithAnnotations(t.Context(), "pv", lvm.Name{VG: "vg0"}), lvm.ErrInvalid)
	require.NotContains(t, p.getClaim().Annotations, keys.Lifecycle())
}

func TestAnotherSpecReplacesOneThatIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProvisioner(t, "watch")
		p.claim(map[string]string{keys.Lifecycle(): "creating", keys.Spec(): `{"volumeGroup":"vg0","name":"pvc-2","size":1048576}`})
		result, _ := p.begin(p.create)
		require.Eventually(t, func() bool {
			return p.getClaim().Annotations[keys.Spec()] == `{"volumeGroup":"vg0","name":"pvc-1","size":1048576}`
		}, 10*time.Second, 100*time.Microsecond)
		p.answer(map[string]string{keys.Lifecycle(): string(Created)})
		require.NoError(t, result())
	})
}

// A claim that was restored together with the annotations of its former life.
func TestAnnotationsFromABackupAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProvisioner(t, "watch")
		made := p.claim(map[string]string{keys.Lifecycle(): "created", keys.Spec(): `{"volumeGroup":"vg0","name":"pvc-0","size":1048576}`, keys.UID(): "before"})
		result, _ := p.begin(p.create)
		require.Equal(t, string(made.UID), p.asked().Annotations[keys.UID()])
		p.answer(map[string]string{keys.Lifecycle(): string(Created)})
		require.NoError(t, result())
	})
}

func TestAnObjectThatGoesWhileItIsWaitedForIsAnError(t *testing.T) {
	for _, mode := range modes {
		for name, again := range map[string]bool{"deleted": false, "deleted and made anew": true} {
			bubble(t, mode+", "+name, func(t *testing.T) {
				p := newTestProvisioner(t, mode)
				p.claim(nil)
				result, _ := p.begin(p.create)
				p.asked()
				require.NoError(t, p.user.Claims("default").Delete(t.Context(), "data", metav1.DeleteOptions{}))
				if again {
					p.claim(map[string]string{keys.Lifecycle(): "created", keys.Spec(): `{"volumeGroup":"vg0","name":"pvc-1","size":1048576}`})
				}
				require.ErrorIs(t, result(), ErrGone)
			})
		}
	}
}

func TestWhatOthersWriteWhileItIsWaitedForIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProvisioner(t, "watch")
		p.claim(nil)
		result, _ := p.begin(p.create)
		p.asked()
		p.answer(map[string]string{keys.Spec(): `{"volumeGroup":"vg0","name":"pvc-2","size":1048576}`})
		require.ErrorIs(t, result(), ErrTaken)
	})
}

func TestTheCallersContextEndsTheWait(t *testing.T) {
	for _, mode := range modes {
		bubble(t, mode, func(t *testing.T) {
			p := newTestProvisioner(t, mode)
			p.claim(nil)
			result, cancel := p.begin(p.create)
			p.asked()
			cancel()
			require.ErrorContains(t, result(), "the caller has enough")
			require.Zero(t, p.api.Watches())
			require.Equal(t, "creating", p.getClaim().Annotations[keys.Lifecycle()], "the agent goes on")
		})
	}
}

func TestAProvisionerThatIsPatientGoesOnWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProvisioner(t, "watch", func(c *ProvisionerConfig) {
			c.KeepWaiting = func(f Failure) bool { return f.Reason == ReasonTimeout }
		})
		p.claim(nil)
		result, _ := p.begin(p.create)
		p.asked()
		p.answer(map[string]string{keys.Error(): Failure{Reason: ReasonTimeout}.Encode()})
		p.answer(map[string]string{keys.Lifecycle(): string(Created)})
		require.NoError(t, result())
	})
}

func TestAFailureThatCannotBeReadIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProvisioner(t, "watch")
		p.claim(nil)
		result, _ := p.begin(p.create)
		p.asked()
		p.answer(map[string]string{keys.Error(): "\x1b[31mnonsense"})
		var failed *FailedError
		require.ErrorAs(t, result(), &failed)
		require.Equal(t, ReasonFailed, failed.Reason)
		require.NotContains(t, failed.Message, "\x1b")
	})
}

func TestAWatchThatBreaksIsBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProvisioner(t, "watch")
		p.claim(nil)
		p.api.FailNext(fake.APICall{Verb: "watch"}, errServer)
		result, _ := p.begin(p.create)
		p.asked()
		for range 20 {
			p.api.BreakWatches()
			<-time.After(time.Second)
		}
		p.api.Compact()
		p.answer(map[string]string{keys.Lifecycle(): string(Created)})
		require.NoError(t, result())
		require.Less(t, len(p.api.Calls()), 60, "and not in a rush")
	})
}

// A connection that is dead without a word: events do not come any more, and no error.
func TestAWatchThatIsSilentIsLookedBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := newTestProvisioner(t, "poll", func(c *ProvisionerConfig) {
			claims := c.Claims
			c.Claims = func(ns string) ClaimClient { return &silent{ClaimClient: claims(ns)} }
		})
		p.claim(nil)
		result, _ := p.begin(p.create)
		p.asked()
		p.answer(map[string]string{keys.Lifecycle(): string(Created)})
		require.NoError(t, result())
		require.LessOrEqual(t, time.Since(began), watchedPollPeriod)
	})
}

type silent struct{ ClaimClient }

func (s *silent) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func TestAServerThatCannotBeReachedIsWaitedFor(t *testing.T) {
	for _, mode := range modes {
		bubble(t, mode, func(t *testing.T) {
			p := newTestProvisioner(t, mode)
			p.claim(nil)
			result, _ := p.begin(p.create)
			p.asked()
			p.api.FailNext(fake.APICall{Verb: "get"}, errServer, errServer, errServer)
			p.api.FailNext(fake.APICall{Verb: "watch"}, errServer)
			p.api.BreakWatches()
			p.answer(map[string]string{keys.Lifecycle(): string(Created)})
			require.NoError(t, result())
		})
	}
}

// L24: conflicts are resolved by reading again; what others write survives
func TestConflictsOfARequestAreResolved(t *testing.T) {
	for name, call := range map[string]func(p *testProvisioner) error{
		"create": func(p *testProvisioner) error { return p.create(p.ctx) },
		"update": func(p *testProvisioner) error {
			return p.UpdatePVCWithAnnotations(p.ctx, "default", "data", map[string]string{"a": "1", "gone": ""})
		},
	} {
		bubble(t, name, func(t *testing.T) {
			p := newTestProvisioner(t, "watch")
			p.claim(map[string]string{"gone": "x"})
			p.api.FailNext(fake.APICall{Verb: "patch"}, errConflicting, errConflicting)
			p.api.BeforeNext(fake.APICall{Verb: "patch"}, func() { p.annotate(map[string]string{"b": "2"}) })
			result, cancel := p.begin(func(context.Context) error { return call(p) })
			defer cancel()
			<-time.After(time.Second)
			if name == "create" {
				p.asked()
				p.answer(map[string]string{keys.Lifecycle(): string(Created)})
			}
			require.NoError(t, result())
			require.Equal(t, "2", p.getClaim().Annotations["b"])
		})
	}
}

func TestUpdateWritesAnnotationsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProvisioner(t, "watch")
		bare := fake.NewVolume("pv", DefaultDriver, nodeA, nil)
		_, err := p.user.Volumes().Create(t.Context(), bare, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, p.UpdatePVWithAnnotations(t.Context(), "pv", map[string]string{"a/b": "1", "c.d": "2", "not-there": ""}))
		pv, err := p.user.Volumes().Get(t.Context(), "pv", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a/b": "1", "c.d": "2"}, pv.Annotations, "also where there were none")
		require.Equal(t, bare.Spec, pv.Spec)
		version := pv.ResourceVersion
		require.NoError(t, p.UpdatePVWithAnnotations(t.Context(), "pv", map[string]string{"a/b": "1", "not-there": ""}))
		require.NoError(t, p.UpdatePVWithAnnotations(t.Context(), "pv", map[string]string{"c.d": ""}))
		pv, err = p.user.Volumes().Get(t.Context(), "pv", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a/b": "1"}, pv.Annotations)
		require.NotEqual(t, version, pv.ResourceVersion)
		require.True(t, apierrors.IsInvalid(p.UpdatePVWithAnnotations(t.Context(), "pv", map[string]string{"c~d": "1"})), "a key that the server never takes")
		require.True(t, apierrors.IsNotFound(p.UpdatePVWithAnnotations(t.Context(), "none", map[string]string{"a": "b"})))
		require.True(t, apierrors.IsNotFound(p.UpdatePVCWithAnnotations(t.Context(), "default", "none", map[string]string{"a": "b"})))
	})
}

func TestDeleteAsksTheVolumesNode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.PersistentVolume)
		label  string
		want   error
	}{
		"by its host name": {label: nodeA},
		"by its name": {label: "node-c", change: func(pv *v1.PersistentVolume) {
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0] = term(require1("metadata.name", v1.NodeSelectorOpIn, "node-c"))
		}},
		"several nodes": {change: func(pv *v1.PersistentVolume) {
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{nodeA, "node-b"}
		}},
		"no node": {want: ErrNoNode, change: func(pv *v1.PersistentVolume) { pv.Spec.NodeAffinity = nil }},
		"another spec": {want: ErrTaken, change: func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{keys.Lifecycle(): "deleting", keys.Spec(): "vg0/other"}
		}},
		"another is gone": {want: ErrTaken, change: func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{keys.Lifecycle(): "deleted", keys.Spec(): "vg0/other"}
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			p := newTestProvisioner(t, "watch")
			pv := fake.NewVolume("pvc-1", DefaultDriver, nodeA, nil)
			if c.change != nil {
				c.change(pv)
			}
			_, err := p.user.Volumes().Create(t.Context(), pv, metav1.CreateOptions{})
			require.NoError(t, err)
			result, _ := p.begin(func(ctx context.Context) error {
				return p.DeleteVolumeWithAnnotations(ctx, "pvc-1", lvm.Name{VG: "vg0", LV: "pvc-1"})
			})
			if c.want != nil {
				require.ErrorIs(t, result(), c.want)
				return
			}
			pv, err = p.user.Volumes().Get(t.Context(), "pvc-1", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, "deleting", pv.Annotations[keys.Lifecycle()])
			require.Equal(t, "vg0/pvc-1", pv.Annotations[keys.Spec()])
			require.Equal(t, c.label, pv.Labels[keys.NodeLabel()])
			pv.Annotations[keys.Lifecycle()] = string(Deleted)
			_, err = p.user.Volumes().Update(t.Context(), pv, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.NoError(t, result())
		})
	}
	p := newTestProvisioner(t, "watch")
	require.True(t, apierrors.IsNotFound(p.DeleteVolumeWithAnnotations(t.Context(), "none", lvm.Name{VG: "vg0", LV: "a"})))
}

func TestABadConfigurationOfAProvisionerIsRefused(t *testing.T) {
	api := fake.NewAPI()
	claims := func(ns string) ClaimClient { return api.Claims(ns) }
	for field, c := range map[string]ProvisionerConfig{
		"ProvisionerConfig.Claims":     {Volumes: api.Volumes()},
		"ProvisionerConfig.Volumes":    {Claims: claims},
		"ProvisionerConfig.PollPeriod": {Claims: claims, Volumes: api.Volumes(), PollPeriod: -1},
		"Annotations.Prefix":           {Claims: claims, Volumes: api.Volumes(), Annotations: Annotations{Prefix: "a/b"}},
	} {
		_, err := NewProvisioner(c)
		var invalid *cache.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
}

// Both sides, with watches, in real time: 50 claims at once, made and removed.
func TestProvisionerAndAgentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, func(c *AgentConfig) { c.Clock, c.Operations.Clock = nil, nil })
		p, err := NewProvisioner(ProvisionerConfig{Claims: func(ns string) ClaimClient { return w.api.Claims(ns) }, Volumes: w.api.Volumes()})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var agent, users sync.WaitGroup
		agent.Go(func() { _ = w.agent.Run(ctx) })
		const n = 50
		errs := make([]error, n)
		for i := range n {
			name := fmt.Sprintf("pvc-%d", i)
			users.Go(func() {
				errs[i] = func() error {
					pvc, err := w.user.Claims("default").Create(ctx, fake.NewClaim(name, nodeA), metav1.CreateOptions{})
					if err != nil {
						return err
					}
					if err := p.CreateVolumeWithAnnotations(ctx, "default", name, CreateSpec{VolumeGroup: "vg0", Name: name, Size: extent}); err != nil {
						return err
					}
					if _, err := w.user.Volumes().Create(ctx, fake.NewVolume(name, DefaultDriver, nodeA, pvc), metav1.CreateOptions{}); err != nil {
						return err
					}
					if i%2 == 0 {
						return nil
					}
					return p.DeleteVolumeWithAnnotations(ctx, name, lvm.Name{VG: "vg0", LV: name})
				}()
			})
		}
		users.Wait()
		require.NoError(t, errors.Join(errs...))
		require.Len(t, w.lvs(), n/2)
		require.Zero(t, w.api.Watches())
		stop()
		agent.Wait()
	})
}

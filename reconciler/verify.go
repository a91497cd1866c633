package reconciler

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// runVerify asks the driver now and then whether what is attached still is, until ctx ends. One that is due while the last
// still runs is missed, not queued.
func (r *Reconciler) runVerify(ctx context.Context) {
	if r.cfg.VerifyPeriod < 0 {
		return
	}
	ticker := r.cfg.Clock.NewTicker(r.cfg.VerifyPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			// A verification that cannot start is looked at again at the next tick.
			_ = r.Verify(ctx)
		}
	}
}

// Verify asks the driver, in the background, whether every volume that is Attached still is. What the driver knows to be
// not attached becomes Detached, unless it changed meanwhile; what it does not know stays as it is. Run does this every
// VerifyPeriod. Errors: *executor.AlreadyExistsError while a verification runs, which is counted as missed, and those of
// [executor.Operations.Start], such as *executor.BackoffError after one that failed.
func (r *Reconciler) Verify(ctx context.Context) error {
	volumes := map[types.NodeName][]cache.AttachedVolume{}
	for av := range r.actual.AttachedVolumes() {
		if av.State == cache.Attached {
			volumes[av.NodeName] = append(volumes[av.NodeName], av)
		}
	}
	if len(volumes) == 0 {
		return nil
	}
	err := r.exec.VerifyVolumes(ctx, volumes, func(result executor.VerifyResult) {
		if r.cfg.Observer.Verified != nil {
			r.cfg.Observer.Verified(result)
		}
	})
	var exists *executor.AlreadyExistsError
	if errors.As(err, &exists) {
		r.stats.missedVerifies.Add(1)
	}
	return err
}

package reconciler

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/reconciler/nodestatus"
)

// The defaults of Config.
const (
	DefaultVerifyPeriod = time.Minute
	DefaultRefusedRetry = 500 * time.Millisecond
)

// Config is what a Reconciler is made of. Desired, Actual and Attacher are required; the zero value of everything else is
// a choice that its comment names.
type Config struct {
	// Desired and Actual are the worlds to bring together. The reconciler reads the desired world and writes the outcomes of
	// its operations into the actual one. Fill the actual world with what is known to be attached before Run.
	Desired *cache.DesiredStateOfWorld
	Actual  *cache.ActualStateOfWorld

	// Attacher is the driver.
	Attacher executor.Attacher

	// Reports is where the list of a node's attached volumes is published. Nil: reports are kept in the actual world only,
	// and a detach does not wait for them to be written.
	Reports nodestatus.Sink

	// LiveChecks confirms, right before the driver's Detach, what the worlds say. Nil: the worlds are trusted, and a volume
	// of which no node has ever said that it is not in use counts as in use.
	LiveChecks LiveChecks

	// Policy holds the choices about force. Its zero value is the cautious one.
	Policy Policy

	// Notices is called for what a person may want to know of: once per change of cause. It must not block. Nil: nobody is told.
	Notices func(Notice)

	// NoticeRepeat is after how long a notice whose cause has not changed is given again. Zero: never.
	NoticeRepeat time.Duration

	// Observer is called for what happens. Its methods must not block.
	Observer Observer

	// Operations holds the options of the operations: back-off, caps, time-out.
	Operations executor.Options

	// VerifyPeriod is how often the driver is asked whether what is attached still is. Zero means DefaultVerifyPeriod,
	// negative never.
	VerifyPeriod time.Duration

	// RefusedRetry is when an operation that was refused is looked at again if nothing changes before. Zero means
	// DefaultRefusedRetry.
	RefusedRetry time.Duration

	// ReportTimeout bounds one write of a report. Zero means the default of package nodestatus.
	ReportTimeout time.Duration

	// AuditPeriod is how often every pair is looked at although nothing changed. Zero means the default of package engine,
	// negative never.
	AuditPeriod time.Duration

	// Workers is how many pairs are decided on at once. Zero means GOMAXPROCS.
	Workers int

	// Clock gives the time; it must be the clock of both worlds. Nil means the real clock.
	Clock clock.WithTickerAndDelayedExecution
}

// LiveChecks asks an authority, not a cache. An error means that nothing is known, and then nothing is done.
type LiveChecks interface {
	// VolumeInUse reports whether the node uses the volume now.
	VolumeInUse(ctx context.Context, volume v1.UniqueVolumeName, node types.NodeName) (bool, error)
	// NodeHealth returns the node's health now. A node that does not exist is no error: its health is {Deleted: true}.
	NodeHealth(ctx context.Context, node types.NodeName) (cache.NodeHealth, error)
}

// Observer has functions that are told what happens. Each may be nil, none may block, and all may be called concurrently.
type Observer struct {
	// Decided is called when the decision on a pair has another action or reason than before.
	Decided func(cache.Pair, Decision)
	// Finished is called when an operation has finished. Waited is the time since the pair was wished, or since its detach
	// was requested.
	Finished func(event executor.Event, waited time.Duration)
	// Reported is called after each write of a node's report.
	Reported func(nodestatus.Result)
	// Verified is called after each verification.
	Verified func(executor.VerifyResult)
}

// withDefaults checks the whole configuration and fills in what is not set.
func (c Config) withDefaults() (Config, error) {
	required := []struct {
		field string
		unset bool
	}{
		{"Desired", c.Desired == nil}, {"Actual", c.Actual == nil}, {"Attacher", c.Attacher == nil},
	}
	for _, r := range required {
		if r.unset {
			return c, &cache.InvalidError{Field: "Config." + r.field, Value: "nil", Reason: "is required"}
		}
	}
	durations := []struct {
		field string
		value time.Duration
	}{
		{"NoticeRepeat", c.NoticeRepeat}, {"RefusedRetry", c.RefusedRetry}, {"ReportTimeout", c.ReportTimeout},
	}
	for _, d := range durations {
		if d.value < 0 {
			return c, &cache.InvalidError{Field: "Config." + d.field, Value: d.value.String(), Reason: "must not be negative"}
		}
	}
	if c.Workers < 0 {
		return c, &cache.InvalidError{Field: "Config.Workers", Value: "negative", Reason: "must not be negative"}
	}
	if err := c.Policy.validate(); err != nil {
		return c, err
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Operations.Clock == nil {
		c.Operations.Clock = c.Clock
	}
	if c.VerifyPeriod == 0 {
		c.VerifyPeriod = DefaultVerifyPeriod
	}
	if c.RefusedRetry == 0 {
		c.RefusedRetry = DefaultRefusedRetry
	}
	return c, nil
}

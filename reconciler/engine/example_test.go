package engine_test

import (
	"context"
	"fmt"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/reconciler/engine"
)

func ExampleEngine() {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	tries := map[string]int{}
	loop, err := engine.New(engine.Config[string]{
		Clock: clock,
		Evaluate: func(_ context.Context, claim string) time.Time {
			tries[claim]++
			if tries[claim] < 2 {
				fmt.Println(claim, "is not ready, looking again in a minute")
				return clock.Now().Add(time.Minute)
			}
			fmt.Println(claim, "is ready")
			return time.Time{}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	loop.Add("default/data") // in a program: from an event handler, while loop.Run(ctx) runs
	loop.Add("default/data")
	loop.RunPending(context.Background())
	clock.Step(time.Minute)
	loop.RunPending(context.Background())
	// Output:
	// default/data is not ready, looking again in a minute
	// default/data is ready
}

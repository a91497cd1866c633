//go:build !race

package reconciler_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What a simulation finds can be looked at again: the same seed is the same run, byte by byte, unless the operating system takes
// the processor away at the wrong moment. (The race detector lets goroutines run in a random order.)
func TestOneSeedIsOneSimulatedCluster(t *testing.T) {
	oneAtATime(t)
	simulation := rapid.Custom(simulate)
	bytes := 0
	for seed := range 200 {
		log, again := simulation.Example(seed), ""
		for tries := 0; tries < 5 && log != again; tries++ {
			again = simulation.Example(seed)
		}
		require.Equal(t, log, again, "seed %d", seed)
		bytes += len(log)
	}
	require.Greater(t, bytes, 100_000, "there is something to compare")
}

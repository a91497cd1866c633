package reconciler_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/fake"
)

func TestAPodMovesToAnotherNode(t *testing.T) {
	w := fake.NewWorld(t)
	w.Node("a", "b")
	w.Pod("web-0", "vol-1", "a")
	w.Settle()
	w.Driver.FailNext(fake.Detach, errors.New("busy"))
	w.Move("web-0", "b")
	w.Settle()
	require.Equal(t, []string{"attach vol-1 a", "detach vol-1 a: busy", "detach vol-1 a", "attach vol-1 b"}, w.Driver.Calls())
}

package agents

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// What could not be withdrawn is said in one line, however much it is.
func TestARetirementThatFailsSaysWhatItHasDone(t *testing.T) {
	t.Parallel()
	begun := make([]error, 5)
	for i := range begun {
		begun[i] = fmt.Errorf("task t%d: %w", i+1, mesh.ErrBegun)
	}
	for _, c := range []struct {
		done int
		err  error
		text string
		exit int
	}{
		{2, errors.Join(begun...), "agent.a is not retired: 2 tasks withdrawn, 5 failures: task t1: a worker has begun the task; task t2: a worker has begun the task; task t3: a worker has begun the task; and 2 more", outcome.NotWanted},
		{1, errors.Join(begun[:1]...), "agent.a is not retired: 1 task withdrawn, 1 failure: task t1: a worker has begun the task", outcome.NotWanted},
		{0, fmt.Errorf("look: %w", jetstream.ErrUnavailable), "agent.a is not retired: 0 tasks withdrawn, 1 failure: look: jetstream is not available", outcome.Failed},
	} {
		err := notWithdrawn("agent.a", c.done, c.err)
		var members *outcome.Detailed
		if !errors.As(err, &members) || members.Members["withdrawn"] != c.done || outcome.Of(err).Exit != c.exit || outcome.Text(err) != c.text {
			t.Errorf("got %q, %+v, %+v", outcome.Text(err), outcome.Of(err), members)
		}
		if errors.Is(c.err, mesh.ErrBegun) && !strings.Contains(outcome.Hint(err), "aeemesh runs cancel") {
			t.Errorf("hint %q", outcome.Hint(err))
		}
	}
}

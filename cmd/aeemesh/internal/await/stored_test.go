package await

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
)

// A submission that failed says whether the task may be stored, and what helps; the codes are
// those of docs/cli.md.
func TestAFailedSubmissionTellsWhetherTheTaskIsStored(t *testing.T) {
	t.Parallel()
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "agent.ask", []byte(`{"text":"hi"}`))
	for _, c := range []struct {
		err  error
		code envelope.Code
		exit int
		hint string
	}{
		{jetstream.ErrUncertain, outcome.CodeUncertain, outcome.Failed, "Perhaps it is stored: \"aeemesh result " + task.ID + " agent.x\""},
		{jetstream.ErrFull, outcome.CodeFull, outcome.NotWanted, "Nothing is stored. Workers make room"},
		{fmt.Errorf("%s: %w", jetstream.StreamSchedule, jetstream.ErrFull), outcome.CodeFull, outcome.NotWanted, "Nothing is stored. Tasks leave AEE_SCHEDULE"},
		{fmt.Errorf("a task to aee.work.normal.agent.x: %w", jetstream.ErrUnavailable), envelope.CodeUnavailable, outcome.Failed, "Nothing is stored. In a cluster AEE_WORK may"},
		{fmt.Errorf("schedule a task to aee.schedule.agent.x.1: %w", jetstream.ErrUnavailable), envelope.CodeUnavailable, outcome.Failed, "Nothing is stored. In a cluster AEE_SCHEDULE may"},
		{jetstream.ErrAccountFull, outcome.CodeFull, outcome.NotWanted, "Nothing is stored. No limit of a stream helps"},
	} {
		err := SubmitFailed(task, fmt.Errorf("submit: %w", c.err))
		if o := outcome.Of(err); o.Code != c.code || o.Exit != c.exit || !strings.HasPrefix(outcome.Hint(err), c.hint) {
			t.Errorf("%v: %+v, %q", c.err, o, outcome.Hint(err))
		}
	}
}

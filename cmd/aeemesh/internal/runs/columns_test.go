package runs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/state"
)

// What a step did stands in one column, also where the names of steps are wide:
// rows that come together agree, and those that come later with the widest so far.
func TestColumnsOfAFollowedRunDoNotShift(t *testing.T) {
	t.Parallel()
	var out, words bytes.Buffer
	view := newFollowView(term.New(&out, &words, func(string) string { return "" }))
	moment := func(revision uint64, status aaif.RunStatus, name, what string) state.Moment {
		return state.Moment{Revision: revision, At: time.Unix(0, 0), Status: status, Step: state.Step{Kind: state.StepReceipt, Name: name}, Events: []string{what}}
	}
	monster := strings.Repeat("n", 60)
	for _, batch := range [][]state.Moment{
		{moment(1, aaif.RunRunning, "lint", "began"), moment(1_000_000_000, aaif.RunRunning, "list_open_invoices", "read")},
		{moment(3, aaif.RunAwaitingApproval, "größe_生命", "asks")},
		{moment(4, aaif.RunRunning, monster, "odd")},
		{moment(5, aaif.RunCompleted, "lint", "ended")},
	} {
		if err := view.show(batch); err != nil {
			t.Fatal(err)
		}
	}
	const want = `
1           running            receipt lint                began
1000000000  running            receipt list_open_invoices  read
3           awaiting_approval  receipt größe_生命          asks
4           running            receipt ` + "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" + `  odd
5           completed          receipt lint                ended
`
	got := "\n"
	for line := range strings.Lines(out.String()) {
		got += line[len("15:04:05.000  "):]
	}
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

package runs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/mesh/handoff"
)

// A receipt is a signed verdict about one run: a name that means several is refused. Of the
// handoffs of one run, the latest is meant.
func TestAReceiptIsAboutOneRun(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 7, 1, 10, minute, 0, 0, time.UTC) }
	all := []handoff.Status{
		{Handoff: "1a00", Run: "0f4c", Entity: "agent.a", Since: at(1)},
		{Handoff: "2b00", Run: "0f4c", Entity: "agent.a", Since: at(3)},
		{Handoff: "3c00", Run: "0f99", Entity: "agent.a", Since: at(2)},
	}
	for name, want := range map[string]string{"0f4": "2b00", "0f4c": "2b00", "1a": "1a00", "3c00": "3c00", "0f9": "3c00"} {
		if got, err := meantHandoff(all, name); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	for name, want := range map[string]string{"0f": "0f stands for 2 runs", "": "stands for 2 runs", "7": "no run 7 was transferred to here"} {
		if got, err := meantHandoff(all, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v, want %q", name, got, err, want)
		}
	}
}

func TestAReceiptBeforeItsVerdictHints(t *testing.T) {
	t.Parallel()
	if hint := outcome.Hint(receiptFailed(fmt.Errorf("handoff h is staged: %w", handoff.ErrNoVerdict))); !strings.Contains(hint, `"aeemesh runs import FILE"`) {
		t.Errorf("hint %q", hint)
	}
}

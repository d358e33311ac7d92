package dead

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream"
)

// The server went away in the middle: the command may be given again, and says so.
func TestAnUnansweredCommandMayBeGivenAgain(t *testing.T) {
	t.Parallel()
	for _, err := range []error{fmt.Errorf("retry dead letter 7: %w", jetstream.ErrUncertain), fmt.Errorf("get dead letter 7: %w", context.DeadlineExceeded)} {
		got := noLetter(err, 7)
		if !errors.Is(got, err) || !strings.Contains(outcome.Hint(got), "Give the command again") {
			t.Errorf("%v: hint %q", got, outcome.Hint(got))
		}
	}
}

func TestALetterIsPrintedTheSameEachTime(t *testing.T) {
	t.Parallel()
	v := view{Seq: 7, Entity: "agent.x", Code: "E_INVALID_ENVELOPE", Cause: "it is no JSON", Subject: "aee.work.normal.agent.x", Died: time.Unix(1e9, 0),
		Header: map[string][]string{"D": {"4"}, "A": {"1"}, "C": {"3"}, "B": {"2"}}}
	for range 20 {
		var out, words bytes.Buffer
		printLetter(term.New(&out, &words, func(string) string { return "" }), v, []byte("{}"))
		if text := out.String(); !strings.Contains(text, "header    A: 1\nheader    B: 2\nheader    C: 3\nheader    D: 4\n") || strings.Contains(text, "0001") {
			t.Fatalf("%s", text)
		}
	}
}

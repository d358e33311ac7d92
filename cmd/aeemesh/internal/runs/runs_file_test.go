package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// The server went away while a run with a token was imported: the same import finishes it.
func TestAnImportThatIsCutOffMayBeGivenAgain(t *testing.T) {
	t.Parallel()
	for _, err := range []error{fmt.Errorf("put run: %w", state.ErrUncertain), fmt.Errorf("get run: %w", context.DeadlineExceeded), jetstream.ErrUnavailable} {
		if got := transferFailed(err); !errors.Is(got, err) || !strings.Contains(outcome.Hint(got), "Give the command again") {
			t.Errorf("%v: hint %q", got, outcome.Hint(got))
		}
	}
	if got := outcome.Hint(transferFailed(transfer.ErrTokenUsed)); !strings.Contains(got, "handoff list") {
		t.Errorf("a used token: hint %q", got)
	}
}

// A run or a receipt on standard output is one line with --json, and nothing in it controls a
// terminal. Without --json it is what a file would have, with one newline at its end.
func TestARunOnStandardOutputIsOneLineOfJSON(t *testing.T) {
	t.Parallel()
	const content = "{\n  \"said\": \"a\u202eb\u009bc <d>\"\n}"
	for name, c := range map[string]struct {
		json bool
		want string
	}{
		"":       {false, content + "\n"},
		"--json": {true, `{"said":"a\u202eb\u009bc <d>"}` + "\n"},
	} {
		for _, data := range []string{content, content + "\n"} {
			var out, words bytes.Buffer
			a := &session.App{Term: term.New(&out, &words, func(string) string { return "" })}
			a.Term.JSON = c.json
			to, err := openOut(a, t.Context(), nil, "-")
			if err == nil {
				err = to.write(t.Context(), []byte(data))
			}
			if err != nil || out.String() != c.want || words.String() != "" {
				t.Errorf("%s: %v, %q, want %q; %s", name, err, out.String(), c.want, words.String())
			}
		}
	}
}

// An object that is too large is refused, as a file is, and not cut.
func TestAnObjectThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	a := &session.App{}
	s := &session.Session{Conn: natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true}))}
	js, err := a.JetStream(s.Conn)
	if err != nil {
		t.Fatal(err)
	}
	store, err := js.CreateObjectStore(t.Context(), natsjs.ObjectStoreConfig{Bucket: "exchange"})
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"largest": maxRunFile, "larger": maxRunFile + 1} {
		if _, err := store.PutBytes(t.Context(), name, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := readIn(a, t.Context(), s, "object:exchange/largest"); err != nil || len(data) != maxRunFile {
		t.Errorf("the largest: %d bytes, %v", len(data), err)
	}
	const want = "object:exchange/larger is larger than 67108864 bytes"
	if data, err := readIn(a, t.Context(), s, "object:exchange/larger"); err == nil || err.Error() != want || data != nil {
		t.Errorf("a larger one: %d bytes, %v", len(data), err)
	}
}

package dead

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

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

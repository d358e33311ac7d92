package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

func TestBenchMigratePrintsARowForEachKind(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	row := rowOf(moveToHTTPS, 10_000, []moved{{ms, 2 * ms, 3 * ms}, {3 * ms, 4 * ms, 5 * ms}, {2 * ms, 3 * ms, 4 * ms}})
	if want := (moveRow{To: moveToHTTPS, Bytes: 10_000, Moves: 3, P50: 9, P90: 12, P99: 12, Max: 12, Stop: 2, Carry: 3, Step: 4}); row != want {
		t.Errorf("%+v, want %+v", row, want)
	}
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		if err := printMove(&out, asJSON, row); err != nil {
			t.Fatal(err)
		}
		var again moveRow
		if asJSON && (json.Unmarshal(out.Bytes(), &again) != nil || again != row) || !strings.Contains(out.String(), row.To) {
			t.Errorf("%+v is printed as %s", row, out.String())
		}
	}
	for _, args := range [][]string{{"--moves", "0"}, {"--bytes", "0"}, {"--bytes", "50000000"}, {"--to", "moon"}} {
		c := newBenchMigrateCommand(io.Discard, io.Discard)
		c.SetArgs(args)
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		if c.Execute() == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

// A conversation has the bytes that were asked for, and another one has another digest.
func TestBenchMigrateMakesAConversation(t *testing.T) {
	t.Parallel()
	all, n := conversation(10_000), 0
	for _, m := range all {
		n += len(m.Content)
	}
	got := resultOf(all)
	if n != 10_000 || got.Messages != 3 || got == resultOf(append(all[:2:2], lastMessage)) {
		t.Errorf("%d bytes in %+v", n, got)
	}
}

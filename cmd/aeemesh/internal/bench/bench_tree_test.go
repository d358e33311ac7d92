package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestBenchTreePrintsARowForEachKind(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, row := range []treeRow{{Shape: "chain", Size: 8, Mode: "raw", P50Micros: 400, P99Micros: 500, HopMicros: 50}, {Shape: "fan-out", Size: 10, Mode: "live", P50Micros: 800, P99Micros: 900, HopMicros: 80, RatioToRaw: 2}} {
		for _, asJSON := range []bool{false, true} {
			out.Reset()
			if err := printTree(&out, asJSON, row); err != nil {
				t.Fatal(err)
			}
			var again treeRow
			if asJSON && (json.Unmarshal(out.Bytes(), &again) != nil || again != row) || !strings.Contains(out.String(), row.Mode) {
				t.Errorf("%+v is printed as %s", row, out.String())
			}
		}
	}
	for _, args := range [][]string{{"--chain", "16"}, {"--fan", "0"}, {"--rounds", "0"}} {
		c := newBenchTreeCommand(io.Discard, io.Discard)
		c.SetArgs(args)
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		if c.Execute() == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

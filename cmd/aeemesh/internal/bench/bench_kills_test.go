package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestBenchKillsPrintsARowForEachKind(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	none, two := 0, 2
	for _, row := range []killRow{
		distribution("kill", []time.Duration{time.Second, 2 * time.Second}),
		{What: "calm", Times: 6, Reconnects: 3, TakenOver: &none, GivenUp: &two},
		{What: "watched", Times: 100, CPU: 20, Alone: 10},
	} {
		for _, asJSON := range []bool{false, true} {
			out.Reset()
			if err := printKills(&out, asJSON, row); err != nil {
				t.Fatal(err)
			}
			var again killRow
			if asJSON && (json.Unmarshal(out.Bytes(), &again) != nil || !reflect.DeepEqual(again, row)) || !strings.Contains(out.String(), row.What) {
				t.Errorf("%+v is printed as %s", row, out.String())
			}
		}
	}
	for _, args := range [][]string{{"--workers", "1"}, {"--runs", "0"}, {"--kills", "-1"}, {"--calm", "-1s"}} {
		c := newBenchKillsCommand(io.Discard, io.Discard)
		c.SetArgs(args)
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		if c.Execute() == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

// A run that another worker tells of has moved; what its former worker tells late has not.
func TestBenchKillsCountsMoves(t *testing.T) {
	t.Parallel()
	s := &sightings{changed: make(chan struct{}), runs: map[string]sighting{}}
	for _, r := range []report{{Run: "r", PID: 1}, {PID: 1}, {Run: "r", PID: 1, Released: true}, {Run: "r", PID: 2}, {Run: "r", PID: 1, Released: true}, {Run: "s", PID: 2}, {Run: "r", PID: 3}} {
		body, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		s.hear(&nats.Msg{Data: body})
	}
	if s.moved() != 2 || s.reconnected() != 1 || s.runs["r"].pid != 3 || s.runs["s"].pid != 2 {
		t.Errorf("%d moves, %d reconnects, %+v", s.moved(), s.reconnected(), s.runs)
	}
	if runs := s.of(2, 0); !reflect.DeepEqual(runs, []string{"s"}) {
		t.Errorf("runs of 2: %v", runs)
	}
	if runs := s.of(2, time.Hour); runs != nil {
		t.Errorf("runs of 2 for an hour: %v", runs)
	}
	gaps, err := s.gaps(t.Context(), []string{"r"}, 2, func(was sighting) time.Time { return was.last })
	if err != nil || len(gaps) != 1 || gaps[0] < 0 {
		t.Errorf("gaps %v, %v", gaps, err)
	}
}

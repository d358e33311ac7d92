package agents

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/state"
)

var writeRelease = flag.String("write-release", "", "write the checkpoints of this release into this new folder below testdata/checkpoints")

// releaseTurns are the turns of the runs in testdata/checkpoints.
var releaseTurns = []modeltest.Turn{
	{Text: "Looking. ", Calls: []model.ToolCall{wish("1", "lint"), wish("2", "pay"), wish("3", "nothing")}, Usage: model.Usage{InputTokens: 1, OutputTokens: 1}},
	{Text: "Paying. ", Calls: []model.ToolCall{wish("1", "pay")}, Usage: model.Usage{InputTokens: 1, OutputTokens: 1}},
	{Text: "done", Usage: model.Usage{InputTokens: 1, OutputTokens: 1}},
}

func newRelease(t *testing.T) *workbench {
	w := newWorkbench(t, Options{ParallelTools: 2}, releaseTurns...)
	w.task.Envelope.ID, w.task.Envelope.Corr = "01RELEASE0000000000000000X", "01RELEASE0000000000000000X"
	return w
}

// Every checkpoint that a release has ever written resumes in this one: what
// was done is not done again, and the run ends as it would have then.
func TestCheckpointsOfAllReleasesResume(t *testing.T) {
	t.Parallel()
	if *writeRelease != "" {
		writeCheckpoints(t, filepath.Join("testdata", "checkpoints", *writeRelease))
	}
	files, err := filepath.Glob(filepath.Join("testdata", "checkpoints", "*", "*.json"))
	if err != nil || len(files) < 8 {
		t.Fatalf("%d checkpoints, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cp, err := state.Codec{}.Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			w := newRelease(t)
			turns, before := int(cp.Doc.Iteration.Int64()), lines(cp)
			_, err = w.work(newPaper(t, cp))
			lost := slices.ContainsFunc(cp.Mesh.Effects, func(e state.Effect) bool {
				return e.Tool == "pay" && (e.Status == state.EffectInFlight || e.Status == state.EffectUnknown)
			})
			if lost {
				if !errors.Is(err, errParked) || len(w.model.Requests()) != 0 {
					t.Fatalf("a call of which nobody knows: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			p := newPaper(t, cp)
			payload, err := w.work(p) // and once more, with what its journal says in the end
			if want := `{"text":"done","usage":{"input_tokens":3,"output_tokens":3}}`; err != nil || payload != want {
				t.Errorf("%s, %v; want %s", payload, err, want)
			}
			if got := len(w.model.Requests()); got != 2*(3-turns) {
				t.Errorf("%d turns were taken, and %d more twice", turns, got)
			}
			for key, n := range w.take() {
				if before[key].Final() || n != 2 {
					t.Errorf("%s, which was %q, was called %d times", key, before[key], n)
				}
			}
			check(t, file, p.next())
		})
	}
}

// writeCheckpoints writes down each checkpoint of a run, and the last one
// before a person is asked.
func writeCheckpoints(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err) // what a release wrote is never written anew
	}
	put := func(name string, cp *state.Checkpoint) {
		raw, err := state.Codec{}.Encode(cp.Clone())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := newRelease(t)
	var all []*state.Checkpoint
	p := newPaper(t, w.begin())
	p.onStep = func(state.Step) { all = append(all, p.last.Clone()) }
	if _, err := w.work(p); err != nil {
		t.Fatal(err)
	}
	for i, cp := range all {
		put(fmt.Sprintf("%02d-%s", i+1, cp.Mesh.Step.Kind), cp)
	}
	put(fmt.Sprintf("%02d-answer", len(all)+1), p.next())
	at := slices.IndexFunc(all, func(cp *state.Checkpoint) bool { return cp.Mesh.Step.Kind == state.StepIntent })
	asks := newPaper(t, all[at])
	if _, err := newRelease(t).work(asks); !errors.Is(err, errParked) {
		t.Fatal(err)
	}
	put("asks", asks.last)
	for _, outcome := range []string{state.SettleDone, state.SettleFailed, state.SettleRepeat} {
		cp := asks.last.Clone()
		if _, err := cp.Settle("2", outcome, nil, "", "human.ada", time.Now()); err != nil {
			t.Fatal(err)
		}
		cp.Doc.Status = aaif.RunRunning
		put("settled-"+outcome, cp)
	}
}

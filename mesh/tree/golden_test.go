package tree_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/tree"
)

var update = flag.Bool("update", false, "write the golden files")

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// script is a story of events: "ms entity intent payload" in each line.
type script struct {
	corr   string
	events []seen
	last   time.Time
}

type seen struct {
	at  time.Time
	env *envelope.Envelope
}

func readScript(t testing.TB, text string) script {
	t.Helper()
	var s script
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.Join(strings.Fields(line), " "), " ", 4)
		switch {
		case line[0] == '#':
		case fields[0] == "corr":
			s.corr = fields[1]
		default:
			ms, err := strconv.Atoi(fields[0])
			if err != nil || len(fields) != 4 {
				t.Fatalf("%q: %v", line, err)
			}
			topic := "bus.mesh.task"
			if strings.HasPrefix(fields[2], "mesh.run.") {
				topic = "bus.mesh.run"
			}
			e := envelope.New(envelope.TypeEvent, fields[1], topic, fields[2], json.RawMessage(fields[3]))
			e.Corr = s.corr
			s.last = at(ms)
			s.events = append(s.events, seen{s.last, e})
		}
	}
	return s
}

func (s script) tree() *tree.Tree {
	b := tree.New(s.corr)
	for _, e := range s.events {
		b.Event(e.at, e.env)
	}
	return b.Tree(s.last)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; look, and run with -update:\n%s", name, got)
	}
}

func TestTreesAreGolden(t *testing.T) {
	t.Parallel()
	stories, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(stories) < 4 {
		t.Fatal(stories, err)
	}
	for _, name := range stories {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tr := readScript(t, string(raw)).tree()
		var doc bytes.Buffer
		enc := json.NewEncoder(&doc)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		if err := enc.Encode(tr); err != nil {
			t.Fatal(err)
		}
		base := strings.TrimSuffix(name, ".txt")
		golden(t, base+".tree", tr.Text(tree.TextOptions{}))
		golden(t, base+".json", doc.String())
		golden(t, base+".dot", tr.Dot(0))
	}
}

// swarm is a story of n members, of which every fifth fails.
func swarm(n int) string {
	var b strings.Builder
	b.WriteString("corr c\n0 agent.team mesh.task.started {\"task\":\"t\"}\n")
	for i := range n {
		fmt.Fprintf(&b, "1 agent.team mesh.run.step_started {\"task\":\"t\",\"pattern\":\"swarm\",\"step\":\"swarm/%d\",\"alias\":\"m%d\",\"slot\":%d,\"to\":\"agent.m\",\"child\":\"c%d\"}\n", i, i, i, i)
	}
	for i := range n {
		if i%5 == 4 {
			fmt.Fprintf(&b, "2 agent.team mesh.run.step_failed {\"task\":\"t\",\"step\":\"swarm/%d\",\"child\":\"c%d\",\"error\":{\"code\":\"E_X\",\"message\":\"m\"}}\n", i, i)
		} else {
			fmt.Fprintf(&b, "2 agent.m mesh.task.finished {\"task\":\"c%d\",\"parent\":\"t\",\"duration_ms\":1,\"usage\":{\"input_tokens\":1}}\n", i)
		}
	}
	return b.String()
}

func TestLargeSwarmsAreFolded(t *testing.T) {
	t.Parallel()
	tr := readScript(t, swarm(1000)).tree()
	text := tr.Text(tree.TextOptions{Fold: 10})
	if lines := strings.Count(text, "\n"); lines != 17 {
		t.Errorf("%d lines:\n%s", lines, text)
	}
	if want := "└─ … 990 more: 792 done, 198 failed\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	if want := "1,001 tasks (800 done, 200 failed, 1 running), 800 tokens"; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	if all := tr.Text(tree.TextOptions{Fold: -1}); strings.Count(all, "agent.m ") != 1000 {
		t.Errorf("not all are drawn:\n%.2000s", all)
	}
	if dot := tr.Dot(10); strings.Count(dot, "->") != 11 || !strings.Contains(dot, "990 more: 792 done, 198 failed") {
		t.Errorf("dot:\n%.3000s", dot)
	}
}

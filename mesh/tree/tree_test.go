package tree_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/tree"
)

func TestStateIsOfBothSides(t *testing.T) {
	t.Parallel()
	const (
		root     = `0 agent.t mesh.task.started {"task":"t"}`
		started  = `1 agent.t mesh.run.step_started {"task":"t","step":"s","to":"agent.a","child":"a"}`
		finished = `9 agent.t mesh.run.step_finished {"task":"t","step":"s","child":"a","duration_ms":8}`
		failed   = `9 agent.t mesh.run.step_failed {"task":"t","step":"s","child":"a","duration_ms":8,"error":{"code":"E_TIMEOUT","message":"late"}}`
		begun    = `2 agent.a mesh.task.started {"task":"a","parent":"t"}`
		done     = `8 agent.a mesh.task.finished {"task":"a","parent":"t","duration_ms":6}`
		wrong    = `8 agent.a mesh.task.failed {"task":"a","parent":"t","duration_ms":6,"error":{"code":"E_X","message":"m"}}`
		waits    = `3 agent.t mesh.run.waiting {"task":"t","step":"s","child":"a","to":"human.ada","until":"later"}`
		retrying = `3 agent.a mesh.task.retrying {"task":"a","parent":"t","error":{"code":"E_X","message":"m","retryable":true}}`
		more     = `5 agent.t mesh.run.escalated {"task":"t","step":"s/to/1","child":"b","to":"human.boss","detail":"ada did not answer in time"}`
		over     = `10 agent.t mesh.task.finished {"task":"t","duration_ms":10}`
	)
	for _, c := range []struct {
		name   string
		events []string
		state  tree.State
		code   string
		ms     float64
	}{
		{"sent only", []string{root, started}, tree.Sent, "", 9},
		{"begun", []string{root, started, begun}, tree.Running, "", 9},
		{"begun, its caller is not heard", []string{begun}, tree.Running, "", 8},
		{"tried again", []string{root, started, begun, retrying}, tree.Retrying, "E_X", 9},
		{"both say that it is done", []string{root, started, begun, done, finished}, tree.Done, "", 6},
		{"in another language", []string{root, started, finished}, tree.Done, "", 8},
		{"its end was lost", []string{root, started, begun, finished}, tree.Done, "", 8},
		{"its caller's word was lost", []string{root, started, begun, done}, tree.Done, "", 6},
		{"both say that it failed", []string{root, started, begun, wrong, failed}, tree.Failed, "E_TIMEOUT", 6},
		{"given up by its caller", []string{root, started, begun, failed}, tree.Failed, "E_TIMEOUT", 8},
		{"given up, and done later", []string{root, started, begun, failed, done}, tree.Failed, "E_TIMEOUT", 8},
		{"a person", []string{root, started, waits}, tree.Waiting, "", 9},
		{"a person answered", []string{root, started, waits, finished}, tree.Done, "", 8},
		{"only an end", []string{root, finished}, tree.Done, "", 8},
		{"nobody told", []string{root, started, begun, over}, tree.Unknown, "", 0},
		{"a person whom nobody waits for any more", []string{root, started, waits, over}, tree.Withdrawn, "", 9},
		{"a person who did not answer in time", []string{root, started, waits, more}, tree.Failed, "E_TIMEOUT", 4},
	} {
		s := readScript(t, "corr corr\n"+strings.Join(c.events, "\n")+"\n")
		s.last = at(10)
		n := find(t, s.tree(), "a")
		if n.State != c.state || n.Code != c.code || n.DurationMS != c.ms {
			t.Errorf("%s: %s %s %vms, want %s %s %vms", c.name, n.State, n.Code, n.DurationMS, c.state, c.code, c.ms)
		}
	}
}

// A result tells what everything below it used, an event what the task itself
// did: whichever of them is known, each task's own and the sum agree.
func TestUsageAddsUp(t *testing.T) {
	t.Parallel()
	const (
		root  = `0 agent.t mesh.task.started {"task":"t"}`
		above = `0 agent.x mesh.run.step_started {"task":"x","step":"s","to":"agent.t","child":"t"}`
		a     = `9 agent.t mesh.run.step_finished {"task":"t","step":"a","child":"a","to":"agent.a","usage":{"input_tokens":10,"output_tokens":1,"cost_usd":0.1}}`
		b     = `9 agent.t mesh.run.step_finished {"task":"t","step":"b","child":"b","to":"agent.b","usage":{"input_tokens":20}}`
		own   = `9 agent.t mesh.task.finished {"task":"t","usage":{"input_tokens":5,"model_calls":1,"cost_nano_usd":7}}`
		whole = `9 agent.x mesh.run.step_finished {"task":"x","step":"s","child":"t","usage":{"input_tokens":36,"output_tokens":1}}`
	)
	for _, c := range []struct {
		name       string
		events     []string
		own, total int64 // of t
	}{
		{"nothing", []string{root}, -1, -1},
		{"members only", []string{root, a, b}, -1, 31},
		{"members and its own", []string{root, a, b, own}, 5, 36},
		{"its own only", []string{root, own}, 5, 5},
		{"its result and its members", []string{above, root, a, b, whole}, 6, 37},
		{"its result only", []string{above, root, whole}, 37, 37},
		{"its result, one member was lost", []string{above, root, b, own, whole}, 5, 37},
	} {
		tr := readScript(t, "corr corr\n"+strings.Join(c.events, "\n")+"\n").tree()
		n := find(t, tr, "t")
		got := [2]int64{-1, -1}
		if n.Usage != nil {
			got[0] = n.Usage.Tokens()
		}
		if n.Total != nil {
			got[1] = n.Total.Tokens()
			if tr.Usage == nil || tr.Usage.Tokens() != got[1] {
				t.Errorf("%s: all: %+v", c.name, tr.Usage)
			}
		}
		if got != [2]int64{c.own, c.total} {
			t.Errorf("%s: own and all are %v, want %v", c.name, got, [2]int64{c.own, c.total})
		}
	}
}

func TestTheLongestLegIsWhatWasWaitedFor(t *testing.T) {
	t.Parallel()
	member := func(id string, from, to int) string {
		return fmt.Sprintf("%d agent.t mesh.run.step_started {\"task\":\"t\",\"step\":%[2]q,\"alias\":%[2]q,\"to\":\"agent.m\",\"child\":%[2]q}\n", from, id) +
			fmt.Sprintf("%d agent.t mesh.run.step_finished {\"task\":\"t\",\"step\":%[2]q,\"child\":%[2]q,\"duration_ms\":%d}\n", to, id, to-from)
	}
	for _, c := range []struct {
		name, events string
		want         []string
	}{
		{"one after the other", member("a", 1, 5) + member("b", 5, 9) + member("c", 10, 12), []string{"a", "b", "c"}},
		{"at once", member("a", 1, 5) + member("b", 1, 9) + member("c", 1, 7), []string{"b"}},
		{"at once, and one that was not needed any more", member("a", 1, 5) + strings.NewReplacer("step_finished", "step_failed", `"duration_ms":8`, `"duration_ms":8,"then":"skip","error":{"code":"E_CANCELLED","message":"not needed"}`).Replace(member("b", 1, 9)), []string{"a"}},
		{"at once, and one that failed", member("a", 1, 5) + strings.NewReplacer("step_finished", "step_failed", `"duration_ms":8`, `"duration_ms":8,"then":"skip","error":{"code":"E_INTERNAL","message":"no"}`).Replace(member("b", 1, 9)), []string{"b"}},
		{"drawn in another order", strings.ReplaceAll(member("a", 1, 5), `"step":`, `"slot":1,"step":`) + strings.ReplaceAll(member("b", 6, 9), `"step":`, `"slot":0,"step":`), []string{"a", "b"}},
		{"at once, and then a merge", member("a", 1, 5) + member("b", 1, 9) + member("m", 9, 12), []string{"b", "m"}},
	} {
		tr := readScript(t, "corr corr\n0 agent.t mesh.task.started {\"task\":\"t\"}\n"+c.events+"20 agent.t mesh.task.finished {\"task\":\"t\",\"duration_ms\":20}\n").tree()
		if !slices.Equal(tr.Critical, c.want) {
			t.Errorf("%s: %v, want %v", c.name, tr.Critical, c.want)
		}
	}
}

func TestAPartOfATreeIsATree(t *testing.T) {
	t.Parallel()
	s := readScript(t, `corr corr
0 agent.t mesh.task.started {"task":"t"}
1 agent.t mesh.run.step_started {"task":"t","step":"s","alias":"mid","to":"agent.m","child":"m"}
2 agent.m mesh.run.step_started {"task":"m","step":"s","alias":"leaf","to":"agent.l","child":"l"}
5 agent.m mesh.run.step_finished {"task":"m","step":"s","child":"l","duration_ms":3,"usage":{"input_tokens":4}}
6 agent.t mesh.run.step_finished {"task":"t","step":"s","child":"m","duration_ms":5}
7 agent.t mesh.task.finished {"task":"t","duration_ms":7}
`)
	part := s.tree().At("m", at(9))
	if part == nil || len(part.Nodes) != 2 || part.Nodes[0].ID != "m" || part.Nodes[0].Parent != "" || part.Nodes[1].Depth != 1 || part.Tasks.Done != 2 || part.Usage.Tokens() != 4 || part.State != tree.Done {
		t.Errorf("%+v", part)
	}
	if s.tree().At("none", at(9)) != nil {
		t.Error("a task that is not there has a tree")
	}
}

func TestDeepTreesAreDrawn(t *testing.T) {
	t.Parallel()
	b := tree.New("corr")
	const deep = 20_000
	for i := range deep {
		e := envelope.New(envelope.TypeEvent, "agent.a", "bus.mesh.task", "mesh.task.started", json.RawMessage(fmt.Sprintf(`{"task":"%d","parent":"%d"}`, i, i-1)))
		e.Corr = "corr"
		b.Event(at(i), e)
	}
	tr := b.Tree(at(deep))
	if text := tr.Text(tree.TextOptions{}); len(tr.Nodes) != deep || len(text) > 1<<20 || !strings.Contains(text, "… 1 more") {
		t.Errorf("%d nodes, %d bytes", len(tr.Nodes), len(text))
	}
	if dot := tr.Dot(0); len(dot) > 1<<20 {
		t.Errorf("dot has %d bytes", len(dot))
	}
}

func TestTreesHaveABound(t *testing.T) {
	t.Parallel()
	b := tree.New("corr")
	for i := range tree.MaxTasks + 10 {
		e := envelope.New(envelope.TypeEvent, "agent.a", "bus.mesh.task", "mesh.task.started", json.RawMessage(fmt.Sprintf(`{"task":"%d"}`, i)))
		e.Corr = "corr"
		b.Event(at(1), e)
	}
	if tr := b.Tree(at(2)); len(tr.Nodes) != tree.MaxTasks || len(tr.Unknown) != 1 {
		t.Errorf("%d nodes, %q", len(tr.Nodes), tr.Unknown)
	}
}

func TestLinesFitTheirWidth(t *testing.T) {
	t.Parallel()
	tr := readScript(t, swarm(3)).tree()
	paint := func(_ tree.State, s string) string { return "\x1b[1m" + s + "\x1b[0m" }
	for _, width := range []int{10, 20, 40, 200} {
		text := tr.Text(tree.TextOptions{Width: width, Paint: paint})
		plain := strings.NewReplacer("\x1b[1m", "", "\x1b[0m", "").Replace(text)
		for line := range strings.Lines(plain) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("width %d: a line of %d: %s", width, n, line)
			}
		}
		if strings.Count(text, "\x1b[1m") != strings.Count(text, "\x1b[0m") {
			t.Errorf("width %d: a colour does not end", width)
		}
	}
}

// Whatever is said on the bus, a tree comes of it: each task once, under one that
// is in it, and its drawings command nothing.
func FuzzEvents(f *testing.F) {
	f.Add("agent.a", "mesh.run.step_started", `{"task":"t","child":"c","to":"agent.b","slot":0,"alias":"\u001b[2J"}`, "agent.b", "mesh.task.finished", `{"task":"c","parent":"t","usage":{"input_tokens":9e18,"cost_usd":1e300}}`)
	f.Add("agent.a", "mesh.task.started", `{"task":"a","parent":"b"}`, "agent.a", "mesh.task.failed", `{"task":"b","parent":"a","error":{"code":"\n"},"duration_ms":-1e308}`)
	f.Add("agent.a", "mesh.run.voted", `{"task":"a","votes":[{"count":-1}],"scores":[{"score":1e308}]}`, "agent.a", "mesh.run.handed_off", `{"task":"a","child":"a"}`)
	f.Fuzz(func(t *testing.T, from1, intent1, payload1, from2, intent2, payload2 string) {
		b := tree.New("corr")
		for range 2 {
			for i, e := range []envelope.Envelope{{From: from1, Intent: intent1, Payload: json.RawMessage(payload1)}, {From: from2, Intent: intent2, Payload: json.RawMessage(payload2)}} {
				e.Type, e.Corr = envelope.TypeEvent, "corr"
				b.Event(at(i), &e)
			}
		}
		tr := b.Tree(at(3))
		seen := map[string]bool{}
		for _, n := range tr.Nodes {
			if seen[n.ID] || n.Parent != "" && !seen[n.Parent] {
				t.Errorf("node %q under %q", n.ID, n.Parent)
			}
			seen[n.ID] = true
		}
		if len(tr.Nodes) != b.Len() || tr.Tasks.Total != b.Len() {
			t.Errorf("%d nodes of %d", len(tr.Nodes), b.Len())
		}
		if _, err := json.Marshal(tr); err != nil {
			t.Error(err)
		}
		if text := tr.Text(tree.TextOptions{Width: 80}) + tr.Dot(0); strings.ContainsAny(text, "\x1b\r\x00\u202e") {
			t.Errorf("it commands: %q", text)
		}
	})
}

package jetstream_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// The latest runs come first, each once, by the time of their last message.
func TestLatestRunsFirst(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx := testContext(t)
	var want []string
	put := func(entity, run string, prev uint64, status string) uint64 {
		t.Helper()
		c := state.New(entity, run, "")
		c.Doc.RunID, c.Doc.Status = run, aaif.RunStatus(status)
		data, err := state.Codec{}.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.Index(want, entity+" "+run); i >= 0 {
			want = slices.Delete(want, i, i+1)
		}
		want = append([]string{entity + " " + run}, want...)
		return putRun(t, s, state.ID{Entity: entity, Run: run}, prev, data, jetstream.Note{Status: aaif.RunStatus(status)})
	}
	first := put("agent.x", "first", 0, "running")
	for i := range 700 {
		put(fmt.Sprintf("agent.y%d", i%3), fmt.Sprintf("r%d", i), 0, "completed")
	}
	put("agent.z", "failed", 0, "failed")
	put("agent.x", "first", first, "running")
	for i := range 5 {
		put("agent.x", fmt.Sprintf("n%d", i), 0, "completed")
	}
	end := put("agent.x", "replied", 0, "completed")
	if _, err := s.Reply(ctx, state.ID{Entity: "agent.x", Run: "replied"}, end, jetstream.Reply{MsgID: "m", Data: []byte("{}")}, jetstream.Note{Status: "completed"}, nil); err != nil {
		t.Fatal(err)
	}
	fenced := jetstream.NewStates(js, subject.Map{})
	fenced.Fence()
	for name, c := range map[string]struct {
		s      *jetstream.States
		entity string
		status string
	}{"all": {s: s}, "of one": {s: s, entity: "agent.x"}, "failed": {s: s, status: "failed"}, "by name": {s: fenced, entity: "agent.x"}, "by name, running": {s: fenced, status: "running"}} {
		var got, expect []string
		for r, err := range c.s.Latest(ctx, c.entity, func(st aaif.RunStatus) bool { return c.status == "" || string(st) == c.status }) {
			if err != nil {
				t.Fatal(name, err)
			}
			got = append(got, r.ID.Entity+" "+r.ID.Run)
		}
		for _, w := range want {
			if c.entity != "" && w[:7] != c.entity || c.status == "failed" && w != "agent.z failed" || c.status == "running" && w != "agent.x first" {
				continue
			}
			expect = append(expect, w)
		}
		if !slices.Equal(got, expect) {
			t.Errorf("%s: %d runs %.300q, want %d %.300q", name, len(got), got, len(expect), expect)
		}
	}
	ids, err := s.Names(ctx, "agent.x")
	if err != nil || len(ids) != 7 || !slices.Contains(ids, state.ID{Entity: "agent.x", Run: "replied"}) {
		t.Errorf("names %v, %v", ids, err)
	}
}

// A stream in which nothing was ever stored has the first sequence 0.
func TestLatestRunsOfANewMesh(t *testing.T) {
	t.Parallel()
	_, s := openStates(t)
	for r, err := range s.Latest(testContext(t), "", nil) {
		t.Fatal(r, err)
	}
}

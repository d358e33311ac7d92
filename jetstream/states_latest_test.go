package jetstream_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
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

// A run may go on although a message is stored on the subject of its reply: its dead letter is
// retried, or the message is an answer of the server that a user has sent there. Such a run is
// listed, and a run that has ended is not, whether its reply is stored or not.
func TestARunThatGoesOnIsListedBesideAReply(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "viewer", Password: "p", Permissions: &natsd.Permissions{
			Publish:   natsd.Subjects{Allow: []string{"$JS.API.STREAM.INFO.*", "$JS.API.DIRECT.GET.KV_aee_state", "$JS.API.DIRECT.GET.KV_aee_state.>", "$JS.API.STREAM.MSG.GET.KV_aee_state"}},
			Subscribe: natsd.Subjects{Allow: []string{"_INBOX.>"}},
		}},
	}})
	js := connect(t, srv, nats.UserInfo("all", "p"))
	apply(t, js, jetstream.Options{Only: states})
	s := jetstream.NewStates(js, subject.Map{})
	m := &model{s: s, runs: map[state.ID]modelRun{}}
	id := func(run string) state.ID { return state.ID{Entity: "agent.x", Run: run} }
	put := func(run string, statuses ...aaif.RunStatus) {
		t.Helper()
		for _, status := range statuses {
			m.put(t, id(run), status, true)
		}
	}
	stray := func(run string) {
		t.Helper()
		subj := "$KV.aee_reply." + jetstream.StateKey(id(run))
		if err := js.Conn().PublishRequest("$JS.API.STREAM.INFO.KV_aee_state", subj, nil); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the answer to be stored", func() bool {
			_, err := jetstream.LastOn(testContext(t), js, "KV_aee_state", subj)
			return err == nil
		})
		rec, err := s.Get(testContext(t), id(run))
		if err != nil {
			t.Fatal(err)
		}
		r := m.runs[id(run)]
		r.last = rec.Revision
		m.runs[id(run)] = r
	}
	put("plain", aaif.RunRunning)
	put("ended", aaif.RunRunning, aaif.RunCompleted)
	m.reply(t, id("ended"))
	put("ended, its worker died before the reply", aaif.RunCompleted)
	put("retried", aaif.RunRunning, aaif.RunFailed)
	m.reply(t, id("retried"))
	put("retried", aaif.RunRunning)
	put("under a stray", aaif.RunRunning)
	stray("under a stray")
	put("over a stray", aaif.RunRunning)
	stray("over a stray")
	put("over a stray", aaif.RunRunning)
	m.bare(t, js, "agent.y", "bare", 3600) // more than is read from the end of the stream

	want := []state.ID{id("over a stray"), id("under a stray"), id("retried"), id("plain")}
	fenced := jetstream.NewStates(js, subject.Map{})
	fenced.Fence()
	for name, reader := range map[string]*jetstream.States{"operator": s, "fenced": fenced, "viewer": jetstream.NewStates(connect(t, srv, nats.UserInfo("viewer", "p")), subject.Map{})} {
		got := latest(t, reader, "agent.x", func(s aaif.RunStatus) bool { return s == aaif.RunRunning })
		if !slices.Equal(got, want) {
			t.Errorf("%s: running are %q, want %q", name, got, want)
		}
		var open []state.ID
		for r, err := range reader.Open(testContext(t), "agent.x") {
			if err != nil {
				t.Fatal(name, err)
			}
			open = append(open, r.ID)
		}
		slices.SortFunc(open, func(a, b state.ID) int { return slices.Index(want, a) - slices.Index(want, b) })
		if !slices.Equal(open, want) {
			t.Errorf("%s: open are %q, want %q", name, open, want)
		}
	}
}

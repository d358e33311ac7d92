package jetstream_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// The reply of a run and its record are one register: a writer that does not know the last
// message of both is refused, whichever of the two it writes.
func TestAReplyAndARecordAreOneRegister(t *testing.T) {
	t.Parallel()
	_, s := openStates(t)
	ctx := testContext(t)
	if !s.Replies(ctx) {
		t.Fatal("the bucket takes no replies")
	}
	id := state.ID{Entity: "agent.x", Run: "r"}
	reply := jetstream.Reply{MsgID: "m", Data: []byte(`{}`), Header: nats.Header{"Aee-Seq": {"1"}}}
	end := func(prev uint64) (uint64, error) {
		return s.Reply(ctx, id, prev, reply, jetstream.Note{Status: aaif.RunCompleted, Work: 1}, &state.End{TaskID: "t"})
	}
	first := putRun(t, s, id, 0, []byte("begun"), jetstream.Note{Status: "running", Work: 1})
	if _, err := end(0); !errors.Is(err, state.ErrChanged) {
		t.Errorf("a reply over no record, where there is one: %v", err)
	}
	second := putRun(t, s, id, first, []byte("ended"), jetstream.Note{Status: "completed", Work: 1})
	replied, err := end(second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, id, second, []byte("late")); !errors.Is(err, state.ErrChanged) {
		t.Errorf("a record over the one before the reply: %v", err)
	}
	rec, err := s.Get(ctx, id)
	if err != nil || string(rec.Data) != "ended" || rec.Revision != replied || !rec.Replied || rec.End != nil {
		t.Errorf("got %+v, %v", rec, err)
	}
	if again, err := s.Put(ctx, id, replied, []byte("again")); err != nil {
		t.Error(err)
	} else if rec, err = s.Get(ctx, id); err != nil || rec.Revision != again || rec.Replied {
		t.Errorf("a run that was tried again: %+v, %v", rec, err)
	}
}

// A run that ends without a document is found wherever runs are: by its id, in lists, in
// its history, by a watch, by its task.
func TestARunOfItsReplyAlone(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx := testContext(t)
	apply(t, js, jetstream.Options{Only: []string{jetstream.StreamReply}})
	id := state.ID{Entity: "agent.x", Run: state.RunID("agent.x", "task-one")}
	seen := make(chan state.Record, 4)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_ = jetstream.WatchRun(watching, s, id, func(r state.Record) { seen <- r })
	}()
	if !s.Absent(ctx, id) {
		t.Error("there is a record before the first")
	}
	const body = `{"v":"1","id":"reply-one","ts":"2026-01-02T03:04:05.678Z","type":"result","from":"agent.x","to":"human.ada","intent":"a.b","corr":"workflow-1","reply_to":"task-one","priority":"normal","payload":{}}`
	reply := jetstream.Reply{Entity: "agent.x", TaskID: "task-one", MsgID: "reply-one", Data: []byte(body), Header: nats.Header{jetstream.HeaderSeq: {"1"}}}
	end := &state.End{TaskID: "task-one", Agent: "6f24d1b9-35c8-4a02-b75d-e3880f61c217", Epoch: 1, Digest: "d", Under: "p", StoredAt: time.Unix(1, 0).UTC(), StartedAt: time.Unix(2, 0).UTC()}
	rev, err := s.Reply(ctx, id, 0, reply, jetstream.Note{Status: aaif.RunCompleted, Work: 7}, end)
	if err != nil {
		t.Fatal(err)
	}
	want := *end
	want.Status, want.Work = aaif.RunCompleted, 7
	check := func(what string, r state.Record, err error) {
		t.Helper()
		if err != nil || r.ID != id || string(r.Data) != body || r.Revision != rev || !r.Replied || r.End == nil || *r.End != want {
			t.Errorf("%s: %+v %+v, %v", what, r, r.End, err)
		}
	}
	got, err := s.Get(ctx, id)
	check("Get", got, err)
	got, err = s.At(ctx, id, rev)
	check("At", got, err)
	history, err := s.History(ctx, id)
	if len(history) != 1 {
		t.Fatalf("the history has %d revisions, %v", len(history), err)
	}
	check("History", history[0], err)
	for what, list := range map[string]iter.Seq2[state.Record, error]{"List": s.List(ctx, "agent.x"), "List of all": s.List(ctx, "")} {
		n := 0
		for r, err := range list {
			n++
			check(what, r, err)
		}
		if n != 1 {
			t.Errorf("%s: %d runs", what, n)
		}
	}
	for r, err := range s.Open(ctx, "agent.x") {
		t.Errorf("an ended run is open: %+v, %v", r, err)
	}
	fenced := jetstream.NewStates(js, subject.Map{})
	fenced.Fence()
	for r, err := range fenced.List(ctx, "agent.x") {
		check("List by name", r, err)
	}
	for r, err := range fenced.Open(ctx, "agent.x") {
		t.Errorf("by name, an ended run is open: %+v, %v", r, err)
	}
	select {
	case r := <-seen:
		check("WatchRun", r, nil)
	case <-ctx.Done():
		t.Fatal("the watch does not report it")
	}
	if s.Absent(ctx, id) {
		t.Error("the run is absent")
	}
	replies := jetstream.NewReplies(js, subject.Map{})
	if msg, err := replies.Last(ctx, "agent.x", "task-one"); err != nil || string(msg.Data) != body {
		t.Errorf("Last: %s, %v", msg.Data, err)
	}
	n := 0
	for msg, err := range replies.Read(ctx, "agent.x", "task-one", 0) {
		if n++; err != nil || string(msg.Data) != body {
			t.Errorf("Read: %s, %v", msg.Data, err)
		}
		for msg, err := range replies.Read(ctx, "agent.x", "task-one", msg.Seq) {
			t.Errorf("Read, after it: %s, %v", msg.Data, err)
		}
	}
	if n != 1 {
		t.Errorf("%d replies", n)
	}
	if found, err := replies.Find(ctx, "task-one"); err != nil || !slices.Equal(found, []string{"agent.x"}) {
		t.Errorf("Find: %q, %v", found, err)
	}
	c, err := state.Codec{}.Read(got)
	if err != nil || c.ID() != id || c.Doc.Status != aaif.RunCompleted || string(c.Mesh.Reply) != body || c.Mesh.Epoch != 1 {
		t.Fatalf("the checkpoint: %+v, %v", c, err)
	}
	if task, err := c.ReadTask(); err != nil || task.ID != "task-one" || task.From != "human.ada" || task.ReplyTo != "p" || task.Corr != "workflow-1" {
		t.Errorf("the task: %+v, %v", task, err)
	}
	if _, err := (state.Codec{}).Marshal(c); err != nil {
		t.Errorf("its document: %v", err)
	}
	if err := s.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, id); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	putRun(t, s, id, 0, []byte("again"), jetstream.Note{})
}

// A server's answer on the subject of a reply is none, and hides none.
func TestAStrayOnTheSubjectOfAReply(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx := testContext(t)
	strayOn := func(subj string) {
		t.Helper()
		if err := js.Conn().PublishRequest("$JS.API.STREAM.INFO.KV_aee_state", subj, nil); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the answer to be stored", func() bool {
			m, err := jetstream.LastOn(ctx, js, "KV_aee_state", subj)
			return err == nil && m.Header.Get("Aee-Status") == ""
		})
	}
	stray := func(run string) {
		t.Helper()
		strayOn("$KV.aee_reply.agent.x." + run)
	}
	running := state.ID{Entity: "agent.x", Run: "running"}
	first := putRun(t, s, running, 0, []byte("one"), jetstream.Note{Status: "running"})
	stray("running")
	rec, err := s.Get(ctx, running)
	if err != nil || string(rec.Data) != "one" || rec.Revision <= first || rec.Replied {
		t.Fatalf("a run with a stray: %+v, %v", rec, err)
	}
	putRun(t, s, running, rec.Revision, []byte("two"), jetstream.Note{Status: "running"})

	over := state.ID{Entity: "agent.x", Run: "over"}
	putRun(t, s, over, 0, []byte("over"), jetstream.Note{Status: "completed"})
	stray("over")
	if rec, err := s.Get(ctx, over); err != nil || string(rec.Data) != "over" || rec.Replied {
		t.Errorf("an ended run with a stray and no reply: %+v, %v", rec, err)
	}

	doc := state.ID{Entity: "agent.x", Run: "doc"}
	rev := putRun(t, s, doc, 0, []byte("doc"), jetstream.Note{Status: "completed"})
	if _, err := s.Reply(ctx, doc, rev, jetstream.Reply{MsgID: "doc", Data: []byte(`{}`)}, jetstream.Note{Status: "completed"}, nil); err != nil {
		t.Fatal(err)
	}
	strayOn("$KV.aee_state.agent.x.doc")
	if rec, err := s.Get(ctx, doc); err != nil || string(rec.Data) != "doc" {
		t.Errorf("an ended run with a stray on its document: %+v, %v", rec, err)
	}

	none := state.ID{Entity: "agent.x", Run: "none"}
	stray("none")
	if _, err := s.Get(ctx, none); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a run that is a stray alone: %v", err)
	}
	putRun(t, s, none, 0, []byte("first"), jetstream.Note{})

	ended := state.ID{Entity: "agent.x", Run: state.RunID("agent.x", "t")}
	reply := jetstream.Reply{MsgID: "m", Data: []byte(`{"v":"1"}`)}
	if _, err := s.Reply(ctx, ended, 0, reply, jetstream.Note{Status: "completed"}, &state.End{TaskID: "t"}); err != nil {
		t.Fatal(err)
	}
	stray(ended.Run)
	fenced := jetstream.NewStates(js, subject.Map{})
	fenced.Fence()
	if _, err := fenced.Get(ctx, ended); !errors.Is(err, jetstream.ErrUnavailable) {
		t.Errorf("what a stray covers, read by one who may not restore it: %v", err)
	}
	if rec, err := s.Get(ctx, ended); err != nil || string(rec.Data) != `{"v":"1"}` || rec.End == nil || !rec.Replied {
		t.Errorf("an ended run with a stray: %+v, %v", rec, err)
	}
	if rec, err := fenced.Get(ctx, ended); err != nil || rec.End == nil {
		t.Errorf("restored: %+v, %v", rec, err)
	}
}

// A sweep takes the reply away with the record, and a run that is a reply alone.
func TestASweepTakesRepliesAway(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx := testContext(t)
	apply(t, js, jetstream.Options{Only: []string{jetstream.StreamWork}})
	note := jetstream.Note{Status: aaif.RunCompleted, Work: 1}
	full, bare := state.ID{Entity: "agent.x", Run: "full"}, state.ID{Entity: "agent.x", Run: "bare"}
	reply := func(id state.ID, prev uint64, end *state.End) {
		t.Helper()
		if _, err := s.Reply(ctx, id, prev, jetstream.Reply{MsgID: id.Run, Data: []byte(`{}`)}, note, end); err != nil {
			t.Fatal(err)
		}
	}
	reply(full, putRun(t, s, full, 0, []byte("ended"), note), nil)
	reply(bare, 0, &state.End{TaskID: "t"})
	swept, err := s.Sweep(ctx, jetstream.SweepOptions{From: 1e-12, To: 1e-13, Keep: time.Nanosecond})
	if err != nil || swept.Runs != 2 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	stream, err := js.Stream(ctx, "KV_aee_state")
	if err != nil || stream.CachedInfo().State.Msgs != 0 {
		t.Errorf("%d messages are left, %v", stream.CachedInfo().State.Msgs, err)
	}
}

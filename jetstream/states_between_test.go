package jetstream_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// between returns JetStream whose requests and messages are forwarded to js. Before one with a
// subject that begins with one prefix, it calls f, once: what f does is done between two requests
// of the caller.
func between(t testing.TB, js natsjs.JetStream, prefix string, f func()) natsjs.JetStream {
	t.Helper()
	var done atomic.Bool
	sub, err := js.Conn().Subscribe("between.>", func(m *nats.Msg) {
		to := strings.TrimPrefix(m.Subject, "between.")
		if !strings.HasPrefix(to, "$") {
			to = "$JS.API." + to
		}
		if strings.HasPrefix(to, prefix) && !done.Swap(true) {
			f()
		}
		if err := js.Conn().PublishMsg(&nats.Msg{Subject: to, Reply: m.Reply, Header: m.Header, Data: m.Data}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sub.Unsubscribe()
		if !done.Load() {
			t.Errorf("nothing was sent to %s", prefix)
		}
	})
	through, err := natsjs.NewWithAPIPrefix(js.Conn(), "between")
	if err != nil {
		t.Fatal(err)
	}
	return through
}

// A deletion takes away what it has read. A revision that is written meanwhile is read, too,
// before it goes: otherwise its object would stay.
func TestADeletionReadsWhatItDeletes(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, id := testContext(t), state.ID{Entity: "agent.x", Run: "r"}
	first := putRun(t, s, id, 0, []byte("x"), jetstream.Note{})
	through := between(t, js, "$JS.API.STREAM.PURGE.", func() {
		putRun(t, s, id, first, make([]byte, jetstream.MaxInline+1), jetstream.Note{})
	})
	if err := jetstream.NewStates(through, subject.Map{}).Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, id); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("afterwards: %v", err)
	}
	objects, err := js.Stream(ctx, "OBJ_"+jetstream.ObjectsState)
	if err != nil {
		t.Fatal(err)
	}
	if n := objects.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d chunks of objects stay", n)
	}
}

// A sweep deletes a run as it has read it: what is written meanwhile, by a retry for one, stays.
func TestASweepLeavesWhatIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, id := testContext(t), state.ID{Entity: "agent.x", Run: "r"}
	first := putRun(t, s, id, 0, []byte("ended"), jetstream.Note{Status: "completed"})
	var next uint64
	through := between(t, js, "$JS.API.STREAM.PURGE.", func() { next = putRun(t, s, id, first, []byte("again"), jetstream.Note{}) })
	if err := jetstream.PurgeRun(ctx, jetstream.NewStates(through, subject.Map{}), id, first); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Get(ctx, id); err != nil || r.Revision != next || string(r.Data) != "again" {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}

// stray has the server answer on the subject of a run's record, and waits until that is stored.
func stray(t testing.TB, js natsjs.JetStream, id state.ID) uint64 {
	t.Helper()
	return strayOn(t, js, "KV_aee_state", "$KV.aee_state."+id.Entity+"."+id.Run)
}

// strayOn is stray for a subject of a stream.
func strayOn(t testing.TB, js natsjs.JetStream, stream, subj string) uint64 {
	t.Helper()
	before, _ := jetstream.LastOn(testContext(t), js, stream, subj)
	if err := js.Conn().PublishRequest("$JS.API.STREAM.INFO.KV_aee_state", subj, nil); err != nil {
		t.Fatal(err)
	}
	var last jetstream.Message
	waitFor(t, "the answer to be stored", func() bool {
		var err error
		last, err = jetstream.LastOn(testContext(t), js, stream, subj)
		return err == nil && last.Seq > before.Seq
	})
	return last.Seq
}

// Who restores a record that a stray covers takes what is written meanwhile for the record, and
// writes nothing over it.
func TestWhoRestoresARecordLeavesALaterOne(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, id := testContext(t), state.ID{Entity: "agent.x", Run: "r"}
	putRun(t, s, id, 0, []byte("one"), jetstream.Note{})
	covers := stray(t, js, id)
	var next uint64
	through := between(t, js, "$KV.", func() { next = putRun(t, s, id, covers, []byte("two"), jetstream.Note{}) })
	r, err := jetstream.NewStates(through, subject.Map{}).Get(ctx, id)
	if err != nil || string(r.Data) != "two" || r.Revision != next {
		t.Errorf("got %q at %d, %v; want two at %d", r.Data, r.Revision, err, next)
	}
	if r, err = s.Get(ctx, id); err != nil || string(r.Data) != "two" || r.Revision != next {
		t.Errorf("stored is %q at %d, %v; want two at %d", r.Data, r.Revision, err, next)
	}
}

// A second stray that comes while the first one is covered is covered next.
func TestARecordIsRestoredOverASecondStray(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, id := testContext(t), state.ID{Entity: "agent.x", Run: "r"}
	putRun(t, s, id, 0, []byte("one"), jetstream.Note{})
	stray(t, js, id)
	through := between(t, js, "$KV.", func() { stray(t, js, id) })
	if r, err := jetstream.NewStates(through, subject.Map{}).Get(ctx, id); err != nil || string(r.Data) != "one" {
		t.Errorf("got %q, %v", r.Data, err)
	}
}

// Who restores a record reads it from any replica. One that lags behind has no record yet: then the
// run must not be deleted.
func TestARecordIsRestoredThoughAReplicaLagsBehind(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, id := testContext(t), state.ID{Entity: "agent.x", Run: "r"}
	putRun(t, s, id, 0, []byte("one"), jetstream.Note{})
	stray(t, js, id)
	var scans atomic.Int32
	sub, err := js.Conn().Subscribe("lagging.>", func(m *nats.Msg) {
		msg := &nats.Msg{Subject: strings.TrimPrefix(m.Subject, "lagging."), Reply: m.Reply, Header: m.Header, Data: m.Data}
		if !strings.HasPrefix(msg.Subject, "$") {
			msg.Subject = "$JS.API." + msg.Subject
		}
		if msg.Subject == "$JS.API.DIRECT.GET.KV_aee_state" && scans.Add(1) == 1 {
			msg = &nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}}
		}
		if err := js.Conn().PublishMsg(msg); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	through, err := natsjs.NewWithAPIPrefix(js.Conn(), "lagging")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := jetstream.NewStates(through, subject.Map{}).Get(ctx, id); err != nil || string(r.Data) != "one" || scans.Load() < 2 {
		t.Errorf("got %q, %v, after %d scans", r.Data, err, scans.Load())
	}
	if r, err := s.Get(ctx, id); err != nil || string(r.Data) != "one" {
		t.Errorf("stored is %q, %v", r.Data, err)
	}
}

// A stray is no revision of a run, before and after it was replaced by the record.
func TestAStrayIsNoRevision(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, id := testContext(t), state.ID{Entity: "agent.x", Run: "r"}
	first := putRun(t, s, id, 0, []byte("one"), jetstream.Note{})
	covers := stray(t, js, id)
	if r, err := s.At(ctx, id, covers); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("before: %+v, %v", r, err)
	}
	restored, err := s.Get(ctx, id)
	if err != nil || restored.Revision <= covers {
		t.Fatalf("restored: %+v, %v", restored, err)
	}
	for rev, want := range map[uint64]error{first: nil, covers: state.ErrNotFound, restored.Revision: nil} {
		if r, err := s.At(ctx, id, rev); !errors.Is(err, want) || err == nil && r.Revision != rev {
			t.Errorf("at %d: %+v, %v; want %v", rev, r, err, want)
		}
	}
}

// The reply of an ended run is its newest revision, in its history too.
func TestTheHistoryEndsWithTheReply(t *testing.T) {
	t.Parallel()
	_, s := openStates(t)
	ctx, id := testContext(t), state.ID{Entity: "agent.x", Run: "r"}
	first := putRun(t, s, id, 0, []byte("begun"), jetstream.Note{Status: "running"})
	second := putRun(t, s, id, first, []byte("ended"), jetstream.Note{Status: "completed"})
	replied, err := s.Reply(ctx, id, second, jetstream.Reply{MsgID: "m", Data: []byte(`{}`)}, jetstream.Note{Status: "completed"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.History(ctx, id)
	if err != nil || len(h) != 2 || h[0].Revision != first || h[0].Replied || string(h[1].Data) != "ended" || h[1].Revision != replied || !h[1].Replied {
		t.Errorf("%+v, %v", h, err)
	}
}

// A write that is not acknowledged may be stored, and its error says so. Stored
// again it is refused, as it is a swap.
func TestAWriteThatIsNotAcknowledgedIsUncertain(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, id := testContext(t), state.ID{Entity: "agent.x", Run: "r"}
	var lost *nats.Msg
	deaf := jetstream.NewStates(keeps{js, &lost}, subject.Map{})
	reply, note, end := jetstream.Reply{MsgID: "m", Data: []byte(`{}`)}, jetstream.Note{Status: aaif.RunCompleted}, &state.End{TaskID: "t"}
	if _, err := deaf.Put(ctx, id, 0, []byte("x")); !errors.Is(err, state.ErrUncertain) {
		t.Errorf("put: %v", err)
	}
	if _, err := deaf.Reply(ctx, id, 0, reply, note, end); !errors.Is(err, state.ErrUncertain) {
		t.Errorf("reply: %v", err)
	}
	if _, err := js.PublishMsg(ctx, lost); err != nil { // it was stored
		t.Fatal(err)
	}
	if again, err := s.Reply(ctx, id, 0, reply, note, end); !errors.Is(err, state.ErrChanged) {
		t.Errorf("again: %d, %v", again, err)
	}
	last, err := jetstream.LastOn(ctx, js, "KV_aee_state", "$KV.aee_reply.agent.x.r")
	if err != nil || last.Header.Get(natsjs.MsgIDHeader) != "m" { // by which followers know that it was announced
		t.Errorf("stored: %+v, %v", last, err)
	}
}

// The id of a run's reply is known once the reply is announced. Who uses it first for a record of
// another entity does not keep the reply out.
func TestASquattedMessageIDKeepsNoReplyOfARunOut(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, id := testContext(t), state.ID{Entity: "agent.b", Run: "r"}
	squat(t, js, "$KV.aee_state.agent.a.x", "reply-1", "squatter")
	rev, err := s.Reply(ctx, id, 0, jetstream.Reply{MsgID: "reply-1", Data: []byte(`{}`)}, jetstream.Note{Status: aaif.RunCompleted}, &state.End{TaskID: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Get(ctx, id); err != nil || r.Revision != rev || r.End == nil || !r.Replied {
		t.Errorf("%+v, %v", r, err)
	}
}

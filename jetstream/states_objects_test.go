package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// A server with a small max_payload takes a large document in smaller parts.
func TestALargeDocumentFitsASmallMaxPayload(t *testing.T) {
	t.Parallel()
	js := connect(t, natstest.Run(t, natsd.Config{JetStream: true, MaxPayload: 64 << 10}))
	apply(t, js, jetstream.Options{Only: states})
	ctx, s, id := testContext(t), jetstream.NewStates(js, subject.Map{}), state.ID{Entity: "agent.x", Run: "r"}
	doc := bytes.Repeat([]byte("0123456789abcdef"), jetstream.MaxInline/16+1)
	if _, err := s.Put(ctx, id, 0, doc); err != nil {
		t.Fatal(err)
	}
	if rec, err := s.Get(ctx, id); err != nil || !bytes.Equal(rec.Data, doc) {
		t.Errorf("read: %d bytes of %d, %v", len(rec.Data), len(doc), err)
	}
}

// A replica that lags behind does not have the record whose document is in the object store.
func TestASweepIsNotDeceivedByAReplicaThatLagsBehind(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	id := state.ID{Entity: "agent.x", Run: "r"}
	putRun(t, s, id, 0, make([]byte, jetstream.MaxInline+1), jetstream.Note{})
	stream, err := js.Stream(testContext(t), "KV_aee_state")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowDirect = false // the answers below are those of the replica
	if _, err := js.UpdateStream(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
	lags := func(m *nats.Msg) { _ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}}}) }
	for _, subj := range []string{"$JS.API.DIRECT.GET.KV_aee_state", "$JS.API.DIRECT.GET.KV_aee_state.>"} {
		sub, err := js.Conn().Subscribe(subj, lags)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sub.Unsubscribe() })
	}
	jetstream.Replicated(s)
	ctx, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	if swept, err := s.Sweep(ctx, atOnce); err == nil || swept.Objects != 0 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	if names := objectNames(t, js); len(names) != 1 {
		t.Errorf("left are %q", names)
	}
}

// Two of three reads of a document's chunks are answered by replicas that lag behind.
func TestALargeDocumentIsReadAlthoughReplicasLagBehind(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	id, doc := state.ID{Entity: "agent.x", Run: "r"}, bytes.Repeat([]byte("0123456789abcdef"), (1<<20)/16)
	putRun(t, s, id, 0, doc, jetstream.Note{})
	natstest.Lag(t, js.Conn(), "OBJ_aee_state_objects", func(read int) bool { return read%3 != 0 })
	if r, err := s.Get(testContext(t), id); err != nil || !bytes.Equal(r.Data, doc) {
		t.Errorf("%d bytes of %d, %v", len(r.Data), len(doc), err)
	}
}

// Only the leader knows that a document is gone: while no replica has it, the error is a temporary
// one, and a worker asks again.
func TestADocumentThatReplicasLackIsNotGone(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	id := state.ID{Entity: "agent.x", Run: "r"}
	putRun(t, s, id, 0, make([]byte, jetstream.MaxInline+1), jetstream.Note{})
	var there atomic.Bool
	natstest.Lag(t, js.Conn(), "OBJ_aee_state_objects", func(int) bool { return !there.Load() })
	if _, err := s.Get(testContext(t), id); !jetstream.Away(err) {
		t.Errorf("while the replicas lag behind: %v", err)
	}
	there.Store(true)
	if _, err := s.Get(testContext(t), id); err != nil {
		t.Error(err)
	}
	purgeAll(t, js, "OBJ_aee_state_objects")
	if _, err := s.Get(testContext(t), id); err == nil || jetstream.Away(err) {
		t.Errorf("without the document: %v", err)
	}
}

// A store that was restored from copies, those of the records before those of the documents, may lack
// documents of old revisions.
func TestTheHistoryHasRevisionsWhoseDocumentIsGone(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	id, rev, revisions := state.ID{Entity: "agent.x", Run: "r"}, uint64(0), []uint64{}
	doc := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, jetstream.MaxInline+1) }
	for i := range 3 {
		rev = putRun(t, s, id, rev, doc(i), jetstream.Note{})
		revisions = append(revisions, rev)
	}
	lose := func(rev uint64) {
		records, err := js.Stream(testContext(t), "KV_aee_state")
		if err != nil {
			t.Fatal(err)
		}
		m, err := records.GetMsg(testContext(t), rev)
		if err != nil {
			t.Fatal(err)
		}
		object, _ := jetstream.ObjectOf(m.Header)
		objects, err := js.Stream(testContext(t), "OBJ_aee_state_objects")
		if err == nil {
			err = objects.Purge(testContext(t), natsjs.WithPurgeSubject("$O.aee_state_objects.C."+strings.ReplaceAll(object.Name, "/", ".")+".*"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	lose(revisions[0])
	history, err := s.History(testContext(t), id)
	if err != nil || len(history) != 3 || !bytes.Equal(history[1].Data, doc(1)) || !bytes.Equal(history[2].Data, doc(2)) {
		t.Fatalf("%d revisions, %v", len(history), err)
	}
	if _, err := (state.Codec{}).DecodeRecord(history[0]); err == nil || history[0].Revision != revisions[0] {
		t.Errorf("the first is of revision %d and has %d bytes, %v", history[0].Revision, len(history[0].Data), err)
	}
	lose(revisions[2])
	if history, err := s.History(testContext(t), id); err == nil {
		t.Errorf("without the newest document: %d revisions", len(history))
	}
}

func purgeAll(t *testing.T, js natsjs.JetStream, name string) {
	t.Helper()
	stream, err := js.Stream(testContext(t), name)
	if err == nil {
		err = stream.Purge(testContext(t))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A record that waits in the buffer of a lost connection is stored when that is back. By then a sweep
// may have deleted its document.
func TestARecordOfALargeDocumentDoesNotWaitForAConnection(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv, nats.ReconnectWait(time.Hour), nats.ReconnectJitter(0, 0))
	apply(t, js, jetstream.Options{Only: states})
	id, doc := state.ID{Entity: "agent.x", Run: "r"}, make([]byte, jetstream.MaxInline+1)
	fails := failsOnce{js, new(bool)}
	s := jetstream.NewStates(fails, subject.Map{})
	if _, err := s.Put(testContext(t), id, 0, doc); !errors.Is(err, state.ErrUncertain) {
		t.Fatalf("the first try: %v", err)
	}
	srv = natstest.Restart(t, srv)
	waitFor(t, "the connection to be lost", func() bool { return !js.Conn().IsConnected() })
	if _, err := s.Put(brief(t), id, 0, doc); err == nil {
		t.Fatal("stored without a connection")
	}
	other := connect(t, srv)
	if swept, err := jetstream.NewStates(other, subject.Map{}).Sweep(testContext(t), atOnce); err != nil || swept.Objects != 1 {
		t.Fatalf("swept %+v, %v", swept, err)
	}
	if err := js.Conn().ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the connection", func() bool { return js.Conn().IsConnected() && js.Conn().Flush() == nil })
	if r, err := jetstream.NewStates(other, subject.Map{}).Get(testContext(t), id); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("%d bytes, %v", len(r.Data), err)
	}
}

// failsOnce does not send the first record.
type failsOnce struct {
	natsjs.JetStream
	failed *bool
}

func (f failsOnce) PublishMsg(ctx context.Context, m *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	if strings.HasPrefix(m.Subject, "$KV.") && !*f.failed {
		*f.failed = true
		return nil, context.DeadlineExceeded
	}
	return f.JetStream.PublishMsg(ctx, m, opts...)
}

// A worker stands still after it has stored a document, for so long that a sweep takes that for one
// of a crashed writer. Then it stores the record.
func TestARecordThatIsStoredLateHasItsDocument(t *testing.T) {
	t.Parallel()
	js, other := openStates(t)
	id, doc := state.ID{Entity: "agent.x", Run: "r"}, make([]byte, jetstream.MaxInline+1)
	const age = 300 * time.Millisecond
	s := jetstream.UploadsFor(jetstream.NewStates(stopsBefore{js, func() {
		pause.For(t.Context(), age)
		if swept, err := other.Sweep(testContext(t), atOnce); err != nil || swept.Objects < 1 { // more if the machine was too slow at first
			t.Errorf("swept %+v, %v", swept, err)
		}
	}}, subject.Map{}), age)
	rev, err := putInTime(t, s, id, doc)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := other.Get(testContext(t), id); err != nil || r.Revision != rev || !bytes.Equal(r.Data, doc) {
		t.Errorf("revision %d of %d with %d bytes, %v", r.Revision, rev, len(r.Data), err)
	}
}

// putInTime puts a document until it was uploaded in time: a slow machine may take longer.
func putInTime(t *testing.T, s *jetstream.States, id state.ID, doc []byte) (rev uint64, err error) {
	waitFor(t, "the document to be stored", func() bool {
		rev, err = s.Put(testContext(t), id, 0, doc)
		return !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, state.ErrUncertain)
	})
	return rev, err
}

// stopsBefore calls a function before it stores a record.
type stopsBefore struct {
	natsjs.JetStream
	stop func()
}

func (s stopsBefore) PublishMsg(ctx context.Context, m *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	if strings.HasPrefix(m.Subject, "$KV.") {
		s.stop()
	}
	return s.JetStream.PublishMsg(ctx, m, opts...)
}

// The record of a worker that stood still is stored, whether the worker hears of it or not, and it cannot
// store the document again for now. It does so when it tries the record again.
func TestARecordThatIsStoredLateGetsItsDocumentByTheNextTry(t *testing.T) {
	t.Parallel()
	for _, hears := range []bool{true, false} {
		t.Run(fmt.Sprintf("hears %t", hears), func(t *testing.T) {
			t.Parallel()
			js, other := openStates(t)
			id, doc := state.ID{Entity: "agent.x", Run: "r"}, make([]byte, jetstream.MaxInline+1)
			const age = 300 * time.Millisecond
			s := jetstream.UploadsFor(jetstream.NewStates(&failsAfter{JetStream: js, deaf: !hears, record: func() {
				pause.For(t.Context(), age)
				if swept, err := other.Sweep(testContext(t), atOnce); err != nil || swept.Objects < 1 { // more if the machine was too slow at first
					t.Errorf("swept %+v, %v", swept, err)
				}
			}}, subject.Map{}), age)
			if _, err := putInTime(t, s, id, doc); !errors.Is(err, state.ErrUncertain) {
				t.Fatalf("the first try: %v", err)
			}
			waitFor(t, "the next try to find the record", func() bool { // a slow machine may take longer than age
				_, err := s.Put(testContext(t), id, 0, doc)
				return errors.Is(err, state.ErrChanged)
			})
			if r, err := other.Get(testContext(t), id); err != nil || !bytes.Equal(r.Data, doc) {
				t.Errorf("%d bytes, %v", len(r.Data), err)
			}
		})
	}
}

// failsAfter cannot store the next part of an object after its first record.
type failsAfter struct {
	natsjs.JetStream
	record func() // is called before the first record; nil: it was stored
	deaf   bool   // it does not hear that the record is stored
	fails  bool
}

func (f *failsAfter) PublishMsg(ctx context.Context, m *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	lost := false
	switch {
	case strings.HasPrefix(m.Subject, "$KV.") && f.record != nil:
		f.record()
		f.record, f.fails, lost = nil, true, f.deaf
	case strings.HasPrefix(m.Subject, "$O.") && f.fails:
		f.fails = false
		return nil, context.DeadlineExceeded
	}
	ack, err := f.JetStream.PublishMsg(ctx, m, opts...)
	if lost && err == nil {
		return nil, context.DeadlineExceeded
	}
	return ack, err
}

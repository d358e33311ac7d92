package jetstream_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// A record with a time to live expires, and a later one without it may stay.
func TestARecordIsKeptForItsLife(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js := start(t)
	apply(t, js, jetstream.Options{})
	s := jetstream.NewHandoffs(js, subject.Map{})
	gone, stays := state.ID{Entity: "service.handoff", Run: "gone"}, state.ID{Entity: "service.handoff", Run: "stays"}
	revisions := map[state.ID]uint64{}
	for _, id := range []state.ID{gone, stays} {
		var err error
		if revisions[id], err = s.PutFor(ctx, id, 0, []byte("{}"), time.Second); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := s.Get(ctx, stays)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, stays, rec.Revision, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, err := s.Get(ctx, gone); errors.Is(err, state.ErrNotFound) {
			break
		} else if err != nil || time.Now().After(deadline) {
			t.Fatalf("it is still there: %v", err)
		}
		tick := time.NewTimer(20 * time.Millisecond)
		<-tick.C
	}
	if _, err := s.Get(ctx, stays); err != nil {
		t.Errorf("the one that was written again: %v", err)
	}
	if _, err := s.Put(ctx, gone, revisions[gone], []byte("{}")); !errors.Is(err, state.ErrChanged) {
		t.Errorf("over the one that expired: %v", err)
	}
	if _, err := s.PutFor(ctx, gone, 0, []byte("{}"), time.Hour); err != nil {
		t.Errorf("anew: %v", err)
	}
}

// Finding 18 of the security review: a user who may write to the bucket stores an old
// checkpoint again. A seal covers the sequence that the write was compared with, so the
// checkpoint is not taken for a new one, whatever headers it has.
func TestAnOldSealedCheckpointIsFoundOut(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js := start(t)
	apply(t, js, jetstream.Options{})
	s := jetstream.NewStates(js, subject.Map{})
	ring, err := state.NewKeyring(state.Key{Secret: make([]byte, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	k := state.Codec{Seal: ring}
	c := state.New("agent.x", "01J00000000000000000000000", "")
	var prev uint64
	var old state.Record
	for i := range 4 {
		c.Doc.Iteration = aaif.Int(int64(i))
		if i == 2 { // stored as an object
			c.Doc.Conversation = []aaif.Message{{Role: aaif.MessageUser, Content: strings.Repeat("x", 2*jetstream.MaxInline)}}
		}
		data, err := k.Over(prev).Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if prev, err = s.Put(ctx, c.ID(), prev, data); err != nil {
			t.Fatal(err)
		}
		rec, err := s.Get(ctx, c.ID())
		if err == nil {
			_, err = k.Read(rec)
		}
		if err != nil {
			t.Fatalf("checkpoint %d: %v", i, err)
		}
		if i == 1 {
			old = rec
		}
	}
	const seq, subj = natsjs.ExpectedLastSubjSeqHeader, natsjs.ExpectedLastSubjSeqSubjHeader
	was := strconv.FormatUint(old.Over, 10)
	key := "$KV.aee_state.agent.x." + c.Doc.RunID
	for name, header := range map[string]nats.Header{
		"without a header":             {},
		"with the sequence of now":     {seq: {"NOW"}},
		"with the sequence of then":    {seq: {was}},
		"with both":                    {seq: {was, "NOW"}},
		"in another spelling":          {"nats-expected-last-subject-sequence": {was}},
		"about another subject":        {seq: {was}, subj: {"$KV.aee_state.agent.x.nothing"}},
		"about nothing":                {seq: {"0"}, subj: {"$KV.aee_state.agent.x.nothing"}},
		"about all subjects":           {seq: {was}, subj: {"$KV.aee_state.>"}},
		"with all before it forgotten": {seq: {was}, natsjs.MsgRollup: {natsjs.MsgRollupSubject}},
		"with no number":               {seq: {""}},
	} {
		rec, err := s.Get(ctx, c.ID())
		if err != nil {
			t.Fatal(err)
		}
		h := nats.Header{}
		for name, values := range header {
			for _, v := range values {
				h[name] = append(h[name], strings.ReplaceAll(v, "NOW", strconv.FormatUint(rec.Revision, 10)))
			}
		}
		ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: key, Header: h, Data: old.Data})
		if err != nil {
			continue // refused by the server
		}
		rec, err = s.Get(ctx, c.ID())
		if err != nil || rec.Revision != ack.Sequence {
			t.Fatalf("%s: %d, %v", name, rec.Revision, err)
		}
		if _, err := k.Read(rec); !errors.Is(err, state.ErrReplaced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A comparison with the last sequence of another subject proves nothing about this
	// one.
	other, err := s.Put(ctx, state.ID{Entity: "agent.x", Run: "other"}, 0, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := k.Over(other).Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: key, Data: data, Header: nats.Header{seq: {strconv.FormatUint(other, 10)}, subj: {"$KV.aee_state.agent.x.other"}}}); err != nil {
		t.Fatal(err)
	}
	if rec, err := s.Get(ctx, c.ID()); err != nil {
		t.Error(err)
	} else if _, err := k.Read(rec); !errors.Is(err, state.ErrReplaced) {
		t.Errorf("held to another subject: %v", err)
	}
	// Nor after all earlier revisions were purged.
	stream, err := js.Stream(ctx, "KV_aee_state")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx, natsjs.WithPurgeSubject(key)); err != nil { // the bucket allows no roll-ups
		t.Fatal(err)
	}
	rev, err := s.Put(ctx, c.ID(), 0, old.Data)
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := s.At(ctx, c.ID(), rev); err != nil {
		t.Error(err)
	} else if _, err := k.Read(rec); !errors.Is(err, state.ErrReplaced) {
		t.Errorf("after a deletion: %v", err)
	}
}

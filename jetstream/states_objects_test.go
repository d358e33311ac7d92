package jetstream_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

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

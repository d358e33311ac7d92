package jetstream_test

import (
	"bytes"
	"testing"

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

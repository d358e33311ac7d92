package jetstream_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A stream that acknowledges answers requests on its subjects, racing with the responder.
// AEE_BUS and AEE_HUMAN do not: a requester receives only the responder's answer, and the
// message is stored all the same.
func TestNoPubAckReachesARequester(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	nc := natstest.Conn(t, srv)
	responder := natstest.Conn(t, srv)
	for _, subj := range []string{"bus.ops", "bus.mesh.task"} {
		if _, err := responder.Subscribe(subj, func(m *nats.Msg) { _ = m.Respond([]byte("from the responder")) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := responder.Flush(); err != nil {
		t.Fatal(err)
	}
	const requests = 50
	inbox, err := nc.SubscribeSync("answers")
	if err != nil {
		t.Fatal(err)
	}
	for range requests {
		for _, subj := range []string{"bus.ops", "bus.mesh.task"} {
			if err := nc.PublishRequest(subj, "answers", []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 * requests {
		msg, err := inbox.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		if string(msg.Data) != "from the responder" {
			t.Fatalf("a requester heard %q", msg.Data)
		}
	}
	// Everything is stored by now; other answers of the server would have arrived before
	// this one.
	waitFor(t, "AEE_BUS to have stored the requests", func() bool {
		stream, err := js.Stream(ctx, "AEE_BUS")
		return err == nil && stream.CachedInfo().State.Msgs == 2*requests
	})
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := inbox.Pending(); n != 0 {
		msg, _ := inbox.NextMsg(time.Second)
		t.Errorf("%d more answers, the first %q", n, msg.Data)
	}

	// The control: without no_ack the requester gets the stream's answer.
	if _, err := js.CreateStream(ctx, natsjs.StreamConfig{Name: "ACKS", Subjects: []string{"loud"}}); err != nil {
		t.Fatal(err)
	}
	msg, err := nc.Request("loud", nil, patience)
	if err != nil || !strings.Contains(string(msg.Data), `"stream":"ACKS"`) {
		t.Errorf("without no_ack: %v, %v", msg, err)
	}
}

// waitFor polls until ok returns true, with a deadline.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

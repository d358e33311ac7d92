package mesh

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Finding 10 of the security review: CBOR waits for a goroutine that checks envelopes.
// The subscriptions' goroutines do not decode it, so it holds up no other message.
func TestCBORIsDecodedAside(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	conn := natstest.Conn(t, srv)
	node, err := New(conn, Config{Heartbeat: -1})
	if err != nil {
		t.Fatal(err)
	}
	h, err := node.newHost(Agent{Entity: "agent.a", Queue: 64, Handler: HandlerFunc(func(_ context.Context, t *Task) (json.RawMessage, error) {
		return t.Envelope.Payload, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is taken from the queue, and one check and one control message last until the
	// test ends them.
	const maxWait = 64
	h.staff.Do(func() {})
	checks, controls := make(chan struct{}), make(chan struct{})
	h.verify, h.control = sched.NewCrew(1, maxWait), sched.NewCrew(1, maxWait)
	h.verify.Go(func() { <-checks })
	h.control.Go(func() { <-controls })
	answers := make(chan *nats.Msg, 2*maxWait)
	inbox := conn.NewInbox()
	if _, err := conn.ChanSubscribe(inbox, answers); err != nil {
		t.Fatal(err)
	}
	message := func(kind string, e *envelope.Envelope) *nats.Msg {
		data, err := e.AppendJSON(nil)
		if kind == envelope.ContentCBOR {
			data, err = e.AppendCBOR(nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return &nats.Msg{Subject: "agent.a", Reply: inbox, Data: data, Header: nats.Header{"Content-Type": {kind}}}
	}
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "test.it", nil)
	for _, kind := range []string{envelope.ContentJSON, envelope.ContentCBOR, "application/vnd.aee+cbor; charset=x"} {
		e := *task
		e.ID = envelope.NewID()
		msg := message(kind, &e)
		if strings.Contains(kind, "cbor") {
			msg = message(envelope.ContentCBOR, &e)
			msg.Header.Set("Content-Type", kind)
		}
		h.intake.onTask(msg)
	}
	if n := h.queue.Len(); n != 1 {
		t.Errorf("%d tasks are queued, want the one in JSON", n)
	}
	// Junk waits like all CBOR, for what is junk takes decoding to see.
	junk := &nats.Msg{Subject: "agent.a", Reply: inbox, Data: []byte("\x9f"), Header: nats.Header{"Content-Type": {envelope.ContentCBOR}}}
	for range maxWait - 2 {
		h.intake.onTask(junk)
	}
	if n := h.counts.malformed.Load(); n != 0 {
		t.Errorf("%d messages were decoded", n)
	}
	// Beyond, one is answered without a look into it.
	h.intake.onTask(message(envelope.ContentCBOR, task))
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	reply, err := envelope.ParseCBOR((<-answers).Data)
	if err != nil {
		t.Fatal(err)
	}
	if problem := envelope.ErrorOf(reply); problem.Code != envelope.CodeBusy || reply.ReplyTo != wire.UnknownID {
		t.Errorf("answer %v to %s, want E_BUSY to an unknown task", problem, reply.ReplyTo)
	}

	// The same on the control subject.
	command := envelope.New(envelope.TypeTask, "human.ada", "agent.a", intents.TaskCancel, json.RawMessage(`{"id":"12345678"}`))
	h.controls.onControl(message(envelope.ContentCBOR, command))
	h.controls.onControl(junk)
	if bad := h.counts.malformed.Load(); bad != 0 {
		t.Fatalf("%d control messages were decoded, want none", bad)
	}
	close(controls)
	h.control.Close()
	if bad := h.counts.malformed.Load(); bad != 1 {
		t.Errorf("%d malformed control messages, want the junk", bad)
	}

	// And what waited is decoded in the end.
	close(checks)
	h.verify.Close()
	if n := h.queue.Len(); n != 3 {
		t.Errorf("%d tasks are queued, want 3", n)
	}
}

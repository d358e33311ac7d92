package mesh

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// BenchmarkTask is one task's way through a worker, from the bytes that NATS
// delivers to the bytes of the reply, without NATS in between.
func BenchmarkTask(b *testing.B) {
	srv := natstest.Run(b, natsd.Config{})
	node, err := New(natstest.Conn(b, srv), Config{Heartbeat: -1, TaskEvents: EventsFailures, Quotas: Quotas{UnknownRate: -1}})
	if err != nil {
		b.Fatal(err)
	}
	h, err := node.newHost(Agent{Entity: "agent.bench", Queue: 1 << 20, Handler: HandlerFunc(func(_ context.Context, t *Task) (json.RawMessage, error) {
		return t.Envelope.Payload, nil
	})})
	if err != nil {
		b.Fatal(err)
	}
	bodies := make([][]byte, 0, b.N)
	for range cap(bodies) {
		e := envelope.New(envelope.TypeTask, "service.bench", "agent.bench", "bench.echo", json.RawMessage(`{"text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`))
		e.Requires = json.RawMessage(`{"timeout_ms":10000}`)
		body, err := e.AppendJSON(nil)
		if err != nil {
			b.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	w := h.queue.worker()
	b.ReportAllocs()
	b.ResetTimer()
	for _, body := range bodies {
		h.onTask(&nats.Msg{Subject: "agent.bench", Reply: "_INBOX.x.y", Data: body})
		h.run(h.queue.take(w, true))
	}
}

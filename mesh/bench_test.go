package mesh

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// benchSides makes both sides of an exchange, which sign with alg; "" signs nothing.
func benchSides(b *testing.B, alg sign.Alg) (worker, sender *Node) {
	srv := natstest.Run(b, natsd.Config{})
	side := func(entity, peer string) *Node {
		cfg := Config{Entity: entity, Heartbeat: -1, TaskEvents: EventsFailures, Quotas: Quotas{UnknownRate: -1}}
		if alg != "" {
			key := func(who string) *sign.Signer {
				s, err := sign.NewSigner(who, alg, bytes.Repeat([]byte{who[0]}, 32))
				if err != nil {
					b.Fatal(err)
				}
				return s
			}
			ring := &sign.Ring{}
			if err := ring.Put(sign.Local, key(peer).Key(peer)); err != nil {
				b.Fatal(err)
			}
			cfg.Signer, cfg.Verifier = key(entity), sign.Verifier{Ring: ring, Mode: sign.Required}
		}
		node, err := New(natstest.Conn(b, srv), cfg)
		if err != nil {
			b.Fatal(err)
		}
		return node
	}
	return side("agent.bench", "service.bench"), side("service.bench", "agent.bench")
}

// benchTask is a task with 128 characters of text.
func benchTask() *envelope.Envelope {
	e := envelope.New(envelope.TypeTask, "service.bench", "agent.bench", "bench.echo", json.RawMessage(`{"text":"`+strings.Repeat("x", 128)+`"}`))
	e.Requires = json.RawMessage(`{"timeout_ms":10000}`)
	return e
}

// BenchmarkTask is one task's way through a worker, from the bytes that NATS
// delivers to the bytes of the reply, without NATS in between.
func BenchmarkTask(b *testing.B) {
	for name, alg := range map[string]sign.Alg{"unsigned": "", "HS256": sign.HS256, "Ed25519": sign.Ed25519} {
		b.Run(name, func(b *testing.B) {
			node, sender := benchSides(b, alg)
			h, err := node.newHost(Agent{Entity: "agent.bench", Queue: 1 << 20, Handler: HandlerFunc(func(_ context.Context, t *Task) (json.RawMessage, error) {
				return t.Envelope.Payload, nil
			})})
			if err != nil {
				b.Fatal(err)
			}
			bodies := make([][]byte, 0, b.N)
			for range cap(bodies) {
				var body []byte
				if _, err := sender.sender.Encode(b.Context(), benchTask(), false, false, &body); err != nil {
					b.Fatal(err)
				}
				bodies = append(bodies, body)
			}
			h.staff.Do(func() {}) // the benchmark does the work
			w := h.queue.Taker()
			b.ReportAllocs()
			b.ResetTimer()
			for _, body := range bodies {
				msg := &nats.Msg{Subject: "agent.bench", Reply: "_INBOX.x.y", Data: body}
				env, cbor, err := wire.Decode(msg, node.limits)
				if err != nil {
					b.Fatal(err)
				}
				h.intake.check(arrival{msg, env, cbor})
				task, _ := h.queue.Take(w, true)
				h.run(task)
			}
		})
	}
}

// BenchmarkSend is what a sender does for one task, without NATS: the bytes of
// the task, and what is read out of those of the result.
func BenchmarkSend(b *testing.B) {
	for name, alg := range map[string]sign.Alg{"unsigned": "", "HS256": sign.HS256, "Ed25519": sign.Ed25519} {
		b.Run(name, func(b *testing.B) {
			node, sender := benchSides(b, alg)
			task := benchTask()
			result, err := wire.AppendSigned(nil, task.Reply(envelope.TypeResult, task.Payload), node.cfg.Signer, false)
			if err != nil {
				b.Fatal(err)
			}
			var buf []byte
			var known answers.Known
			b.ReportAllocs()
			for b.Loop() {
				if _, err := sender.sender.Encode(b.Context(), task, false, false, &buf); err != nil {
					b.Fatal(err)
				}
				msg := &nats.Msg{Data: result}
				reply, _, err := wire.Decode(msg, sender.limits)
				if err == nil {
					err = sender.answers.Live(task, msg, reply, &known)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

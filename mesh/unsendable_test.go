package mesh_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// An answer that cannot be sent as it is, for no signature or no CBOR carries its
// numbers or no message its length, is answered all the same, at once, and not
// done again: the fault is the agent's.
func TestWhatCannotBeSentIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newDurableRig(t)
	k := newKeys(t)
	signer := k.signer("reviewer", sign.Ed25519, reviewer)
	var calls atomic.Int64
	r.serve(r.lane(mesh.Config{Signer: signer, Verifier: sign.Verifier{Ring: k.ring}}), mesh.Agent{
		Concurrency: 4,
		Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			calls.Add(1)
			odd := envelope.Errorf("E_MINE", "no luck")
			switch task.Envelope.Intent {
			case "test.number":
				return json.RawMessage(`{"n":9007199254740993}`), nil
			case "test.huge":
				return json.RawMessage(`{"n":1e400}`), nil
			case "test.detail":
				odd.Details = []envelope.Member{{Name: "n", Value: json.RawMessage(`1e400`)}}
			case "test.long":
				odd.Message = strings.Repeat("m", 2<<20)
			case "test.code":
				odd.Code = envelope.Code(strings.Repeat("E_LONG\r\n", 1<<18))
			}
			return nil, odd
		}),
	})
	client := r.lane(mesh.Config{Entity: ada, Verifier: sign.Verifier{Ring: k.ring}})
	for intent, want := range map[string]envelope.Code{
		"test.number": envelope.CodeOutputSchema, "test.huge": envelope.CodeOutputSchema,
		"test.detail": "E_MINE", "test.long": "E_MINE", "test.code": "E_LONG",
	} {
		for lane, send := range map[string]func(*envelope.Envelope) error{
			"live": func(e *envelope.Envelope) error { _, err := client.Send(ctxFor(t), e, mesh.SendOptions{}); return err },
			"live CBOR": func(e *envelope.Envelope) error {
				_, err := client.Send(ctxFor(t), e, mesh.SendOptions{CBOR: true})
				return err
			},
			"durable": func(e *envelope.Envelope) error { r.submit(client, e); _, err := r.result(client, e); return err },
			"durable CBOR": func(e *envelope.Envelope) error {
				if _, err := client.Submit(ctxFor(t), e, mesh.SubmitOptions{CBOR: true}); err != nil {
					return err
				}
				_, err := r.result(client, e)
				return err
			},
		} {
			before := calls.Load()
			if err := send(newTask(reviewer, intent, `{}`)); !strings.HasPrefix(string(codeOf(err)), string(want)) || len(err.Error()) > 8<<10 {
				t.Errorf("%s, %s: %.200v, want %s", intent, lane, err, want)
			}
			if n := calls.Load() - before; n != 1 {
				t.Errorf("%s, %s: done %d times", intent, lane, n)
			}
		}
	}
}

// manyTenths is a payload that has n numbers 0.1 in an array: each has 4 bytes in JSON, and 9 as CBOR.
func manyTenths(n int) json.RawMessage {
	return json.RawMessage(`{"seq":3,"list":[0.1` + strings.Repeat(",0.1", n-1) + `]}`)
}

// inSmallMessages is a mesh whose server accepts messages of 64 KiB.
func inSmallMessages(t *testing.T) *durableRig {
	t.Helper()
	return (&durableRig{rig: rigWith(t, natsd.Config{JetStream: true, MaxPayload: 64 << 10})}).under("")
}

// A reply that fits a message as JSON may be larger than one as CBOR.
func TestAReplyThatIsTooLargeAsCBORIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	r := inSmallMessages(t)
	var calls atomic.Int64
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		calls.Add(1)
		return manyTenths(10_000), nil
	})})
	client := r.client()
	for cbor, want := range map[bool]envelope.Code{false: "", true: envelope.CodeTooLarge} {
		before := calls.Load()
		e := newTask(reviewer, "code.review", `{}`)
		if _, err := client.Submit(ctxFor(t), e, mesh.SubmitOptions{CBOR: cbor}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.result(client, e); codeOf(err) != want {
			t.Errorf("CBOR %t: %.200v, want %s", cbor, err, want)
		}
		if n := calls.Load() - before; n != 1 {
			t.Errorf("CBOR %t: done %d times", cbor, n)
		}
	}
	r.drainedQueue()
}

// The record of a run may end with a reply that cannot be sent: an earlier release did not ask
// whether it fits as CBOR, or the server's max_payload was larger. The sender gets an error in its
// place, under the same id; the record keeps the reply.
func TestAReplyInARecordThatCannotBeSentIsAnsweredWithAnError(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("m", 100<<10)
	for name, tt := range map[string]struct {
		cbor  bool
		reply func(task *envelope.Envelope) *envelope.Envelope
		want  envelope.Code
	}{
		"too large as CBOR": {true, func(task *envelope.Envelope) *envelope.Envelope {
			return task.Reply(envelope.TypeResult, manyTenths(10_000))
		}, envelope.CodeTooLarge},
		"too large": {false, func(task *envelope.Envelope) *envelope.Envelope {
			return task.Reply(envelope.TypeResult, mustJSON(map[string]string{"text": long}))
		}, envelope.CodeTooLarge},
		"no CBOR": {true, func(task *envelope.Envelope) *envelope.Envelope {
			return task.Reply(envelope.TypeResult, json.RawMessage(`{"n":1e400}`))
		}, envelope.CodeOutputSchema},
		"an error": {false, func(task *envelope.Envelope) *envelope.Envelope {
			return task.ReplyError(envelope.Errorf("E_MINE", "%s", long))
		}, "E_MINE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := inSmallMessages(t).shortLeases()
			k, g := newKeys(t), newGate(t)
			r.serve(r.lane(mesh.Config{Signer: k.signer("reviewer", sign.Ed25519, reviewer)}), mesh.Agent{
				Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
					if err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler, Name: "first"}, nil); err != nil {
						return nil, err
					}
					return g.Handle(ctx, task)
				}),
			})
			client := r.lane(mesh.Config{Entity: ada, Verifier: sign.Verifier{Ring: k.ring, Mode: sign.Required}})
			task := newTask(reviewer, "code.review", `{}`)
			if _, err := client.Submit(ctxFor(t), task, mesh.SubmitOptions{CBOR: tt.cbor}); err != nil {
				t.Fatal(err)
			}
			within(t, "the task", g.entered)
			reply := tt.reply(task)
			reply.From = reviewer
			r.rewrite(task, func(c *state.Checkpoint) {
				c.Doc.Status, c.Mesh.Reply = aaif.RunCompleted, encode(t, reply)
			})
			g.open()
			if _, err := r.result(client, task); codeOf(err) != tt.want || len(err.Error()) > 8<<10 {
				t.Errorf("%.200v, want %s", err, tt.want)
			}
			r.drainedQueue()
			last, err := jetstream.NewReplies(r.js(r.nc), r.m).Last(ctxFor(t), reviewer, task.ID)
			if err != nil || last.Header.Get(nats.MsgIdHdr) != reply.ID {
				t.Errorf("stored under %q, %v; want %s", last.Header.Get(nats.MsgIdHdr), err, reply.ID)
			}
			equal(t, "reply in the record", string(r.record(task).Mesh.Reply), string(encode(t, reply)))
		})
	}
}

// A reply that was stored before the server's max_payload was lowered cannot be announced any more.
// It stays the task's only reply, and a message of the task that is still there is acknowledged.
func TestAStoredReplyThatCannotBeAnnouncedStays(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"beside its record": true, "without a document": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			agent := mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
				return mustJSON(map[string]string{"text": strings.Repeat("m", 100<<10)}), nil
			})}
			w := r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.KeepTasks = keep }), agent)
			client, task := r.client(), newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			reply, err := r.result(client, task)
			if err != nil {
				t.Fatal(err)
			}
			r.drainedQueue()
			if err := w.end(); err != nil {
				t.Fatal(err)
			}
			msg := &nats.Msg{Subject: "aee.work.normal." + reviewer, Data: encode(t, task)}
			if _, err := r.js(r.nc).PublishMsg(ctxFor(t), msg); err != nil {
				t.Fatal(err)
			}
			cfg := r.srv.Config()
			cfg.MaxPayload = 64 << 10
			r.srv.Close()
			srv := natstest.Run(t, cfg)
			r.rig = &rig{t, srv, natstest.Conn(t, srv)}
			announced := r.listen("aee.reply.>")
			r.serve(r.lane(mesh.Config{}), agent)
			r.drainedQueue()
			empty(t, "another reply", announced)
			last, err := jetstream.NewReplies(r.js(r.nc), r.m).Last(ctxFor(t), reviewer, task.ID)
			if err != nil || parse(t, last.Data).ID != reply.ID || string(parse(t, last.Data).Payload) != string(reply.Payload) {
				t.Errorf("stored is %.200s, %v", last.Data, err)
			}
		})
	}
}

// A stream envelope that is larger than a message may be is refused to the handler, on both lanes.
// The handler decides whether the task fails; it is not done again in either case.
func TestAStreamEnvelopeThatIsTooLargeIsRefusedToTheHandler(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newDurableRig(t)
	var calls atomic.Int64
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		calls.Add(1)
		err := task.EmitText(strings.Repeat("x", 2<<20))
		if task.Envelope.Intent == "test.give_up" {
			return nil, err
		}
		return json.RawMessage(`{}`), task.EmitText("short")
	})})
	client := r.client()
	for intent, want := range map[string]envelope.Code{"test.give_up": envelope.CodeTooLarge, "test.go_on": ""} {
		for lane, send := range map[string]func(*envelope.Envelope) error{
			"live":    func(e *envelope.Envelope) error { _, err := client.Send(ctxFor(t), e, mesh.SendOptions{}); return err },
			"durable": func(e *envelope.Envelope) error { r.submit(client, e); _, err := r.result(client, e); return err },
		} {
			before := calls.Load()
			if err := send(requiring(newTask(reviewer, intent, `{}`), `{"stream":true}`)); codeOf(err) != want {
				t.Errorf("%s, %s: %.200v, want %s", intent, lane, err, want)
			}
			if n := calls.Load() - before; n != 1 {
				t.Errorf("%s, %s: done %d times", intent, lane, n)
			}
		}
	}
}

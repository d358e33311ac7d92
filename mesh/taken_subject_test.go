package mesh_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// A sender who knows the id of another one's durable task, which the bus tells, has
// the agent answer something else under that id. Who waits for the task takes none of
// these answers for the task's own.
func TestAnAnswerToAnotherUnderTheIDOfATaskIsNotItsResult(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		hold mesh.Point // where the task is until eve has an answer
		make func(k *keys, id, corr string) *envelope.Envelope
	}{
		{"a command", mesh.PointClaimed, func(k *keys, id, corr string) *envelope.Envelope {
			e := newTask(reviewer, intents.TaskCancel, `{"id":"01NOSUCHTASK"}`)
			e.From, e.ID, e.Corr = "human.eve", id, corr
			return signed(t, k.signer("eve", sign.Ed25519, "human.eve"), durably(t, e))
		}},
		{"a task without signature", mesh.PointDelivered, func(_ *keys, id, corr string) *envelope.Envelope {
			e := newTask(reviewer, "code.review", `{}`)
			e.ID, e.Corr = id, corr
			return e
		}},
		{"a task of a key of its own", mesh.PointDelivered, func(k *keys, id, corr string) *envelope.Envelope {
			e := newTask("agent.other", "code.review", `{}`)
			e.From, e.ID, e.Corr = "human.eve", id, corr
			return signed(t, k.signer("eve", sign.Ed25519, "human.eve"), durably(t, e))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := newKeys(t)
			adas, own := k.signer("ada", sign.Ed25519, ada), k.signer("own", sign.Ed25519, "agent.*")
			r := newDurableRig(t)
			g := newGate(t)
			task := signed(t, adas, durably(t, newTask(reviewer, "code.review", `{"n":1}`)))
			evil := c.make(k, task.ID, task.Corr)
			v := k.verifier()
			v.Mode = sign.Required
			client := r.lane(mesh.Config{Entity: ada, Verifier: v})
			answers := r.listen("aee.reply." + reviewer + "." + task.ID)
			type answer struct {
				env *envelope.Envelope
				err error
			}
			done := make(chan answer, 1)
			go func() {
				_, env, err := client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
				done <- answer{env, err}
			}()
			eventually(t, "the task waits", func() bool { return r.queued() == 1 })
			if err := r.nc.Publish("aee.work.urgent."+reviewer, encode(t, evil)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "eve's message waits", func() bool { return r.queued() == 2 })
			p := newPoints(t)
			p.run = state.RunID(reviewer, task.ID)
			held := p.hold(c.hold)
			cfg := mesh.Config{Verifier: v, Signer: own, Seen: seen.New(r.js(r.nc), r.m, 10*time.Minute)}
			r.serve(r.lane(cfg, observing(p)), mesh.Agent{Handler: g, Concurrency: 4})
			release := within(t, "the task is held", held)
			within(t, "the answer to eve", answers)
			close(release)
			within(t, "the task", g.entered)
			g.open()
			got := within(t, "ada's answer", done)
			if got.err != nil || got.env.Type != envelope.TypeResult || string(got.env.Payload) != `{"n":1}` {
				t.Errorf("ada has %+v, %v", got.env, got.err)
			}
		})
	}
}

// Nor does such an answer tell a worker that the task has ended: a cancel that comes before
// the task is noted for it.
func TestACancelIsNotedBehindAnAnswerToAnother(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	adas, eves := k.signer("ada", sign.Ed25519, ada), k.signer("eve", sign.Ed25519, "human.eve")
	r := newDurableRig(t)
	v := k.verifier()
	v.Mode = sign.Required
	own := k.signer("own", sign.Ed25519, "agent.*")
	r.serve(r.lane(mesh.Config{Verifier: v, Signer: own}), mesh.Agent{Handler: echo})
	client := r.lane(mesh.Config{Entity: ada, Verifier: v, Signer: adas})
	task := newTask(reviewer, "code.review", `{"n":1}`)
	evil := newTask(reviewer, intents.TaskCancel, `{"id":"01NOSUCHTASK"}`)
	evil.From, evil.ID = "human.eve", task.ID
	signed(t, eves, durably(t, evil))
	answers := r.listen("aee.reply." + reviewer + "." + task.ID)
	if err := r.nc.Publish("aee.work.urgent."+reviewer, encode(t, evil)); err != nil {
		t.Fatal(err)
	}
	within(t, "the answer to eve", answers)
	r.drainedQueue()
	res, err := client.Command(ctxFor(t), reviewer, intents.CancelTask{ID: task.ID, Durable: true})
	if err != nil || res.Status != "noted" {
		t.Fatalf("ada's cancel: %+v, %v", res, err)
	}
	_, _, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
	if codeOf(err) != envelope.CodeCancelled {
		t.Errorf("got %v", err)
	}
}

// A reply that the agent has not signed says neither that a task has ended nor that a command was
// answered.
func TestAForgedReplyHidesNoCommand(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	adas := k.signer("ada", sign.Ed25519, ada)
	r := newDurableRig(t)
	v := k.verifier()
	v.Mode = sign.Required
	r.serve(r.lane(mesh.Config{Verifier: v, Signer: k.signer("own", sign.Ed25519, "agent.*")}), mesh.Agent{Handler: echo})
	client := r.lane(mesh.Config{Entity: ada, Verifier: v, Signer: adas})
	replies := jetstream.NewReplies(r.js(r.nc), r.m)
	forge := func(task *envelope.Envelope) {
		reply := task.Reply(envelope.TypeResult, json.RawMessage(`{"text":"forged"}`))
		if err := replies.Publish(ctxFor(t), jetstream.Reply{Entity: reviewer, TaskID: task.ID, MsgID: reply.ID, Data: encode(t, reply)}); err != nil {
			t.Fatal(err)
		}
	}
	task := newTask(reviewer, "code.review", `{"n":1}`)
	forge(task)
	res, err := client.Command(ctxFor(t), reviewer, intents.CancelTask{ID: task.ID, Durable: true})
	if err != nil || res.Status != "noted" {
		t.Fatalf("ada's cancel: %+v, %v", res, err)
	}

	queued := newTask(reviewer, intents.TaskCancel, `{"id":"01NOSUCHTASK"}`)
	signed(t, adas, durably(t, queued))
	forge(queued)
	answers := r.listen("aee.reply." + reviewer + "." + queued.ID)
	if err := r.nc.Publish("aee.work.urgent."+reviewer, encode(t, queued)); err != nil {
		t.Fatal(err)
	}
	within(t, "the answer to the queued cancel", answers)
}

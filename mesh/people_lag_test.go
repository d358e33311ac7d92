package mesh_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// lagging returns ada's node whose replies are read from a replica that has none of them, until
// caughtUp is called, and a task for bob that is in his inbox.
func (r *durableRig) lagging() (client *mesh.Node, ask *mesh.PersonTask, caughtUp func()) {
	r.t.Helper()
	outage, nc := natstest.NewOutage(r.t, r.srv), natstest.Conn(r.t, r.srv)
	client = r.nodeOn(nc, mesh.Config{Entity: ada, Durable: r.durableOver(outage.JetStream(r.t, nc)), Heartbeat: -1})
	task := requiring(newTask(bob, "code.review", `{"text":"may I?"}`), `{"timeout_ms":600000}`)
	if err := r.nc.Publish(bob, encode(r.t, task)); err != nil {
		r.t.Fatal(err)
	}
	ask = r.asked(client, bob)
	outage.Lag(jetstream.StreamReply)
	return client, ask, func() { outage.Lag("") }
}

// The replica that is asked whether an answer counts may lack it: that does not make it late.
func TestAnAnswerThatAReplicaLacksIsNotLate(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ask, caughtUp := r.lagging()
	if err := client.AnswerPersonTask(ctxFor(t), ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"ok":true}`))); err != nil {
		t.Errorf("an answer in time: %v", err)
	}
	caughtUp()
	if ask, err := client.FindAsk(ctxFor(t), bob, "", ask.Task.ID); err != nil || ask.State != mesh.AskAnswered {
		t.Errorf("ask %+v, %v", ask, err)
	}
}

// A second answer is refused by the first one, as soon as the replica has that.
func TestASecondAnswerWaitsForTheReplica(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ask, caughtUp := r.lagging()
	first := ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"ok":true}`))
	r.answer(r.client(), r.asked(r.client(), bob), string(first.Payload))
	time.AfterFunc(60*time.Millisecond, caughtUp)
	if err := client.AnswerPersonTask(ctxFor(t), ask, ask.Task.Reply(envelope.TypeResult, nil)); !isErr(err, mesh.ErrAnswered) {
		t.Errorf("a second answer: %v", err)
	}
}

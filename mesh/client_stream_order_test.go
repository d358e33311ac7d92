package mesh_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// Envelopes of a stream can come late, or twice: those of two agents, of which one has delegated the
// task to the other, come over two connections, and a publish may be repeated. A sender gets them in
// their order, on both lanes, and those without a number as they come.
func TestStreamEnvelopesOutOfOrderAreDropped(t *testing.T) {
	t.Parallel()
	payloads := []string{
		`{"seq":1,"text":"a"}`, `{"text":"no number"}`, `{"seq":3,"text":"c"}`, `{"text":"late","seq":2}`, `{"seq":3,"text":"twice"}`,
		`{"seq":"x","text":"no number"}`, `{"seq":4,"text":"d"}`,
	}
	numbers := []int{1, 0, 3, 2, 3, 0, 4}
	want := []string{"a", "no number", "c", "no number", "d"}
	var texts []string
	onStream := func(e *envelope.Envelope) error {
		var p struct {
			Text string `json:"text"`
		}
		err := json.Unmarshal(e.Payload, &p)
		texts = append(texts, p.Text)
		return err
	}

	live := newRig(t)
	if _, err := live.nc.Subscribe(reviewer, func(msg *nats.Msg) {
		task := parse(t, msg.Data)
		for _, p := range payloads {
			msg.Respond(encode(t, task.Reply(envelope.TypeStream, json.RawMessage(p))))
		}
		msg.Respond(encode(t, task.Reply(envelope.TypeResult, json.RawMessage(`{}`))))
	}); err != nil {
		t.Fatal(err)
	}
	settle(t, live.nc)
	if _, err := live.node(mesh.Config{}).Send(ctxFor(t), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{OnStream: onStream}); err != nil {
		t.Fatal(err)
	}
	equal(t, "live", fmt.Sprint(texts), fmt.Sprint(want))

	r := newDurableRig(t)
	client := r.lane(mesh.Config{Entity: ada})
	replies := jetstream.NewReplies(r.js(r.nc), r.m)
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task) // no worker takes it
	publish := func(e *envelope.Envelope, number int) {
		t.Helper()
		reply := jetstream.Reply{Entity: reviewer, TaskID: task.ID, MsgID: e.ID, Data: encode(t, e)}
		if number > 0 {
			reply.Header = nats.Header{jetstream.HeaderSeq: {fmt.Sprint(number)}}
		}
		if err := replies.Publish(ctxFor(t), reply); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range payloads {
		publish(task.Reply(envelope.TypeStream, json.RawMessage(p)), numbers[i])
	}
	publish(task.Reply(envelope.TypeResult, json.RawMessage(`{}`)), 5)
	for _, follow := range []bool{false, true} {
		texts = nil
		if _, err := client.Result(ctxFor(t), reviewer, task.ID, mesh.ResultOptions{Follow: follow, OnStream: onStream}); err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprintf("durable, followed %t", follow), fmt.Sprint(texts), fmt.Sprint(want))
	}
}

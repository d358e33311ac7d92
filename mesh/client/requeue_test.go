package client_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// The record of a run from another platform may say that its task came as CBOR although no CBOR can
// hold the task's numbers. The task is queued as JSON then.
func TestATaskWithoutAFormInCBORIsQueuedAsJSON(t *testing.T) {
	t.Parallel()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err == nil {
		_, err = jetstream.Apply(t.Context(), js, jetstream.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	e := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{"n":0}`))
	task, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &state.Checkpoint{}
	c.Doc.RunID = state.RunID("agent.x", e.ID)
	c.Mesh.Entity, c.Mesh.Epoch, c.Mesh.CBOR = "agent.x", 2, true
	for number, kind := range map[string]string{"0": envelope.ContentCBOR, "123456789012345678901": ""} {
		c.Mesh.Task = []byte(strings.Replace(string(task), `"n":0`, `"n":`+number, 1))
		c.Mesh.Epoch++
		q := jetstream.NewQueue(js, subject.Map{})
		if err := client.CheckRequeue(q, c, envelope.Limits{}); err != nil {
			t.Errorf("%s: %v", number, err)
		}
		done, err := client.Requeue(t.Context(), q, c)
		if err != nil {
			t.Errorf("%s: %v", number, err)
			continue
		}
		found, err := q.Has(t.Context(), "agent.x", done.Seq, func(m jetstream.Message) bool { return m.Header.Get("Content-Type") == kind })
		if err != nil || !found {
			t.Errorf("%s: it is not queued as %q: %v", number, kind, err)
		}
	}
}

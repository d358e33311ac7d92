package mesh_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// endedByAnother is a JetStream that stores the last document of a run and does not say
// so. Meanwhile another worker finds that the run has ended, and stores its reply.
type endedByAnother struct {
	natsjs.JetStream
	r    *durableRig
	id   state.ID
	once *sync.Once
}

func (e endedByAnother) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	ack, err := e.JetStream.PublishMsg(ctx, msg, opts...)
	if err != nil || msg.Header.Get(jetstream.HeaderStatus) != "completed" || !strings.HasPrefix(msg.Subject, "$KV.aee_state.") {
		return ack, err
	}
	e.once.Do(func() {
		doc, failed := state.Codec{}.Read(state.Record{ID: e.id, Data: msg.Data, Revision: ack.Sequence})
		if failed != nil {
			e.r.t.Error(failed)
			return
		}
		reply := jetstream.Reply{Entity: e.id.Entity, TaskID: doc.Mesh.TaskID, MsgID: "the-other-workers", Data: doc.Mesh.Reply}
		if _, failed := jetstream.NewStates(e.JetStream, e.r.m).Reply(ctx, e.id, ack.Sequence, reply, jetstream.Note{Status: doc.Doc.Status}, nil); failed != nil {
			e.r.t.Error(failed)
		}
		err = nats.ErrTimeout
	})
	return ack, err
}

// The soak found two replies of one run: its last document was stored, the server was
// restarted before it said so, and another worker stored the reply.
func TestTheReplyOfAnEndThatWasNotConfirmedIsStoredOnce(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	nc := natstest.Conn(t, r.srv)
	node := r.laneOn(nc, mesh.Config{}, func(d *mesh.Durable) {
		d.KeepTasks = true // the run has a document
		d.States = jetstream.NewStates(endedByAnother{r.js(nc), r, runOf(task), &sync.Once{}}, r.m)
	})
	r.serve(node, mesh.Agent{Handler: echo})
	r.aged()
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	r.drainedQueue()
	equal(t, "replies that are stored", len(r.storedOn("KV_"+jetstream.BucketState, "$KV.aee_reply."+reviewer+"."+runOf(task).Run)), 1)
}

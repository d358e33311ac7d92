package mesh_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
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

// smallOnce is a JetStream for which the reply of a run is too large at first, so that it is not
// tried again at once.
type smallOnce struct {
	natsjs.JetStream
	failed *atomic.Bool
}

func (f smallOnce) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	if strings.HasPrefix(msg.Subject, "$KV.aee_reply.") && f.failed.CompareAndSwap(false, true) {
		return nil, &natsjs.APIError{Code: 400, ErrorCode: 10054, Description: "message size exceeds maximum allowed"}
	}
	return f.JetStream.PublishMsg(ctx, msg, opts...)
}

// A worker dies after the last document of a run. The next one cannot store the reply at first: it
// leaves the message to a further delivery, which stores it.
func TestAReplyThatCannotBeStoredIsStoredByTheNextDelivery(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	p := newPoints(t)
	held := p.hold(mesh.PointAfterTerminal)
	cut := natstest.NewCable(t)
	keep := func(d *mesh.Durable) { d.KeepTasks = true } // the run has a document
	r.serve(r.over(cut, observing(p), keep), mesh.Agent{Handler: echo})
	r.aged()
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the last document", held)
	cut.Block(true)
	nc, failed := natstest.Conn(t, r.srv), &atomic.Bool{}
	r.serve(r.laneOn(nc, mesh.Config{}, keep, func(d *mesh.Durable) {
		d.States = jetstream.NewStates(smallOnce{r.js(nc), failed}, r.m)
	}), mesh.Agent{Handler: echo})
	r.drainedQueue()
	equal(t, "a try has failed", failed.Load(), true)
	equal(t, "replies that are stored", len(r.storedOn("KV_"+jetstream.BucketState, "$KV.aee_reply."+reviewer+"."+runOf(task).Run)), 1)
}

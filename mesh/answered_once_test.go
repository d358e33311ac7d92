package mesh_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// lateReply is a JetStream over which the first reply on a subject is published late.
type lateReply struct {
	natsjs.JetStream
	subj string
	once *sync.Once
	came chan struct{}
	open chan struct{}
}

func (l lateReply) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	if msg.Subject == l.subj {
		l.once.Do(func() {
			close(l.came)
			<-l.open
			ctx = context.WithoutCancel(ctx)
		})
	}
	return l.JetStream.PublishMsg(ctx, msg, opts...)
}

// forgetsIDs makes the stream of replies forget message ids at once. The function that it returns
// waits until those of the replies that are stored are forgotten.
func (r *durableRig) forgetsIDs() (forgotten func()) {
	return r.forgetsIDsOf(jetstream.StreamReply, "aee.reply.agent.probe.x")
}

// forgetsIDsOf is forgetsIDs for a stream that has a subject.
func (r *durableRig) forgetsIDsOf(name, subj string) (forgotten func()) {
	r.t.Helper()
	js := r.js(r.nc)
	stream, err := js.Stream(ctxFor(r.t), name)
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.Duplicates = 100 * time.Millisecond
	if _, err := js.UpdateStream(ctxFor(r.t), cfg); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		r.t.Helper()
		probe := &nats.Msg{Subject: subj, Header: nats.Header{natsjs.MsgIDHeader: {"probe"}}}
		first := uint64(0)
		eventually(r.t, "the ids are forgotten", func() bool {
			ack, err := js.PublishMsg(ctxFor(r.t), probe)
			if err != nil || ack.Duplicate {
				return false
			}
			again := first > 0
			first = ack.Sequence
			return again
		})
	}
}

// takeID publishes a message with an id before the message that is to have it.
func (r *durableRig) takeID(id string) {
	r.t.Helper()
	if _, err := r.js(r.nc).PublishMsg(ctxFor(r.t), &nats.Msg{Subject: "aee.reply.agent.other.x", Header: nats.Header{natsjs.MsgIDHeader: {id}}}); err != nil {
		r.t.Fatal(err)
	}
}

// Two workers apply an order from the queue: one has found no answer and is about to store its
// own when the other one stores one. The server refuses that by the id of the answer only if it still
// has that id, and no other message took it; and the worker believes it only if it can read the
// stream.
func TestAnOrderThatTwoWorkersApplyIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(r *durableRig, out *natstest.Outage, id string) (between func()){
		"at once":           func(*durableRig, *natstest.Outage, string) func() { return func() {} },
		"the id forgotten":  func(r *durableRig, _ *natstest.Outage, _ string) func() { return r.forgetsIDs() },
		"the id of another": func(r *durableRig, _ *natstest.Outage, id string) func() { r.takeID(id); return func() {} },
		"a server that has just started": func(_ *durableRig, out *natstest.Outage, _ string) func() {
			return func() { out.RefuseFirst(1) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			task := newTask(reviewer, "code.review", `{}`)
			order := newTask(reviewer, intents.TaskCancel, `{"id":"`+task.ID+`","durable":true}`)
			order.Priority = envelope.PriorityUrgent
			out := natstest.NewOutage(t, r.srv)
			between := prepare(r, out, "answer."+state.RunID(reviewer, order.ID))
			late := lateReply{subj: "aee.reply." + reviewer + "." + order.ID, once: &sync.Once{}, came: make(chan struct{}), open: make(chan struct{})}
			open := sync.OnceFunc(func() { close(late.open) })
			first := r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) {
				late.JetStream = out.JetStream(t, r.nc)
				d.Replies = jetstream.NewReplies(late, r.m)
			}), mesh.Agent{Handler: echo})
			t.Cleanup(open) // before Serve is to return
			r.submit(r.client(), order)
			within(t, "the first answer", late.came)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
			eventually(t, "the second answer", func() bool { return len(r.replies(order)) == 1 })
			between()
			open()
			r.drainedQueue()
			if err := first.end(); err != nil {
				t.Fatal(err)
			}
			replies := r.replies(order)
			equal(t, "answers", len(replies), 1)
			equal(t, "the answer", string(replies[0].Payload), `{"cancelled":true,"runs":["`+state.RunID(reviewer, task.ID)+`"],"status":"noted"}`)
		})
	}
}

// lostAck is a JetStream that stores the first reply on a subject and does not say so.
type lostAck struct {
	natsjs.JetStream
	subj    string
	once    *sync.Once
	between func()
}

func (l lostAck) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	ack, err := l.JetStream.PublishMsg(ctx, msg, opts...)
	if err == nil && !ack.Duplicate && msg.Subject == l.subj {
		l.once.Do(func() {
			l.between()
			err = nats.ErrTimeout
		})
	}
	return ack, err
}

// The server was restarted before it said that the reply to a refused task is stored. The task
// comes again, and is refused again.
func TestARefusalThatWasNotConfirmedIsStoredOnce(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for name, prepare := range map[string]func(r *durableRig) (between func()){
		"at once":           func(*durableRig) func() { return func() {} },
		"the id forgotten":  func(r *durableRig) func() { return r.forgetsIDs() },
		"the id of another": func(r *durableRig) func() { r.takeID("refused.1"); return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			task := newTask(reviewer, "code.review", `{}`)
			lost := lostAck{subj: "aee.reply." + reviewer + "." + task.ID, once: &sync.Once{}, between: prepare(r)}
			k := newKeys(t)
			verifier := k.verifier()
			verifier.Mode = sign.Required
			r.serve(r.lane(mesh.Config{Verifier: verifier}, func(d *mesh.Durable) {
				lost.JetStream = r.js(r.nc)
				d.Replies = jetstream.NewReplies(lost, r.m)
			}), mesh.Agent{Handler: echo, Signer: k.signer("reviewer", sign.Ed25519, reviewer)})
			r.submit(r.client(), task)
			r.drainedQueue()
			equal(t, "replies", len(r.replies(task)), 1)
		})
	}
}

package mesh_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// soon is when a delayed task is due that is not stored as one that is due already. The server counts
// in seconds.
const soon = 300 * time.Millisecond

// answering calls a function before the first reply is stored: between a withdrawal's look at a
// task and its removal.
type answering struct {
	natsjs.JetStream
	first func()
}

func (a *answering) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	if f := a.first; f != nil {
		a.first = nil
		f()
	}
	return a.JetStream.PublishMsg(ctx, msg, opts...)
}

// draw draws a message as a worker does, and does not acknowledge it.
func (r *durableRig) draw(spec jetstream.ConsumerSpec, err error) natsjs.Msg {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	js := r.js(r.nc)
	if _, err := jetstream.Apply(ctxFor(r.t), js, jetstream.Options{Map: r.m, Entities: []string{spec.Entity}}); err != nil {
		r.t.Fatal(err)
	}
	c, err := js.Consumer(ctxFor(r.t), spec.StreamName(r.m), spec.Config.Durable)
	if err != nil {
		r.t.Fatal(err)
	}
	msg, err := c.Next(natsjs.FetchMaxWait(patience), natsjs.FetchPriorityGroup("topology-6"))
	if err != nil {
		r.t.Fatal(err)
	}
	return msg
}

// A task moves on while it is withdrawn. It is not said to be cancelled while a worker has it.
func TestAWithdrawnTaskThatMovesOn(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	due := func(r *durableRig, to string) natsjs.Msg { return r.draw(jetstream.DueConsumer(r.m, to)) }
	moves := func(r *durableRig, to string) {
		msg := due(r, to)
		if _, err := jetstream.NewQueue(r.js(r.nc), r.m).Submit(ctxFor(r.t), jetstream.Submission{Entity: to, Data: msg.Data(), Header: msg.Headers()}); err != nil {
			r.t.Error(err)
		}
		if err := msg.DoubleAck(ctxFor(r.t)); err != nil {
			r.t.Error(err)
		}
	}
	for _, tt := range []struct {
		name      string
		opts      mesh.SubmitOptions
		meanwhile func(r *durableRig, to string)
		begun     bool
		left      uint64 // messages of the task
	}{
		{"it falls due", mesh.SubmitOptions{After: 2 * time.Second}, func(r *durableRig, _ string) {
			eventually(r.t, "the task is due", func() bool { return r.due() == 1 })
		}, false, 0},
		{"a worker draws it to move it", mesh.SubmitOptions{After: soon}, func(r *durableRig, to string) { due(r, to) }, true, 0},
		{"a worker moves it", mesh.SubmitOptions{After: soon}, moves, true, 1},
		{"a worker draws it", mesh.SubmitOptions{}, func(r *durableRig, to string) { r.draw(jetstream.WorkConsumer(r.m, "normal", to, longLease)) }, true, 0},
		{"another operator withdraws it", mesh.SubmitOptions{}, func(r *durableRig, to string) {
			if err := jetstream.NewQueue(r.js(r.nc), r.m).Remove(ctxFor(r.t), 1); err != nil {
				r.t.Error(err)
			}
		}, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			task := newTask("agent.ecoh", "code.review", `{}`)
			client := r.client()
			ops := r.lane(mesh.Config{Entity: operator}, func(d *mesh.Durable) {
				js := r.js(r.nc)
				d.Replies = jetstream.NewReplies(&answering{js, func() { tt.meanwhile(r, task.To) }}, r.m)
			})
			if _, err := client.Submit(ctxFor(t), task, tt.opts); err != nil {
				t.Fatal(err)
			}
			if tt.opts.After == soon {
				eventually(t, "the task is due", func() bool { return r.due() == 1 })
			}
			err := ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip")
			if begun := errors.Is(err, mesh.ErrBegun); begun != tt.begun || !begun && err != nil {
				t.Errorf("the cancel: %v", err)
			}
			if _, err := r.result(client, task); !isRefused(err, envelope.CodeCancelled) {
				t.Errorf("the sender got %v", err)
			}
			if n := r.queued() + r.due() + uint64(r.asleep()); n != tt.left {
				t.Errorf("%d messages are left", n)
			}
		})
	}
}

// What a worker is moving to the queue is a worker's to end.
func TestADueTaskThatAWorkerHasIsNotWithdrawn(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
	task := newTask("agent.ecoh", "code.review", `{}`)
	if _, err := client.Submit(ctxFor(t), task, mesh.SubmitOptions{After: soon}); err != nil {
		t.Fatal(err)
	}
	r.draw(jetstream.DueConsumer(r.m, task.To))
	if err := ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip"); !errors.Is(err, mesh.ErrBegun) {
		t.Errorf("a worker has it: %v", err)
	}
	if n := len(r.replies(task)); n != 0 || r.due() != 1 {
		t.Errorf("%d replies, and %d tasks are due", n, r.due())
	}
}

// All of an agent's tasks are withdrawn, wherever they wait.
func TestAllTasksOfAnAgentAreWithdrawn(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
	for _, opts := range []mesh.SubmitOptions{{}, {After: time.Hour}, {After: soon}} {
		if _, err := client.Submit(ctxFor(t), newTask("agent.ecoh", "code.review", `{}`), opts); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a task is due", func() bool { return r.due() == 1 })
	if n, err := ops.CancelAllQueued(ctxFor(t), "agent.ecoh", "a slip"); n != 3 || err != nil {
		t.Errorf("%d withdrawn, %v", n, err)
	}
	if r.queued() != 0 || r.asleep() != 0 || r.due() != 0 {
		t.Errorf("%d messages wait, %d are scheduled and %d are due", r.queued(), r.asleep(), r.due())
	}
}

// A task that no worker has drawn is withdrawn beside one that a worker has, also if that worker is dead.
func TestATaskBehindAnUnacknowledgedOneIsWithdrawn(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
	drawn, behind, urgent := newTask("agent.ecoh", "code.review", `{}`), newTask("agent.ecoh", "code.review", `{}`), newTask("agent.ecoh", "code.review", `{}`)
	urgent.Priority = envelope.PriorityHigh
	r.submit(client, drawn)
	r.draw(jetstream.WorkConsumer(r.m, "normal", drawn.To, longLease))
	for _, task := range []*envelope.Envelope{behind, urgent} {
		r.submit(client, task)
		if err := ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip"); err != nil {
			t.Errorf("a %s task that no worker has drawn: %v", task.Priority, err)
		}
	}
	if err := ops.CancelQueued(ctxFor(t), drawn.To, drawn.ID, "a slip"); !errors.Is(err, mesh.ErrBegun) {
		t.Errorf("a worker has it: %v", err)
	}
	if n := r.queued(); n != 1 {
		t.Errorf("%d tasks are queued", n)
	}
}

// Who withdraws all tasks reads the queue once, not once for each task.
func TestManyTasksAreWithdrawnInOnePass(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
	const tasks = 12
	for range tasks {
		r.submit(client, newTask("agent.ecoh", "code.review", `{}`))
	}
	endless, strange := newTask("agent.ecoh", "code.review", `{}`), newTask("agent.other", "code.review", `{}`)
	endless.ID = strings.Repeat("x", subject.MaxID+1) // a worker rejects both
	for _, task := range []*envelope.Envelope{endless, strange} {
		if _, err := jetstream.NewQueue(r.js(r.nc), r.m).Submit(ctxFor(t), jetstream.Submission{Entity: "agent.ecoh", ID: ulid.Make().String(), Data: encode(t, task)}); err != nil {
			t.Fatal(err)
		}
	}
	reads := r.listen("$JS.API.DIRECT.GET." + jetstream.StreamWork)
	if n, err := ops.CancelAllQueued(ctxFor(t), "agent.ecoh", "a slip"); n != tasks || err != nil {
		t.Errorf("%d withdrawn, %v", n, err)
	}
	settle(t, r.nc)
	if n := r.queued(); n != 2 {
		t.Errorf("%d tasks are queued", n)
	}
	if n := len(drained(reads)); n > 2*len(subject.Priorities()) {
		t.Errorf("the queue was read %d times", n)
	}
}

// While the queue cannot be read, a task that is due is not withdrawn: it may be queued, too.
func TestATaskIsNotWithdrawnWhileTheQueueCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
	task := newTask("agent.ecoh", "code.review", `{}`)
	if _, err := client.Submit(ctxFor(t), task, mesh.SubmitOptions{After: soon}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the task is due", func() bool { return r.due() == 1 })
	if err := r.js(r.nc).DeleteStream(ctxFor(t), jetstream.StreamWork); err != nil {
		t.Fatal(err)
	}
	if err := ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip"); err == nil || r.due() != 1 {
		t.Errorf("it is withdrawn: %v, and %d are due", err, r.due())
	}
}

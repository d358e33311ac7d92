package mesh_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/canceltree"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

const operator = "human.operator"

// Fault 7 of the operators' review: a task without a worker could not be got rid
// of. An operator takes it out of the queue, and its sender hears of it.
func TestATaskForNobodyIsWithdrawn(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]mesh.SubmitOptions{"waiting": {}, "scheduled": {After: time.Hour}, "due": {After: soon}} {
		for _, cbor := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newDurableRig(t)
				client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
				task := newTask("agent.ecoh", "code.review", `{}`)
				opts := opts
				opts.CBOR = cbor
				type answer struct {
					reply *envelope.Envelope
					err   error
				}
				answered := make(chan answer, 1)
				submitted := make(chan *nats.Msg, 16)
				for _, s := range []string{"aee.work.>", "aee.schedule.>"} {
					if _, err := r.nc.ChanSubscribe(s, submitted); err != nil {
						t.Fatal(err)
					}
				}
				settle(t, r.nc)
				go func() {
					_, reply, err := client.Perform(ctxFor(t), task, opts, mesh.ResultOptions{})
					answered <- answer{reply, err}
				}()
				within(t, "the task", submitted)
				eventually(t, "the task is stored", func() bool {
					return name == "waiting" && r.queued() == 1 || name == "scheduled" && r.asleep() == 1 || name == "due" && r.due() == 1
				})
				got, below, err := canceltree.Cancel(ctxFor(t), ops, slog.New(slog.DiscardHandler), task.To, intents.CancelTask{ID: task.ID, Reason: "a slip"})
				if err != nil || !got.Cancelled || got.Status != canceltree.StatusWithdrawn || len(below.Waiting) > 0 {
					t.Fatalf("%+v, %+v, %v", got, below, err)
				}
				a := within(t, "the answer", answered)
				var problem *envelope.Error
				if !errors.As(a.err, &problem) || problem.Code != envelope.CodeCancelled || problem.Message != "cancelled by human.operator: a slip" || a.reply.From != operator || a.reply.Corr != task.Corr {
					t.Errorf("%v, %+v", a.err, a.reply)
				}
				if r.queued() != 0 || r.asleep() != 0 || r.due() != 0 {
					t.Errorf("%d messages wait, %d are scheduled and %d are due", r.queued(), r.asleep(), r.due())
				}
				if _, err := r.result(client, task); err == nil || !strings.Contains(err.Error(), "a slip") {
					t.Errorf("later: %v", err)
				}
				if _, _, err := canceltree.Cancel(ctxFor(t), ops, slog.New(slog.DiscardHandler), task.To, intents.CancelTask{ID: task.ID}); !errors.Is(err, jetstream.ErrNotFound) {
					t.Errorf("again: %v", err)
				}
			})
		}
	}
}

// A task leaves the queue only when its reply is stored: until then another cancel finds it.
func TestAWithdrawnTaskHasItsReplyBeforeItLeavesTheQueue(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
	task := newTask("agent.ecoh", "code.review", `{}`)
	r.submit(client, task)
	js := r.js(r.nc)
	if err := js.DeleteStream(ctxFor(t), jetstream.StreamReply); err != nil {
		t.Fatal(err)
	}
	if err := ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip"); err == nil {
		t.Error("a task is withdrawn, and its reply could not be stored")
	}
	if n := r.queued(); n != 1 {
		t.Fatalf("%d tasks are queued after a cancel that failed", n)
	}
	if _, err := jetstream.Apply(ctxFor(t), js, jetstream.Options{Map: r.m}); err != nil {
		t.Fatal(err)
	}
	if err := ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip"); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := r.result(client, task); !isRefused(err, envelope.CodeCancelled) || r.queued() != 0 {
		t.Errorf("the sender got %v, and %d tasks are queued", err, r.queued())
	}
}

// Tasks to several agents may have one id. Each of their senders gets the reply.
func TestWithdrawnTasksOfOneIDHaveTheirReplies(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
	first, second := newTask("agent.ecoh", "code.review", `{}`), newTask("agent.eocho", "code.review", `{}`)
	second.ID = first.ID
	for _, task := range []*envelope.Envelope{first, second} {
		r.submit(client, task)
	}
	for _, task := range []*envelope.Envelope{first, second} {
		if err := ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.result(client, task); !isRefused(err, envelope.CodeCancelled) {
			t.Errorf("the sender of %s's task got %v", task.To, err)
		}
	}
}

// A process may die when it has stored the reply and not yet removed the task.
func TestAHalfDoneWithdrawalIsCompleted(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
	task := newTask("agent.ecoh", "code.review", `{}`)
	r.submit(client, task)
	work, err := r.m.Work(string(task.Priority), task.To)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := r.js(r.nc).Stream(ctxFor(t), jetstream.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	queued, err := stream.GetLastMsgForSubject(ctxFor(t), work)
	if err != nil {
		t.Fatal(err)
	}
	if err := ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip"); err != nil {
		t.Fatal(err)
	}
	again := jetstream.Submission{Entity: task.To, Priority: string(task.Priority), Data: queued.Data, Header: queued.Header}
	if _, err := jetstream.NewQueue(r.js(r.nc), r.m).Submit(ctxFor(t), again); err != nil {
		t.Fatal(err)
	}
	if err := ops.CancelQueued(ctxFor(t), task.To, task.ID, "a slip"); err != nil {
		t.Errorf("the rest: %v", err)
	}
	if n := len(r.replies(task)); n != 1 || r.queued() != 0 {
		t.Errorf("%d replies, and %d tasks are queued", n, r.queued())
	}
}

// Whatever a worker has, or has had, is a worker's to end.
func TestWhatAWorkerHasIsNotWithdrawn(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	gate := newGate(t)
	w := r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: gate})
	client, ops := r.client(), r.lane(mesh.Config{Entity: operator})
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the handler", gate.entered)
	eventually(t, "the run has a record", func() bool { return r.begun(task) != nil })
	if err := ops.CancelQueued(ctxFor(t), reviewer, task.ID, ""); !errors.Is(err, mesh.ErrBegun) {
		t.Errorf("a run: %v", err)
	}
	// One that a worker was handed, and of which nothing is known yet.
	other := newTask(reviewer, "code.review", `{}`)
	r.submit(client, other)
	hand := r.draw(jetstream.WorkConsumer(r.m, "normal", reviewer, longLease))
	if err := ops.CancelQueued(ctxFor(t), reviewer, other.ID, ""); !errors.Is(err, mesh.ErrBegun) {
		t.Errorf("in hand: %v", err)
	}
	if err := r.lane(mesh.Config{Entity: "service.bot"}).CancelQueued(ctxFor(t), reviewer, other.ID, ""); !isRefused(err, envelope.CodeDenied) {
		t.Errorf("no operator: %v", err)
	}
	if err := hand.Nak(); err != nil {
		t.Fatal(err)
	}
	gate.open()
	for _, task := range []*envelope.Envelope{task, other} {
		if reply, err := r.result(client, task); err != nil || reply.From != reviewer {
			t.Errorf("%v", err)
		}
	}
	if err := w.end(); err != nil {
		t.Error(err)
	}
}

// due is how many delayed tasks have fallen due and are not in the queue.
func (r *durableRig) due() uint64 {
	r.t.Helper()
	s, err := r.js(r.nc).Stream(ctxFor(r.t), jetstream.StreamSchedule)
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := s.Info(ctxFor(r.t), natsjs.WithSubjectFilter(r.m.AllDue()))
	if err != nil {
		r.t.Fatal(err)
	}
	var n uint64
	for _, of := range info.State.Subjects {
		n += of
	}
	return n
}

// asleep is how many tasks wait for their time.
func (r *durableRig) asleep() int {
	r.t.Helper()
	all, err := jetstream.NewQueue(r.js(r.nc), r.m).Scheduled(ctxFor(r.t), "")
	if err != nil {
		r.t.Fatal(err)
	}
	return len(all)
}

func isRefused(err error, code envelope.Code) bool {
	var e *envelope.Error
	return errors.As(err, &e) && e.Code == code
}

// Only an operator's word that a task is cancelled counts beside its agent's.
func TestNobodyElseAnswersForAnAgent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from    string
		kind    envelope.Type
		code    envelope.Code
		believe bool
	}{
		{operator, envelope.TypeError, envelope.CodeCancelled, true},
		{operator, envelope.TypeError, envelope.CodeInternal, false},
		{operator, envelope.TypeResult, "", false},
		{"agent.other", envelope.TypeError, envelope.CodeCancelled, false},
	} {
		r := newDurableRig(t)
		client := r.client()
		task := newTask("agent.nobody", "code.review", `{}`)
		r.submit(client, task)
		reply := task.Reply(tt.kind, nil)
		if tt.kind == envelope.TypeError {
			reply = task.ReplyError(envelope.Errorf(tt.code, "so be it"))
		}
		reply.From = tt.from
		data, err := reply.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := jetstream.NewReplies(r.js(r.nc), r.m).Publish(ctxFor(t), jetstream.Reply{Entity: task.To, TaskID: task.ID, MsgID: reply.ID, Data: data}); err != nil {
			t.Fatal(err)
		}
		_, err = client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: true})
		if believed := isRefused(err, envelope.CodeCancelled); believed != tt.believe {
			t.Errorf("%s %s from %s: %v", tt.kind, tt.code, tt.from, err)
		}
	}
}

// Who may not delete messages, or may not ask whether there are workers, tells a worker: the
// command is queued.
func TestWithoutPermissionACancelIsQueued(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for _, denied := range []string{"$JS.API.STREAM.MSG.DELETE.>", "$SRV.>"} {
		t.Run(denied, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
				{Name: "all", Password: "p"},
				{Name: "some", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{denied}}}},
			}})
			r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("all", "p"))}}
			if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{Map: r.m}); err != nil {
				t.Fatal(err)
			}
			client := r.laneOn(natstest.Conn(t, r.srv, nats.UserInfo("all", "p")), mesh.Config{Entity: ada})
			ops := r.laneOn(natstest.Conn(t, r.srv, nats.UserInfo("some", "p")), mesh.Config{Entity: operator})
			task := newTask("agent.ecoh", "code.review", `{}`)
			if denied == "$SRV.>" {
				r.listen("aee.ctl." + task.To) // a worker that does not answer in time
			}
			r.submit(client, task)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, _, err := canceltree.Cancel(ctx, ops, slog.New(slog.DiscardHandler), task.To, intents.CancelTask{ID: task.ID})
				ended <- err
			}()
			eventually(t, "the command is queued beside the task", func() bool { return r.queued() == 2 || len(ended) > 0 })
			if n := len(r.replies(task)); n != 0 {
				t.Errorf("the task is queued, and its sender has %d replies", n)
			}
			cancel()
			if err := within(t, "the end of the wait", ended); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
}

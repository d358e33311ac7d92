package mesh_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/canceltree"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// cutTree is a tree of three over both lanes, the middle of which has lost its
// worker: lead calls agent.middle, which calls agent.durable and agent.live.
type cutTree struct {
	*durableRig
	durable, live *leaf
	middle        mesh.Agent
	task          *envelope.Envelope
	began         []string
}

func newCutTree(t *testing.T, operators ...string) *cutTree {
	r := &cutTree{durableRig: newDurableRig(t).shortLeases(), durable: newLeaf(), live: newLeaf()}
	obeying := func(d *mesh.Durable) {
		if len(operators) > 0 {
			d.Operators = operators
		}
	}
	r.serve(r.lane(mesh.Config{}, obeying), mesh.Agent{Entity: "agent.durable", Handler: r.durable, Concurrency: 4})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.live", Handler: r.live, Concurrency: 4})
	r.middle = mesh.Agent{Entity: "agent.middle", Handler: fanning(mesh.Call{To: "agent.durable", Key: "1"}, mesh.Call{To: "agent.live", Key: "2"})}
	doomed := r.lane(mesh.Config{Drain: time.Millisecond})
	r.serve(doomed, r.middle)
	r.hears("agent.durable", "agent.middle")
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: "agent.middle", Key: "1"}, nil)})
	r.task = newTask(lead, "lead.work", `{}`)
	r.submit(r.client(), r.task)
	r.began = []string{within(t, "the durable leaf", r.durable.began), within(t, "the live leaf", r.live.began)}
	doomed.Conn().Close()
	return r
}

// An operator's cancel reaches the leaves of both lanes although there is no worker
// for the agent between, and says that one task waits for a worker of that.
func TestCancelTreeReachesTheLeavesBelowAnAgentThatNobodyServes(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newCutTree(t)
	got, below, err := canceltree.Cancel(ctxFor(t), r.client(), slog.New(slog.DiscardHandler), lead, intents.CancelTask{ID: r.task.ID, Reason: "wrong branch"})
	if err != nil || !got.Cancelled {
		t.Fatalf("%+v, %v", got, err)
	}
	stopped := []string{within(t, "the durable leaf to stop", r.durable.stopped), within(t, "the live leaf to stop", r.live.stopped)}
	equal(t, "stopped", stopped, r.began)
	if len(below.Waiting) != 1 || below.Waiting[0].Entity != "agent.middle" {
		t.Errorf("waiting %+v, want agent.middle's task", below.Waiting)
	}
	below.Waiting = nil
	equal(t, "below", below, canceltree.Below{Ended: 2})
	eventually(t, "only the middle is open", func() bool { return len(r.openRuns(lead, "agent.durable")) == 0 })

	r.serve(r.lane(mesh.Config{}), r.middle)
	r.drainedQueue()
	eventually(t, "no run is open", func() bool { return len(r.openRuns(lead, "agent.middle", "agent.durable")) == 0 })
}

// A worker may refuse a cancel for a while, as for a run that is still on its way to it. The cancel
// is queued for it then.
func TestCancelTreeQueuesWhatIsRefusedForAWhile(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newCutTree(t)
	if _, err := r.nc.Subscribe("aee.ctl.agent.middle", func(msg *nats.Msg) {
		refusal := parse(t, msg.Data).ReplyError(envelope.Errorf(envelope.CodeUnavailable, "not yet"))
		if err := msg.Respond(encode(t, refusal)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	_, below, err := canceltree.Cancel(ctxFor(t), r.client(), slog.New(slog.DiscardHandler), lead, intents.CancelTask{ID: r.task.ID})
	if err != nil || len(below.Waiting) != 1 || below.Waiting[0].Entity != "agent.middle" {
		t.Fatalf("%+v, %v; want agent.middle's task waiting", below, err)
	}
	queued := r.storedOn(jetstream.StreamWork, "aee.work.urgent.agent.middle")
	if !slices.ContainsFunc(queued, func(e *envelope.Envelope) bool { return e.Intent == intents.TaskCancel && e.From == ada }) {
		t.Errorf("in the queue of agent.middle: %+v, want the operator's cancel", queued)
	}
}

// A task below is listed as waiting only if its cancel is in the queue.
func TestCancelTreeSaysWhatItCouldNotQueue(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newCutTree(t)
	info, err := r.js(r.nc).Stream(ctxFor(t), jetstream.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	cfg := info.CachedInfo().Config
	cfg.MaxMsgSize = 1 // nothing can be queued
	if _, err := r.js(r.nc).UpdateStream(ctxFor(t), cfg); err != nil {
		t.Fatal(err)
	}
	_, below, err := canceltree.Cancel(ctxFor(t), r.client(), slog.New(slog.DiscardHandler), lead, intents.CancelTask{ID: r.task.ID})
	if err != nil || len(below.Waiting) != 0 || len(below.Failed) != 1 || below.Failed[0].Entity != "agent.middle" {
		t.Fatalf("%+v, %v; want agent.middle's task among those that failed", below, err)
	}
	below.Failed = nil
	equal(t, "below", below, canceltree.Below{Ended: 2})
}

// A caller who is no operator of the leaf's agent is told that it does not obey, and it
// goes on until a worker of the middle stops it.
func TestCancelTreeObeysOperatorsOnly(t *testing.T) {
	t.Parallel()
	r := newCutTree(t, "human.chief")
	_, below, err := canceltree.Cancel(ctxFor(t), r.client(), slog.New(slog.DiscardHandler), lead, intents.CancelTask{ID: r.task.ID})
	if err != nil {
		t.Fatal(err)
	}
	if len(below.Refused) != 1 || below.Refused[0] != (canceltree.Task{Entity: "agent.durable", TaskID: r.began[0]}) {
		t.Errorf("refused %+v, want the durable leaf", below.Refused)
	}
	if n := len(r.durable.stopped); n > 0 {
		t.Error("the durable leaf was stopped")
	}
	r.serve(r.lane(mesh.Config{}), r.middle)
	equal(t, "stopped", within(t, "the durable leaf to stop", r.durable.stopped), r.began[0])
}

// The root's own worker is gone: what is below it ends all the same, while its own
// cancel waits for a worker.
func TestCancelTreeBelowARootThatNobodyServes(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	end := newLeaf()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: end})
	r.hears(helper)
	doomed := r.lane(mesh.Config{Drain: time.Millisecond})
	root := mesh.Agent{Entity: lead, Handler: fanning(mesh.Call{To: helper, Key: "1"})}
	r.serve(doomed, root)
	client := r.client()
	task := newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	hop := within(t, "the hop", end.began)
	doomed.Conn().Close()
	type outcome struct {
		got intents.CommandResult
		err error
	}
	over := make(chan outcome, 1)
	go func() {
		got, _, err := canceltree.Cancel(ctxFor(t), client, slog.New(slog.DiscardHandler), lead, intents.CancelTask{ID: task.ID})
		over <- outcome{got, err}
	}()
	equal(t, "stopped", within(t, "the hop to stop", end.stopped), hop)
	r.serve(r.lane(mesh.Config{}), root)
	// The root's next worker reads the cancel, or the hop's E_CANCELLED first: then its handler
	// has failed when the cancel comes.
	if o := within(t, "the cancel's answer", over); o.err != nil || !o.got.Cancelled && o.got.Status != string(aaif.RunFailed) {
		t.Errorf("%+v", o)
	}
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeCancelled {
		t.Errorf("the root ended with %v", err)
	}
}

// An operator cannot end a live task that a client has sent: only hops.
func TestLiveTaskOfAnotherIsNoOperatorsToEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	end := newLeaf()
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: end})
	plain, hop := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	hop.ReplyTo = plain.ID
	for i, task := range []*envelope.Envelope{plain, hop} {
		answer := r.send(task)
		within(t, "the task", end.began)
		cancel := cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID))
		cancel.From = "human.eve"
		r.control(cancel)
		r.ping(reviewer)
		if i == 0 {
			empty(t, "a task of ada's", answer)
			r.control(cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID)))
		}
		within(t, "its end", answer)
	}
}

// A run that waits for a person has no message in the queue. If its agent has no worker, the
// cancel is queued: it is not taken for a cancel of a task that does not exist.
func TestACancelOfAWaitingRunThatNoWorkerServes(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	agent := mesh.Agent{Handler: asking{people: []string{bob}, timeout: time.Hour}}
	first := r.serve(r.lane(mesh.Config{}), agent)
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	r.asked(client, bob)
	r.waits(task)
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		got intents.CommandResult
		err error
	}
	over := make(chan outcome, 1)
	go func() {
		got, _, err := canceltree.Cancel(ctxFor(t), client, slog.New(slog.DiscardHandler), reviewer, intents.CancelTask{ID: task.ID})
		over <- outcome{got, err}
	}()
	eventually(t, "the cancel waits in the queue", func() bool {
		select {
		case o := <-over:
			t.Fatalf("%+v", o)
		default:
		}
		waiting := 0
		for _, priority := range subject.Priorities() {
			for _, err := range client.Durable().Queue.Peek(ctxFor(t), priority, reviewer, 0) {
				if err != nil {
					t.Fatal(err)
				}
				waiting++
			}
		}
		return waiting == 1
	})
	r.serve(r.lane(mesh.Config{}), agent)
	if o := within(t, "the cancel's answer", over); o.err != nil || !o.got.Cancelled {
		t.Errorf("%+v", o)
	}
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeCancelled {
		t.Errorf("the run ended with %v", err)
	}
}

// What a record names as its run's calls is what its agent wrote there. An operator's cancel ends
// none of the tasks that it names and that another caller sent, nor what is below them.
func TestCancelTreeEndsNoTasksOfOtherCallers(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newCutTree(t)
	eve := r.lane(mesh.Config{Entity: "human.eve"})
	task := func(to string) *envelope.Envelope {
		e := newTask(to, "leaf.work", `{}`)
		e.From = "human.eve"
		return e
	}
	ended, began, later, live := task("agent.durable"), task("agent.durable"), task("agent.durable"), task("agent.live")
	r.submit(eve, ended)
	within(t, "eve's first task", r.durable.began)
	if _, err := eve.Command(ctxFor(t), ended.To, intents.CancelTask{ID: ended.ID}); err != nil {
		t.Fatal(err)
	}
	within(t, "eve's first task to stop", r.durable.stopped)
	r.submit(eve, began)
	within(t, "eve's durable task", r.durable.began)
	eventually(t, "eve's task has a record", func() bool { return r.begun(began) != nil })
	live.ReplyTo = envelope.NewID() // a hop of another tree
	r.send(live)
	within(t, "eve's live task", r.live.began)
	middle := &envelope.Envelope{To: "agent.middle", ID: r.record(r.task).Mesh.Calls[0].ID}
	below := r.record(middle).Mesh.Calls
	r.rewrite(middle, func(c *state.Checkpoint) {
		c.Mesh.Calls = append([]state.Call{
			{Key: "3", To: "agent.durable", ID: began.ID}, {Key: "6", To: "agent.durable", ID: ended.ID}, {Key: "4", To: "agent.durable", ID: later.ID}, {Key: "5", To: "agent.live", ID: live.ID, Live: true},
		}, below...)
	})
	_, got, err := canceltree.Cancel(ctxFor(t), r.client(), slog.New(slog.DiscardHandler), lead, intents.CancelTask{ID: r.task.ID})
	refused := func(e *envelope.Envelope) bool {
		return slices.Contains(got.Refused, canceltree.Task{Entity: e.To, TaskID: e.ID})
	}
	if err != nil || len(got.Refused) != 2 || !refused(began) || !refused(ended) {
		t.Errorf("%+v, %v; want eve's tasks refused", got, err)
	}
	stopped := []string{within(t, "the durable leaf to stop", r.durable.stopped), within(t, "the live leaf to stop", r.live.stopped)}
	equal(t, "stopped", stopped, r.began)
	r.submit(eve, later)
	equal(t, "begun", within(t, "eve's later task", r.durable.began), later.ID)
	if n := len(r.durable.stopped) + len(r.live.stopped); n > 0 {
		t.Errorf("%d tasks of eve were stopped", n)
	}
	for _, e := range []*envelope.Envelope{began, later} {
		if _, err := eve.Command(ctxFor(t), e.To, intents.CancelTask{ID: e.ID}); err != nil {
			t.Error(err)
		}
	}
	r.control(cancelOf(live, fmt.Sprintf(`{"id":%q}`, live.ID)))
	within(t, "eve's live task to stop", r.live.stopped)
}

// A cancel may name the from of its task. It is no cancel of another caller's, on any way: of a task
// that runs, that is parked, that has not begun, and that is scheduled.
func TestACancelMayNameTheCallerOfItsTask(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s, Concurrency: 4})
	client := r.client()
	cancel := func(task *envelope.Envelope, from string) error {
		_, err := client.Command(ctxFor(t), reviewer, intents.CancelTask{ID: task.ID, From: from})
		return err
	}
	running, parked, scheduled, later := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	r.submitPaused(client, s, parked)
	eventually(t, "it is paused", func() bool { return r.record(parked).Doc.Status == aaif.RunPaused })
	r.submit(client, running)
	within(t, "the task", s.entered)
	if _, err := client.Submit(ctxFor(t), scheduled, mesh.SubmitOptions{At: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for name, task := range map[string]*envelope.Envelope{"running": running, "parked": parked, "scheduled": scheduled} {
		if err := cancel(task, "agent.middle"); codeOf(err) != envelope.CodeDenied {
			t.Errorf("%s, of another caller: %v, want %s", name, err, envelope.CodeDenied)
		}
		if err := cancel(task, ada); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := cancel(later, "agent.middle"); err != nil {
		t.Fatal(err)
	}
	r.submit(client, later)
	equal(t, "begun", within(t, "the later task", s.entered).Envelope.ID, later.ID)
	s.open()
	if _, err := r.result(client, later); err != nil {
		t.Errorf("the later task: %v", err)
	}
}

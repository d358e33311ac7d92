package mesh_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// sickly is a store that fails to read one run, until it is well.
type sickly struct {
	jetstream.RunStore
	run   atomic.Pointer[string]
	asked chan struct{}
}

func newSickly(run string) *sickly {
	s := &sickly{asked: make(chan struct{}, 1)}
	s.run.Store(&run)
	return s
}

func (s *sickly) Get(ctx context.Context, id state.ID) (state.Record, error) {
	if id.Run != *s.run.Load() {
		return s.RunStore.Get(ctx, id)
	}
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return state.Record{}, errors.New("a bad sector")
}

// The worker is busy, so it reads the orders in the queue without drawing them. One that cannot
// be applied for now is tried again, and does not hold up the next one.
func TestAnOrderThatFailsHoldsUpNoLaterOne(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	sick := newTask(reviewer, "code.review", `{}`)
	store := newSickly(state.RunID(reviewer, sick.ID))
	node := r.lane(mesh.Config{}, func(d *mesh.Durable) { store.RunStore, d.States = d.States, store })
	r.serve(node, mesh.Agent{Handler: willing{g}, Concurrency: 1})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	for _, id := range []string{sick.ID, task.ID} {
		order := newTask(reviewer, intents.TaskCancel, `{"id":"`+id+`","durable":true}`)
		order.Priority = envelope.PriorityUrgent
		r.submit(client, order)
		if id == sick.ID {
			within(t, "the order that fails", store.asked)
		}
	}
	_, err := r.result(client, task)
	equal(t, "code", codeOf(err), envelope.CodeCancelled)
}

// A cancel is answered when it is stored. Before that its worker may die, and the run go on.
func TestACancelThatIsNotStoredIsNotAnswered(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	store := &gated{came: make(chan struct{}, 10), open: make(chan struct{}, 10)}
	store.open <- struct{}{}
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { store.RunStore, d.States = d.States, store }), mesh.Agent{Handler: willing{g}})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the claim", store.came)
	within(t, "the task", g.entered)
	cancel := mesh.NewCommand(ada, reviewer, intents.CancelTask{ID: task.ID, Durable: true})
	if reply, err := client.TryCommand(ctxFor(t), cancel); !mesh.IsUnanswered(err) {
		t.Errorf("answered with %v, %v", reply, err)
	}
	close(store.open)
	r.cancelled(client, task)
	out, err := client.Command(ctxFor(t), reviewer, intents.CancelTask{ID: task.ID})
	if err != nil || out.Status != "failed" {
		t.Errorf("a second cancel: %+v, %v", out, err)
	}
}

// submitPaused submits a task and has its run paused by a command, after its first step.
func (r *durableRig) submitPaused(client *mesh.Node, s *stepper, task *envelope.Envelope) {
	r.t.Helper()
	r.submit(client, task)
	within(r.t, "the task", s.entered)
	r.command(client, intents.PauseTask{Target: target(task)})
	s.next <- struct{}{}
}

// An order that names a corr is for all runs with it: one that the worker does, and one that is
// parked.
func TestAnOrderForACorrReachesRunningAndParkedRuns(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s, Concurrency: 2})
	client := r.client()
	parked, running := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	running.Corr = parked.Corr
	r.submitPaused(client, s, parked)
	eventually(t, "it is paused", func() bool { return r.record(parked).Doc.Status == aaif.RunPaused })
	r.drainedQueue()
	r.submit(client, running)
	within(t, "the task", s.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(running) != nil })
	out := r.command(client, intents.CancelTask{Corr: parked.Corr})
	if !out.Cancelled || len(out.Runs) != 2 {
		t.Errorf("answer %+v", out)
	}
	r.cancelled(client, running)
	r.cancelled(client, parked)
}

// An order for a corr comes again as long as one of its runs cannot be read.
func TestAnOrderForACorrReachesARunThatIsReadLater(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s, store := newStepper(t, 1), newSickly("")
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { store.RunStore, d.States = d.States, store }), mesh.Agent{Handler: s})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	run := r.submit(client, task).Run
	within(t, "the task", s.entered)
	r.command(client, intents.PauseTask{Target: target(task)})
	s.next <- struct{}{}
	r.drainedQueue()
	equal(t, "status", r.record(task).Doc.Status, aaif.RunPaused)
	store.run.Store(&run)
	order := newTask(reviewer, intents.TaskResume, `{"corr":"`+task.Corr+`","durable":true}`)
	order.Priority = envelope.PriorityUrgent
	r.submit(client, order)
	within(t, "the read that fails", store.asked)
	var none string
	store.run.Store(&none)
	if reply, err := r.result(client, order); err != nil || member(t, reply.Payload, "resumed") != "true" {
		t.Errorf("result %v, %v", reply, err)
	}
	within(t, "the task", s.entered)
}

// A worker that draws an order for a task that another one has delegated passes it on: that one
// has not answered the order, though it is connected.
func TestAnOrderFromTheQueueFollowsADelegationOfAnotherWorker(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 1)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: s})
	first := r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
	client, task := r.client(), newTask("agent.a", "x.y.z", `{}`)
	r.submit(client, task)
	within(t, "agent.b has it", s.entered)
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.nc.Subscribe("$SRV.PING.agent-a."+r.record(task).Mesh.Owner, func(msg *nats.Msg) { _ = msg.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
	order := newTask("agent.a", intents.TaskSteer, `{"id":"`+task.ID+`","text":"be kind"}`)
	order.Priority = envelope.PriorityUrgent
	if _, reply, err := client.Perform(ctxFor(t), order, mesh.SubmitOptions{}, mesh.ResultOptions{}); err != nil || member(t, reply.Payload, "steered") != "true" {
		t.Errorf("the order: %v, %v", reply, err)
	}
	s.next <- struct{}{}
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"done":1,"heard":["be kind"]}` {
		t.Errorf("%v, %v", reply, err)
	}
}

// A cancel from the queue comes again if its run's end cannot be stored in time.
func TestACancelFromTheQueueComesAgainUntilItIsStored(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	g := newGate(t)
	store := &gated{came: make(chan struct{}, 10), open: make(chan struct{}, 10)}
	store.open <- struct{}{}
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { store.RunStore, d.States = d.States, store }), mesh.Agent{Handler: willing{g}, Concurrency: 2})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the claim", store.came)
	within(t, "the task", g.entered)
	acks := r.listen("$JS.ACK." + jetstream.StreamWork + ".urgent-agent=2Ereviewer.>")
	order := newTask(reviewer, intents.TaskCancel, `{"id":"`+task.ID+`","durable":true}`)
	order.Priority = envelope.PriorityUrgent
	r.submit(client, order)
	said := "+WPI"
	for said == "+WPI" {
		said = string(within(t, "an answer to the server", acks).Data)
	}
	if !strings.HasPrefix(said, "-NAK") {
		t.Errorf("the worker said %s", said)
	}
	close(store.open)
	r.cancelled(client, task)
	if reply, err := r.result(client, order); err != nil || member(t, reply.Payload, "cancelled") != "true" {
		t.Errorf("the order: %v, %v", reply, err)
	}
}

// An order for a run whose record no worker can read comes again less and less often: until a
// worker with the key comes, it can only fail.
func TestAnOrderForARunThatCannotBeReadComesLessOften(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	_, sealed := sealing(t)
	s := newStepper(t, 1)
	first := r.serve(r.lane(mesh.Config{}, sealed), mesh.Agent{Handler: s})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submitPaused(client, s, task)
	r.drainedQueue()
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	acks := r.listen("$JS.ACK.AEE_WORK.>")
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	order := newTask(reviewer, intents.TaskResume, `{"id":"`+task.ID+`","durable":true}`)
	order.Priority = envelope.PriorityUrgent
	r.submit(client, order)
	for _, delay := range []string{"1000000000", "2000000000"} {
		var said string
		for !strings.HasPrefix(said, "-NAK") {
			said = string(within(t, "the order to be returned", acks).Data)
		}
		equal(t, "returned", said, `-NAK {"delay":`+delay+`}`)
	}
	r.serve(r.lane(mesh.Config{}, sealed), mesh.Agent{Handler: echo})
	if reply, err := r.result(client, order); err != nil || member(t, reply.Payload, "resumed") != "true" {
		t.Errorf("result %v, %v", reply, err)
	}
}

// An order for a corr may meet a run of another sender. It is refused only if no run obeyed it;
// else the answer names those that did.
func TestAnOrderForACorrThatMeetsTheRunOfAnotherSender(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 2)
	noOperators := func(d *mesh.Durable) { d.Operators = []string{"human.chief"} }
	r.serve(r.lane(mesh.Config{}, noOperators), mesh.Agent{Handler: s, Concurrency: 2})
	client := r.client()
	mine, other := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	other.From, other.Corr = "human.eve", mine.Corr
	r.submit(client, other)
	within(t, "the task", s.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(other) != nil })
	pause := intents.PauseTask{Target: intents.Target{Corr: mine.Corr}}
	if _, err := client.Command(ctxFor(t), reviewer, pause); codeOf(err) != envelope.CodeDenied {
		t.Errorf("another's run alone: %v", err)
	}
	run := r.submit(client, mine).Run
	within(t, "the task", s.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(mine) != nil })
	if out, err := client.Command(ctxFor(t), reviewer, pause); err != nil || !out.Paused || len(out.Runs) != 1 || out.Runs[0] != run {
		t.Errorf("answer %+v, %v", out, err)
	}
}

// A command for a corr may not reach a run whose record the worker cannot read. The sender is
// told, though other runs obeyed, and the command comes again until a worker can read it.
func TestAnOrderForACorrWithARunThatCannotBeReadIsNotAnsweredAsDone(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	_, sealed := sealing(t)
	s := newStepper(t, 2)
	first := r.serve(r.lane(mesh.Config{}, sealed), mesh.Agent{Handler: s, Concurrency: 2})
	client := r.client()
	unread, other := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	for _, task := range []*envelope.Envelope{unread, other} {
		r.submitPaused(client, s, task)
	}
	r.drainedQueue()
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	second := r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s, Concurrency: 2})
	mine := newTask(reviewer, "code.review", `{}`)
	mine.Corr = unread.Corr
	r.submit(client, mine)
	within(t, "the task", s.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(mine) != nil })
	pause := intents.PauseTask{Target: intents.Target{Corr: unread.Corr}}
	if out, err := client.Command(ctxFor(t), reviewer, pause); codeOf(err) != envelope.CodeUnavailable || !strings.Contains(err.Error(), state.RunID(reviewer, unread.ID)) {
		t.Errorf("answer %+v, %v", out, err)
	}
	alone := newTask(reviewer, "code.review", `{}`) // of a corr of its own: the runs that cannot be read are others'
	r.submit(client, alone)
	within(t, "the task", s.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(alone) != nil })
	if out, err := client.Command(ctxFor(t), reviewer, intents.PauseTask{Target: intents.Target{Corr: alone.Corr}}); err != nil || !out.Paused {
		t.Errorf("answer %+v, %v", out, err)
	}
	s.next <- struct{}{}
	s.next <- struct{}{}
	if err := second.end(); err != nil {
		t.Fatal(err)
	}

	// From the queue.
	acks := r.listen("$JS.ACK.AEE_WORK.urgent-agent=2Ereviewer.>")
	order := newTask(reviewer, intents.TaskCancel, `{"corr":"`+unread.Corr+`","durable":true}`)
	order.Priority = envelope.PriorityUrgent
	r.submit(client, order)
	third := r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	said := "+WPI"
	for said == "+WPI" {
		said = string(within(t, "an answer to the server", acks).Data)
	}
	if !strings.HasPrefix(said, "-NAK") {
		t.Errorf("the worker said %s", said)
	}
	if err := third.end(); err != nil {
		t.Fatal(err)
	}
	r.serve(r.lane(mesh.Config{}, sealed), mesh.Agent{Handler: echo})
	if _, err := r.result(client, unread); codeOf(err) != envelope.CodeCancelled {
		t.Errorf("the run: %v", err)
	}
	if reply, err := r.result(client, order); err != nil || member(t, reply.Payload, "cancelled") != "true" {
		t.Errorf("the order: %v, %v", reply, err)
	}
}

// The record of a run may be damaged for good. A command for its corr is then refused, and not
// tried again.
func TestAnOrderForACorrWithADamagedRunIsRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s, Concurrency: 2})
	client := r.client()
	broken, mine := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	mine.Corr = broken.Corr
	r.submitPaused(client, s, broken)
	r.drainedQueue()
	rec := r.inStore(broken)
	r.inPlace(rec, []byte(`{"checksum":"sha256:none"}`))
	r.submit(client, mine)
	within(t, "the task", s.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(mine) != nil })
	pause := intents.PauseTask{Target: intents.Target{Corr: mine.Corr}}
	if out, err := client.Command(ctxFor(t), reviewer, pause); codeOf(err) != envelope.CodeInternal || !strings.Contains(err.Error(), rec.ID.Run) {
		t.Errorf("answer %+v, %v", out, err)
	}
	s.next <- struct{}{}
	eventually(t, "the other run obeys", func() bool { return r.record(mine).Doc.Status == aaif.RunPaused })
}

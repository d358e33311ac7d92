package mesh_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// stepper is a handler of steps: it commits one for each receive from next, and
// answers with how many it has committed in all and what it was told meanwhile.
type stepper struct {
	t       *testing.T
	next    chan struct{}
	entered chan *mesh.Task
	outcome chan error // of each commit
	steps   int
	once    sync.Once
}

func (s *stepper) open() { s.once.Do(func() { close(s.next) }) }

func newStepper(t *testing.T, steps int) *stepper {
	return &stepper{t: t, next: make(chan struct{}, 100), entered: make(chan *mesh.Task, 100), outcome: make(chan error, 100), steps: steps}
}

type stepperState struct {
	Done  int      `json:"done"`
	Heard []string `json:"heard"`
}

func (s *stepper) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	run := task.Run()
	s.entered <- task
	var at stepperState
	if loop := run.View().Mesh.Loop; loop != nil {
		if err := json.Unmarshal(loop, &at); err != nil {
			return nil, err
		}
	}
	for at.Done < s.steps {
		select {
		case <-s.next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		err := run.Commit(ctx, state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error {
			now := stepperState{Done: at.Done + 1, Heard: at.Heard}
			for _, m := range c.Mesh.Steering {
				now.Heard = append(now.Heard, m.Text)
			}
			c.Mesh.Steering = nil
			c.Mesh.Loop, _ = json.Marshal(now)
			return nil
		})
		s.outcome <- err
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(run.View().Mesh.Loop, &at); err != nil {
			return nil, err
		}
	}
	return json.Marshal(at)
}

func (r *durableRig) command(n *mesh.Node, cmd intents.Command) intents.CommandResult {
	r.t.Helper()
	out, err := n.Command(ctxFor(r.t), reviewer, cmd)
	if err != nil {
		r.t.Fatalf("%T: %v", cmd, err)
	}
	return out
}

func target(task *envelope.Envelope) intents.Target { return intents.Target{ID: task.ID} }

func (r *durableRig) cancelled(n *mesh.Node, task *envelope.Envelope) {
	r.t.Helper()
	reply, err := r.result(n, task)
	if codeOf(err) != envelope.CodeCancelled || reply == nil {
		r.t.Errorf("result %v, %v; want it cancelled", reply, err)
	}
	r.drainedQueue()
	equal(r.t, "replies", len(r.replies(task)), 1)
	equal(r.t, "status", r.record(task).Doc.Status, aaif.RunFailed)
}

func TestCancelOfARunningTask(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := willing{newGate(t)}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	run := r.submit(client, task).Run
	within(t, "the task", g.entered)
	out := r.command(client, intents.CancelTask{Run: run, Reason: "enough"})
	if !out.Cancelled || len(out.Runs) != 1 || out.Runs[0] != run {
		t.Errorf("answer %+v", out)
	}
	r.cancelled(client, task)
}

// All places are taken, so the task waits in the queue. The cancel is noted at
// once, and the worker that draws the task ends it.
func TestCancelOfAQueuedTask(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g})
	client := r.client()
	busy := newTask(reviewer, "code.review", `{}`)
	r.submit(client, busy)
	within(t, "the task", g.entered)
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	if out := r.command(client, intents.CancelTask{ID: task.ID}); !out.Cancelled {
		t.Errorf("answer %+v", out)
	}
	g.open()
	r.cancelled(client, task)
	if _, err := r.result(client, busy); err != nil {
		t.Error(err)
	}
	select {
	case <-g.entered:
		t.Error("the cancelled task was begun")
	default:
	}
}

// heldClaim is a store that stores the first record of a run and answers later.
type heldClaim struct {
	atOnce
	once   sync.Once
	stored chan struct{}
	answer chan struct{}
}

func (h *heldClaim) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	rev, err := h.RunStore.PutNoted(ctx, id, prev, data, note)
	h.once.Do(func() {
		close(h.stored)
		<-h.answer
	})
	return rev, err
}

// A command that comes while a worker claims its run is for that worker: its record has an
// owner, who does not have the run yet. The worker answers it, and it is not queued, unless the
// claim takes a third of a second more: so on a busy machine one of several attempts must do.
func TestACommandWhileARunIsClaimed(t *testing.T) {
	t.Parallel()
	for range 5 {
		if commandedWhileClaimed(t) {
			return
		}
	}
	t.Error("the command goes over the queue each time")
}

// commandedWhileClaimed steers a run while it is claimed, and reports whether its worker answers
// without the queue.
func commandedWhileClaimed(t *testing.T) bool {
	r := newDurableRig(t)
	g := newGate(t)
	store := &heldClaim{stored: make(chan struct{}), answer: make(chan struct{})}
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { store.RunStore, d.States = d.States, store }), mesh.Agent{Handler: g})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the claim", store.stored)
	ctl, queued, steered := r.listen("aee.ctl."+reviewer), r.listen("aee.work.urgent."+reviewer), make(chan struct{})
	go func() {
		defer close(steered)
		result, err := client.Command(ctxFor(t), reviewer, intents.SteerTask{Target: intents.Target{ID: task.ID}, Text: "be brief"})
		if err != nil || !result.Steered {
			t.Errorf("%+v, %v", result, err)
		}
	}()
	within(t, "the command", ctl)
	r.ping(reviewer) // the worker has the command
	close(store.answer)
	within(t, "the answer to the command", steered)
	settle(t, r.nc)
	within(t, "the run", g.entered)
	g.open()
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
	return len(queued) == 0
}

// A cancel that was not answered in time goes through the queue, too. It has been done.
func TestACancelThatComesTwiceIsDone(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the run", g.entered)
	twice(t, client, mesh.NewCommand(ada, reviewer, intents.CancelTask{ID: task.ID, Durable: true}), `"cancelled":true`)
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeCancelled {
		t.Error(err)
	}
}

// So has one that comes after its run was parked, and before the handler has returned.
func TestACancelOfARunThatWasJustParkedComesTwice(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	parked := make(chan struct{})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		err := task.Run().Park(ctx, aaif.RunPaused, nil)
		close(parked)
		pause.For(t.Context(), 300*time.Millisecond) // the cancel comes
		return nil, err
	})})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the run", parked)
	twice(t, client, mesh.NewCommand(ada, reviewer, intents.CancelTask{ID: task.ID, Durable: true}), `"cancelled":true`)
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeCancelled {
		t.Error(err)
	}
}

// tardy is a store that writes late.
type tardy struct{ atOnce }

func (s tardy) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	pause.For(ctx, 100*time.Millisecond)
	return s.RunStore.PutNoted(ctx, id, prev, data, note)
}

// A worker does not answer for the runs of another one, however late that one answers, or
// writes the first record of its run.
func TestTheOwnerAnswersACommandForACorr(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]func(*mesh.Durable){
		"late":             func(d *mesh.Durable) { d.States = tardy{atOnce{d.States}} },
		"without a record": func(*mesh.Durable) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			g := newGate(t)
			r.serve(r.lane(mesh.Config{}, owner), mesh.Agent{Handler: g})
			r.aged()
			client := r.client()
			task := newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			within(t, "the run", g.entered)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g})
			result, err := client.Command(ctxFor(t), reviewer, intents.PauseTask{Target: intents.Target{Corr: task.Corr}})
			if err != nil || !result.Paused {
				t.Errorf("%+v, %v", result, err)
			}
			g.open()
		})
	}
}

// A pause of a task that has not begun is noted, and a resume takes it back. What needs a
// run is refused: there is nothing yet that could be moved or settled.
func TestCommandsForATaskThatHasNotBegun(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	to := intents.Target{ID: task.ID, Durable: true}
	refused := func(when string, cmds ...intents.Command) {
		t.Helper()
		for _, cmd := range cmds {
			if out, err := client.Command(ctxFor(t), reviewer, cmd); codeOf(err) != envelope.CodeNotFound {
				t.Errorf("%s: %T is answered %+v, %v", when, cmd, out, err)
			}
		}
	}
	refused("unknown", intents.ResumeTask{Target: to}, intents.MigrateTask{Target: to, To: intents.MigrateAny})
	equal(t, "pause", r.command(client, intents.PauseTask{Target: to}).Status, "noted")
	refused("noted", intents.MigrateTask{Target: to, To: intents.MigrateAny}, intents.SettleTask{Target: to, Outcome: "done"})
	equal(t, "resume", r.command(client, intents.ResumeTask{Target: to}).Status, "noted")
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
}

// The task ends by a cancel that was noted before it came, and in the same
// moment another cancel finds it. It ends once.
func TestTwoCancelsEndATaskOnce(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newDurableRig(t)
	points := newPoints(t)
	r.serve(r.lane(mesh.Config{}, observing(points)), mesh.Agent{Handler: echo})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.command(client, intents.CancelTask{ID: task.ID, Durable: true})
	held := points.hold(mesh.PointBeforeTerminal)
	r.submit(client, task)
	release := within(t, "the end by the first cancel", held)
	if out := r.command(client, intents.CancelTask{ID: task.ID}); !out.Cancelled {
		t.Errorf("answer %+v", out)
	}
	close(release)
	r.cancelled(client, task)
	eventually(t, "the second cancel has been dealt with", func() bool {
		return slices.Contains(points.list(), mesh.PointAcked)
	})
	ends := 0
	history, err := jetstream.NewStates(r.js(r.nc), r.m).History(ctxFor(t), state.ID{Entity: reviewer, Run: state.RunID(reviewer, task.ID)})
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range history {
		if h, err := rec.Header(); err == nil && state.Terminal(h.Status) {
			ends++
		}
	}
	equal(t, "terminal checkpoints", ends, 1)
}

// A sender can name an id that never arrives: a command that is noted for it expires earlier than
// runs do, unless the task arrives.
func TestACommandForNobodysTaskIsNotKeptForLong(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.command(client, intents.SteerTask{Target: target(task), Text: "be kind"})
	ttl := func() string {
		stream, err := r.js(r.nc).Stream(ctxFor(t), "KV_"+jetstream.BucketState)
		if err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(ctxFor(t))
		if err != nil {
			t.Fatal(err)
		}
		msg, err := stream.GetMsg(ctxFor(t), info.State.LastSeq)
		if err != nil {
			t.Fatal(err)
		}
		return msg.Header.Get(natsjs.MsgTTLHeader)
	}
	equal(t, "time to live of the note", ttl(), "900")
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	equal(t, "time to live of the run", ttl(), "")
}

// Strangers' cancels are noted, because the task's sender is not known yet, and
// do nothing.
func TestAStrangersCancelOfAQueuedTaskIsIgnored(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g})
	client := r.client()
	r.submit(client, newTask(reviewer, "code.review", `{}`))
	within(t, "the task", g.entered)
	task := newTask(reviewer, "code.review", `{"n":2}`)
	r.submit(client, task)
	stranger := r.lane(mesh.Config{Entity: "service.stranger"})
	r.command(stranger, intents.CancelTask{ID: task.ID})
	g.open()
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":2}` {
		t.Errorf("result %v, %v", reply, err)
	}
	if _, err := stranger.Command(ctxFor(t), reviewer, intents.CancelTask{ID: task.ID}); codeOf(err) != envelope.CodeDenied {
		t.Errorf("a stranger's cancel of a run: %v", err)
	}
}

func TestPauseAndResumeAcrossWorkers(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 3)
	first := r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	begun := within(t, "the task", s.entered)
	events := r.events()
	if out := r.command(client, intents.PauseTask{Target: target(task)}); !out.Paused || out.Status != "pausing" {
		t.Errorf("answer %+v", out)
	}
	within(t, "that the handler is asked", begun.Run().StopRequested())
	s.next <- struct{}{}
	if err := within(t, "the commit", s.outcome); !isErr(err, mesh.ErrParked) {
		t.Fatalf("commit of a paused run: %v", err)
	}
	equal(t, "status told", member(t, r.event(events, intents.TaskParked).Payload, "status"), `"paused"`)
	r.drainedQueue()
	c := r.record(task)
	equal(t, "status", c.Doc.Status, aaif.RunPaused)
	equal(t, "loop", string(c.Mesh.Loop), `{"done":1,"heard":null}`) // the step counts
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{}); !isErr(err, mesh.ErrNoResult) {
		t.Errorf("result of a paused run: %v", err)
	}

	// Another worker, later: nothing happens until the run is resumed.
	s2 := newStepper(t, 3)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s2})
	if out := r.command(client, intents.ResumeTask{Target: intents.Target{Run: c.Doc.RunID}}); !out.Resumed || out.Status != "running" {
		t.Errorf("answer %+v", out)
	}
	again := within(t, "the task again", s2.entered)
	if !again.Run().Restored() {
		t.Error("the run does not know that it was restored")
	}
	s2.next <- struct{}{}
	s2.next <- struct{}{}
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"done":3,"heard":null}` {
		t.Errorf("result %v, %v", reply, err)
	}
	r.drainedQueue()
	equal(t, "replies", len(r.replies(task)), 1)
}

func TestCancelOfAPausedRun(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", s.entered)
	r.command(client, intents.PauseTask{Target: target(task)})
	s.next <- struct{}{}
	within(t, "the commit", s.outcome)
	r.drainedQueue()
	if out := r.command(client, intents.CancelTask{ID: task.ID, Reason: "no use"}); !out.Cancelled {
		t.Errorf("answer %+v", out)
	}
	r.cancelled(client, task)
	if out := r.command(client, intents.CancelTask{ID: task.ID}); out.Cancelled || out.Status != "failed" {
		t.Errorf("the second cancel: %+v", out)
	}
}

func TestSteering(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	run := within(t, "the task", s.entered).Run()
	for _, text := range []string{"be brief", "and kind"} {
		if out := r.command(client, intents.SteerTask{Target: target(task), Text: text}); !out.Steered {
			t.Errorf("answer %+v", out)
		}
	}
	if got := run.Steering(); len(got) != 2 || got[0].Text != "be brief" || got[0].From != ada || got[1].Text != "and kind" {
		t.Errorf("steering %+v", got)
	}
	s.next <- struct{}{}
	s.next <- struct{}{}
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"done":2,"heard":["be brief","and kind"]}` {
		t.Errorf("result %v, %v", reply, err)
	}
	equal(t, "commands", len(r.record(task).Mesh.Commands), 2)
}

// The agent has no worker when the commands come: they are durable tasks
// themselves, and wait for a worker.
func TestCommandsWithoutAWorkerAreDurable(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client := r.client()
	doomed, steered := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	r.submit(client, doomed)
	r.submit(client, steered)
	answers := make(chan error, 2)
	for _, cmd := range []intents.Command{
		intents.CancelTask{ID: doomed.ID}, intents.SteerTask{Target: target(steered), Text: "hello"},
	} {
		go func() {
			out, err := client.Command(ctxFor(t), reviewer, cmd)
			if err == nil && !out.Cancelled && !out.Steered {
				err = envelope.Errorf(envelope.CodeInternal, "%T: %+v", cmd, out)
			}
			answers <- err
		}()
	}
	eventually(t, "the commands are queued", func() bool { return r.queued() == 4 })
	s := newStepper(t, 1)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s})
	for range 2 {
		if err := within(t, "an answer", answers); err != nil {
			t.Error(err)
		}
	}
	for range 5 { // a step whose first checkpoint meets the command is done again
		s.next <- struct{}{}
	}
	r.cancelled(client, doomed)
	reply, err := r.result(client, steered)
	if err != nil || string(reply.Payload) != `{"done":1,"heard":["hello"]}` {
		t.Errorf("result %v, %v", reply, err)
	}
}

// What came with a signature obeys a signed word only, and operators are who
// the configuration says.
func TestWhoMayCommand(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	k := newKeys(t)
	signer := k.signer("ada", sign.Ed25519, "human.*")
	g := willing{newGate(t)}
	r.serve(r.lane(mesh.Config{Verifier: k.verifier()}, func(d *mesh.Durable) { d.Operators = []string{"service.ops"} }), mesh.Agent{Handler: g})
	signing := r.lane(mesh.Config{Entity: ada, Signer: signer, Verifier: k.verifier()})
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(signing, task)
	within(t, "the task", g.entered)
	for _, from := range []string{ada, "service.ops", reviewer, "human.bob"} {
		_, err := r.lane(mesh.Config{Entity: from}).Command(ctxFor(t), reviewer, intents.CancelTask{ID: task.ID})
		if codeOf(err) != envelope.CodeDenied {
			t.Errorf("unsigned cancel by %s: %v", from, err)
		}
	}
	if out := r.command(signing, intents.CancelTask{ID: task.ID}); !out.Cancelled {
		t.Errorf("signed cancel: %+v", out)
	}
	if _, err := signing.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: true}); codeOf(err) != envelope.CodeCancelled {
		t.Errorf("result: %v", err)
	}
}

// The control subject has no subscriber, and the only place is taken: the server mostly
// hands the command to the worker all the same, which gives it back, and reads it.
func TestABusyWorkerHearsACommandThatItGaveBack(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: willing{g}, Concurrency: 1})
	r.hears(reviewer)
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	r.ping(reviewer)
	acks := r.listen("$JS.ACK." + jetstream.StreamWork + ".urgent-agent=2Ereviewer.>")
	cancel := newTask(reviewer, intents.TaskCancel, `{"id":"`+task.ID+`","durable":true}`)
	cancel.Priority = envelope.PriorityUrgent
	r.submit(client, cancel)
	said := "+WPI" // the worker may renew its lease on the command before it answers
	for said == "+WPI" {
		said = string(within(t, "an answer to the server", acks).Data)
	}
	if said != "-NAK" && said != "+ACK" {
		t.Errorf("the worker said %s", said)
	}
	_, err := r.result(client, task)
	equal(t, "code", codeOf(err), envelope.CodeCancelled)
}

// The id of a command is the sender's choice: it must not be that of a dead letter's retry, on any
// way that a command takes.
func TestACommandWithTheIDOfARetryIsRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s, Steers: true})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", s.entered)
	s.next <- struct{}{}
	if err := within(t, "the step", s.outcome); err != nil {
		t.Fatal(err)
	}
	forged := func(id, copyOf, of string) *envelope.Envelope {
		e := mesh.NewCommand(ada, reviewer, intents.SteerTask{Target: intents.Target{ID: of, Durable: true, CopyOf: copyOf}, Text: "faster"})
		e.ID = id
		return e
	}
	refused := func(what string, err error) {
		t.Helper()
		if codeOf(err) != envelope.CodeRequires {
			t.Errorf("%s: %v, want %s", what, err, envelope.CodeRequires)
		}
	}
	_, err := client.TryCommand(ctxFor(t), forged("retry.10", "", task.ID))
	refused("live", err)
	_, err = client.TryCommand(ctxFor(t), forged(envelope.NewID(), "retry.11", task.ID))
	refused("a copy", err)
	_, err = client.TryCommand(ctxFor(t), forged("retry.12", "", envelope.NewID()))
	refused("noted", err)
	_, _, err = client.Perform(ctxFor(t), forged("retry.13", "", task.ID), mesh.SubmitOptions{}, mesh.ResultOptions{})
	refused("queued", err)
	if c := r.record(task); len(c.Mesh.Commands)+len(c.Mesh.Steering) > 0 {
		t.Errorf("commands %q, steering %+v", c.Mesh.Commands, c.Mesh.Steering)
	}
	s.open()
}

package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// A clerk does one thing: it ends with what it was told. Before that it stands
// still: until it may go on, or, where a call's outcome is unknown, until an operator
// settles it.
type clerk struct {
	begun   chan *mesh.Run
	unknown bool
	goOn    chan struct{} // closed: it need not stand still
}

func (k *clerk) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	run := task.Run()
	k.begun <- run
	c := run.View()
	switch {
	case k.unknown && len(c.Mesh.Effects) == 0:
		return nil, run.Park(ctx, aaif.RunAwaitingApproval, func(c *state.Checkpoint) error {
			c.Mesh.Effects = []state.Effect{{ID: "call-1", Tool: "pay", Key: state.EffectKey(run.ID(), 1, 1), Status: state.EffectUnknown}}
			c.Doc.ApprovalRequest = &aaif.ApprovalRequest{TriggerDescription: "The outcome of pay is unknown.", RequestedAt: state.Time(time.Now())}
			return nil
		})
	case !k.unknown:
		for waits := true; waits; {
			select {
			case <-k.goOn:
				waits = false
			case <-run.StopRequested():
				if err := run.Commit(ctx, state.Step{Kind: state.StepHandler}, nil); err != nil {
					return nil, err
				}
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	c = run.View()
	var told []string
	for _, s := range c.Mesh.Steering {
		told = append(told, s.Text)
	}
	settled := ""
	if len(c.Mesh.Effects) > 0 {
		settled = string(c.Mesh.Effects[0].Status)
	}
	return mustJSON(map[string]any{"told": told, "settled": settled}), nil
}

// commandsOf a table: each as it is sent about a task.
var commandsOf = map[string]func(intents.Target) intents.Command{
	"cancel": func(t intents.Target) intents.Command { return intents.CancelTask{ID: t.ID, Reason: "enough"} },
	"pause":  func(t intents.Target) intents.Command { return intents.PauseTask{Target: t} },
	"resume": func(t intents.Target) intents.Command { return intents.ResumeTask{Target: t} },
	"steer":  func(t intents.Target) intents.Command { return intents.SteerTask{Target: t, Text: "be brief"} },
	"settle": func(t intents.Target) intents.Command {
		return intents.SettleTask{Target: t, Call: "call-1", Outcome: intents.OutcomeDone}
	},
	"abort": func(t intents.Target) intents.Command { return intents.MigrateTask{Target: t, Abort: true} },
	"move":  func(t intents.Target) intents.Command { return intents.MigrateTask{Target: t, To: intents.MigrateAny} },
}

// newErrand is a voyage whose agent is a clerk, which has come to a status.
func newErrand(t *testing.T, was aaif.RunStatus, change ...func(*voyage)) (v *voyage, goOn func()) {
	t.Helper()
	may := make(chan struct{})
	v = newVoyage(t, append(change, func(v *voyage) {
		v.sourceHandler = &clerk{v.source.begun, was == aaif.RunAwaitingApproval, may}
		v.targetHandler = &clerk{v.target.begun, was == aaif.RunAwaitingApproval, may}
	})...)
	if was == aaif.RunPaused {
		if _, err := v.command(intents.PauseTask{Target: intents.Target{ID: v.task.ID}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it is "+string(was), func() bool { return v.berlin.begun(v.task) != nil && v.berlin.record(v.task).Doc.Status == was })
	if was != aaif.RunRunning {
		v.berlin.drainedQueue()
	}
	return v, func() { close(may) }
}

// help lets the run go on wherever it waits, as its sender would, until its end is
// heard. A run that cannot be helped is one that hangs.
func (v *voyage) help() {
	v.t.Helper()
	target := intents.Target{ID: v.task.ID}
	for {
		select {
		case <-v.heard.done:
			return
		default:
		}
		c := v.berlin.record(v.task)
		if c.Mesh.Migration.Away() {
			if c = v.inParis(); c == nil {
				continue
			}
		}
		switch c.Doc.Status { // what is refused is tried again
		case aaif.RunPaused:
			_, _ = v.command(intents.ResumeTask{Target: target})
		case aaif.RunAwaitingApproval:
			_, _ = v.command(intents.SettleTask{Target: target, Call: "call-1", Outcome: intents.OutcomeDone})
		}
		if !ticked(v.t) {
			v.t.Fatalf("the run hangs: in berlin %s, in paris %+v", v.berlin.record(v.task).Doc.Status, v.inParis())
		}
	}
}

// ticked waits a little, as long as the test has time.
func ticked(t *testing.T) bool {
	tick := time.NewTimer(20 * time.Millisecond)
	defer tick.Stop()
	select {
	case <-tick.C:
		return true
	case <-t.Context().Done():
		return false
	}
}

// D5 of the reliability review, and each command besides: whatever a run was doing
// before it was asked to move, wherever it is on its way, and whether the way is
// open, a command that was answered as done has its effect, and the run goes on.
func TestCommandsAboutARunThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	for was, points := range map[aaif.RunStatus][]mesh.Point{
		aaif.RunRunning:          {mesh.PointOffer, mesh.PointStaged},
		aaif.RunPaused:           {mesh.PointDelivered, mesh.PointOffer, mesh.PointStaged},
		aaif.RunAwaitingApproval: {mesh.PointDelivered, mesh.PointOffer, mesh.PointStaged},
	} {
		if testing.Short() && was != aaif.RunRunning {
			continue
		}
		for _, at := range points {
			for name, command := range commandsOf {
				for _, down := range []bool{false, true} {
					if down && at != mesh.PointOffer {
						continue // nothing is sent after it, or all of it has been
					}
					t.Run(fmt.Sprintf("%s, %s, %s, down %t", was, at, name, down), func(t *testing.T) {
						t.Parallel()
						commanded(t, was, at, command, down)
					})
				}
			}
		}
	}
}

func commanded(t *testing.T, was aaif.RunStatus, at mesh.Point, command func(intents.Target) intents.Command, down bool) {
	v, goOn := newErrand(t, was)
	held := v.sourceAt.hold(at)
	v.move()
	release := within(t, "the point", held)
	cmd := command(intents.Target{ID: v.task.ID})
	result, err := v.command(cmd)
	var refused *envelope.Error
	if err != nil && !errors.As(err, &refused) {
		t.Fatal(err)
	}
	v.gate.down.Store(down)
	close(release)
	if result.Paused { // and stays so, wherever it is
		eventually(t, "it is paused", func() bool {
			c := v.berlin.record(v.task)
			if p := v.inParis(); c.Mesh.Migration.Phase == state.PhaseRelaying && p != nil {
				c = p
			}
			return c.Doc.Status == aaif.RunPaused
		})
	}
	goOn()
	v.help()
	want := map[string]any{"told": nil, "settled": ""}
	switch cmd.(type) {
	case intents.CancelTask:
		if !result.Cancelled || codeOf(v.heard.err) != envelope.CodeCancelled {
			t.Errorf("cancel: %+v, %v; the caller hears %v", result, err, v.heard.err)
		}
		return
	case intents.SteerTask:
		if !result.Steered {
			t.Errorf("steer: %+v, %v", result, err)
		}
		want["told"] = []string{"be brief"}
	case intents.SettleTask:
		if result.Settled != (was == aaif.RunAwaitingApproval) {
			t.Errorf("settle: %+v, %v", result, err)
		}
	case intents.MigrateTask:
		if mv := cmd.(intents.MigrateTask); mv.Abort != result.Migrating {
			t.Errorf("abort %t: %+v, %v", mv.Abort, result, err)
		}
	}
	if was == aaif.RunAwaitingApproval {
		want["settled"] = "done"
	}
	if v.heard.err != nil || string(v.heard.reply.Payload) != string(mustJSON(want)) {
		t.Errorf("the caller hears %v, %v; want %s", v.heard.reply, v.heard.err, mustJSON(want))
	}
}

// newArrival is an errand that paris has prepared, and not accepted yet.
func newArrival(t *testing.T) (v *voyage, goOn, accept func()) {
	t.Helper()
	prepared, release := make(chan struct{}), make(chan struct{})
	accept = sync.OnceFunc(func() { close(release) })
	t.Cleanup(accept)
	first := sync.OnceFunc(func() { close(prepared); <-release })
	v, goOn = newErrand(t, aaif.RunRunning, func(v *voyage) {
		v.receiverAt = func(phase state.Phase, done bool) {
			if phase == state.PhaseAccepted && !done {
				first()
			}
		}
	})
	v.move()
	within(t, "the run in paris", prepared)
	return v, goOn, accept
}

// The sender of a run's task may send the task to the target as well, before the target has accepted
// the run. The message waits: a worker that began the run would be its second owner. When the
// handoff is accepted, the message is superfluous.
func TestTheTaskOfARunThatArrivesIsSentToTheTarget(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	v, goOn, accept := newArrival(t)
	before, acks := v.inParis(), listenOn(t, v.paris.nc, "$JS.ACK.>")
	node := v.paris.lane(mesh.Config{Entity: ada, Verifier: sign.Verifier{Ring: v.parisKeys}})
	if _, err := node.Submit(ctxFor(t), v.task, mesh.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case ack := <-acks:
		if !strings.HasPrefix(string(ack.Data), "-NAK") {
			t.Errorf("the worker answers %s", ack.Data)
		}
	case <-v.target.begun:
		t.Error("the run has begun in paris")
	case <-t.Context().Done():
		t.Fatal("the worker has not answered")
	}
	if now := v.inParis(); now.Doc.Status != aaif.RunMigrating || now.Doc.StateID != before.Doc.StateID {
		t.Errorf("the run in paris has changed: %s, %+v", now.Doc.Status, now.Mesh.Step)
	}
	accept()
	goOn()
	v.help()
	if v.heard.err != nil {
		t.Error(v.heard.err)
	}
	v.paris.drainedQueue()
}

// Before the target has accepted a run, its record is there, and each command for it is refused there:
// the run may still go back. When it is accepted, it goes on as if the command had not been sent.
func TestCommandsAtTheTargetBeforeItHasAcceptedTheRun(t *testing.T) {
	t.Parallel()
	for name, command := range commandsOf {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, goOn, accept := newArrival(t)
			before := v.inParis()
			node := v.paris.lane(mesh.Config{Entity: ada, Verifier: sign.Verifier{Ring: v.parisKeys}})
			result, err := node.Command(ctxFor(t), reviewer, command(intents.Target{ID: v.task.ID}))
			if codeOf(err) != envelope.CodeUnavailable {
				t.Errorf("%+v, %v", result, err)
			}
			if now := v.inParis(); now.Doc.Status != aaif.RunMigrating || now.Doc.StateID != before.Doc.StateID {
				t.Errorf("the run in paris has changed: %s, %+v", now.Doc.Status, now.Mesh.Step)
			}
			accept()
			goOn()
			v.help()
			if want := `{"settled":"","told":null}`; v.heard.err != nil || string(v.heard.reply.Payload) != want {
				t.Errorf("the caller hears %v, %v; want %s", v.heard.reply, v.heard.err, want)
			}
		})
	}
}

// The same holds for a command that names the run by its correlation.
func TestACommandByCorrelationAtTheTargetBeforeItHasAcceptedTheRun(t *testing.T) {
	t.Parallel()
	v, goOn, accept := newArrival(t)
	node := v.paris.lane(mesh.Config{Entity: ada, Verifier: sign.Verifier{Ring: v.parisKeys}})
	result, err := node.Command(ctxFor(t), reviewer, intents.CancelTask{Corr: v.task.Corr})
	if codeOf(err) != envelope.CodeUnavailable {
		t.Errorf("%+v, %v", result, err)
	}
	accept()
	goOn()
	v.help()
	if want := `{"settled":"","told":null}`; v.heard.err != nil || string(v.heard.reply.Payload) != want {
		t.Errorf("the caller hears %v, %v; want %s", v.heard.reply, v.heard.err, want)
	}
}

// In the queue a command waits until the run has begun, whether it names the run by its task or by
// its correlation.
func TestACommandInTheQueueWaitsForARunThatArrives(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for name, command := range map[string]func(*envelope.Envelope) intents.Command{
		"id":   func(task *envelope.Envelope) intents.Command { return intents.CancelTask{ID: task.ID} },
		"corr": func(task *envelope.Envelope) intents.Command { return intents.CancelTask{Corr: task.Corr} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, _, accept := newArrival(t)
			acks := listenOn(t, v.paris.nc, "$JS.ACK.>")
			node := v.paris.lane(mesh.Config{Entity: ada, Verifier: sign.Verifier{Ring: v.parisKeys}})
			if _, err := node.Submit(ctxFor(t), mesh.NewCommand(ada, reviewer, command(v.task)), mesh.SubmitOptions{}); err != nil {
				t.Fatal(err)
			}
			if ack := within(t, "the worker's answer", acks); !strings.HasPrefix(string(ack.Data), "-NAK") {
				t.Errorf("the worker answers %s", ack.Data)
			}
			accept()
			within(t, "the reply", v.heard.done)
			if codeOf(v.heard.err) != envelope.CodeCancelled {
				t.Errorf("the caller hears %v, %v", v.heard.reply, v.heard.err)
			}
			v.paris.drainedQueue()
		})
	}
}

// A run that was wedged so, by an earlier release, goes on when it is resumed.
func TestARunThatAwaitsNothingIsResumed(t *testing.T) {
	t.Parallel()
	v, goOn := newErrand(t, aaif.RunAwaitingApproval)
	goOn()
	store := jetstream.NewStates(v.berlin.js(v.berlin.nc), v.berlin.m)
	id := state.ID{Entity: reviewer, Run: state.RunID(reviewer, v.task.ID)}
	rec, err := store.Get(ctxFor(t), id)
	if err != nil {
		t.Fatal(err)
	}
	c := v.berlin.record(v.task)
	if _, err := c.Settle("call-1", string(intents.OutcomeDone), nil, "", ada, time.Now()); err != nil {
		t.Fatal(err)
	}
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(ctxFor(t), id, rec.Revision, data); err != nil {
		t.Fatal(err)
	}
	result, err := v.command(intents.ResumeTask{Target: intents.Target{ID: v.task.ID}})
	if err != nil || !result.Resumed {
		t.Fatalf("%+v, %v", result, err)
	}
	within(t, "the reply", v.heard.done)
	if v.heard.err != nil {
		t.Error(v.heard.err)
	}
}

// A run that waits for a person's word is not resumed without it.
func TestARunWhoseCallIsUnknownIsNotResumed(t *testing.T) {
	t.Parallel()
	v, goOn := newErrand(t, aaif.RunAwaitingApproval)
	goOn()
	if result, err := v.command(intents.ResumeTask{Target: intents.Target{ID: v.task.ID}}); err != nil || result.Resumed {
		t.Errorf("%+v, %v", result, err)
	}
	v.help()
}

// A pause that was asked for while a run waited goes along.
func TestAWishToPauseGoesToAnotherPlatform(t *testing.T) {
	t.Parallel()
	v, goOn := newErrand(t, aaif.RunAwaitingApproval)
	goOn()
	target := intents.Target{ID: v.task.ID}
	if _, err := v.command(intents.PauseTask{Target: target}); err != nil {
		t.Fatal(err)
	}
	v.move()
	eventually(t, "it is in paris", func() bool { return v.berlin.record(v.task).Mesh.Migration.Phase == state.PhaseRelaying })
	if result, err := v.command(intents.SettleTask{Target: target, Call: "call-1", Outcome: intents.OutcomeDone}); err != nil || !result.Settled {
		t.Fatalf("settle: %+v, %v", result, err)
	}
	eventually(t, "it is paused", func() bool { return v.inParis().Doc.Status == aaif.RunPaused })
	v.help()
}

// A command that is not answered in time goes through the queue, too, though the other
// platform may have it already.
func TestACommandThatComesTwiceIsAppliedOnceOnAnotherPlatform(t *testing.T) {
	t.Parallel()
	v, goOn := newErrand(t, aaif.RunRunning)
	v.move()
	eventually(t, "it is in paris", func() bool { return v.berlin.record(v.task).Mesh.Migration.Phase == state.PhaseRelaying })
	steer := intents.SteerTask{Target: intents.Target{ID: v.task.ID, Durable: true}, Text: "be brief"}
	twice(t, v.client, mesh.NewCommand(ada, reviewer, steer), `"steered":true`)
	goOn()
	within(t, "the reply", v.heard.done)
	if v.heard.err != nil || string(v.heard.reply.Payload) != `{"settled":"","told":["be brief"]}` {
		t.Errorf("%v, %v", v.heard.reply, v.heard.err)
	}
}

// The worker that was to move a run died between its record and its message: the
// sweep sees to it.
func TestAMoveWithoutAMessageIsSweptUp(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	v, goOn := newErrand(t, aaif.RunPaused, shortLeases, func(v *voyage) { v.sweep = 50 * time.Millisecond })
	goOn()
	store := jetstream.NewStates(v.berlin.js(v.berlin.nc), v.berlin.m)
	id := state.ID{Entity: reviewer, Run: state.RunID(reviewer, v.task.ID)}
	ask := func() {
		rec, err := store.Get(ctxFor(t), id)
		if err != nil {
			t.Fatal(err)
		}
		c, err := state.Codec{}.Read(rec)
		if err != nil {
			t.Fatal(err)
		}
		c.Mesh.Migration = &state.Migration{ID: state.RunID(reviewer, envelope.NewID()), Phase: state.PhaseAsked, To: v.server.URL, Status: aaif.RunPaused, Since: time.Now()}
		c.Doc.Status, c.Mesh.Owner, c.Mesh.Work = aaif.RunMigrating, "", 0
		c.Mesh.Epoch++
		data, err := state.Codec{}.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(ctxFor(t), id, rec.Revision, data); err != nil && !errors.Is(err, state.ErrChanged) {
			t.Fatal(err)
		}
	}
	// Paris refuses a run of an agent whose workers do not answer in time. Then it is asked again.
	eventually(t, "it is in paris", func() bool {
		m := v.berlin.record(v.task).Mesh.Migration
		if m == nil || m.Phase == state.PhaseAborted {
			ask()
			return false
		}
		return m.Phase == state.PhaseRelaying
	})
	v.help()
}

package mesh_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// uncertain parks its run with a call whose outcome is unknown,
// and answers with who goes on when that was settled.
type uncertain struct {
	name  string
	begun chan struct{} // receives when the call has begun; nil: it is lost at once
	lost  chan struct{}
}

func (u uncertain) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	run := task.Run()
	effect := state.Effect{ID: "call-1", Tool: "pay", Key: state.EffectKey(run.ID(), 1, 1)}
	if found := run.View().Effect(effect.Key); found != nil && found.Status.Final() {
		return mustJSON(map[string]string{"by": u.name}), nil
	}
	set := func(status state.EffectStatus) func(*state.Checkpoint) error {
		return func(c *state.Checkpoint) error {
			effect.Status = status
			c.Mesh.Effects = []state.Effect{effect}
			return nil
		}
	}
	if u.begun != nil {
		if err := run.Commit(ctx, state.Step{Kind: state.StepIntent, Name: "pay"}, set(state.EffectInFlight)); err != nil {
			return nil, err
		}
		u.begun <- struct{}{}
		select {
		case <-u.lost:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, run.Park(ctx, aaif.RunAwaitingApproval, set(state.EffectUnknown))
}

func settled(to intents.Target) intents.Command {
	return intents.SettleTask{Target: to, Call: "call-1", Outcome: intents.OutcomeDone, Result: json.RawMessage(`{}`)}
}

// A result that is no JSON is refused before the command is sent.
func TestSettleWithAResultThatIsNoJSON(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	to := intents.Target{ID: envelope.NewID()}
	client, settle := r.client(), intents.SettleTask{Target: to, Outcome: intents.OutcomeDone, Result: json.RawMessage("ok")}
	_, err := client.Command(ctxFor(t), reviewer, settle)
	if err == nil || !strings.Contains(err.Error(), "mesh.task.settle to agent.reviewer: json: error calling MarshalJSON") {
		t.Error(err)
	}
	if _, err := client.TryCommand(ctxFor(t), mesh.NewCommand(ada, reviewer, settle)); err == nil || !strings.Contains(err.Error(), "payload must be a JSON object") {
		t.Errorf("an envelope without a payload: %v", err)
	}
}

// A run that waits for a person to settle a call, and is told to pause meanwhile
// or was before, does not go on when the call is settled.
func TestPauseOfARunWithACallToSettle(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"before it waits": true, "while it waits": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			u := uncertain{name: "one"}
			if before {
				u.begun, u.lost = make(chan struct{}, 1), make(chan struct{})
			}
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: u})
			client := r.client()
			task := newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			if before {
				within(t, "the call", u.begun)
			} else {
				r.waits(task)
			}
			out := r.command(client, intents.PauseTask{Target: target(task), Reason: "let me look"})
			equal(t, "who asked, and why", r.record(task).Mesh.Step.Detail, "asked by human.ada: let me look")
			if !out.Paused {
				t.Errorf("pause: %+v", out)
			}
			if before {
				close(u.lost)
				r.waits(task)
			}
			if out := r.command(client, settled(target(task))); !out.Settled {
				t.Errorf("settle: %+v", out)
			}
			eventually(t, "the run is paused", func() bool { return r.record(task).Doc.Status == aaif.RunPaused })
			r.drainedQueue()
			if out := r.command(client, intents.ResumeTask{Target: target(task)}); !out.Resumed {
				t.Errorf("resume: %+v", out)
			}
			if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"by":"one"}` {
				t.Errorf("result %v, %v", reply, err)
			}
		})
	}
}

// A pause of a run that waits can be taken back before it has begun.
func TestResumeTakesAPauseBack(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: uncertain{name: "one"}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	r.waits(task)
	r.command(client, intents.PauseTask{Target: target(task)})
	if out := r.command(client, intents.ResumeTask{Target: target(task)}); !out.Resumed || out.Status != string(aaif.RunAwaitingApproval) {
		t.Errorf("resume: %+v", out)
	}
	r.command(client, settled(target(task)))
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"by":"one"}` {
		t.Errorf("result %v, %v", reply, err)
	}
}

// A run that is asked to move while it waits for a call to be settled moves then.
func TestASettledRunMoves(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: uncertain{name: "one"}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	r.waits(task)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: uncertain{name: "two"}})
	r.instance(r.nc, client, r.instance(r.nc, client))
	if out := r.command(client, intents.MigrateTask{Target: target(task), To: intents.MigrateAny}); !out.Migrating {
		t.Errorf("migrate: %+v", out)
	}
	r.command(client, settled(target(task)))
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	equal(t, "phase", r.record(task).Mesh.Migration.Phase, state.PhaseMoved)
}

// A move that is asked for is not taken back by a resume, which takes back pauses.
func TestAResumeLeavesAMoveAlone(t *testing.T) {
	t.Parallel()
	m := newMovement(t)
	m.source.speak(2 * wordsInTurn)
	call := within(t, "the tool call", m.source.tools)
	m.move(m.targetID)
	m.command(m.client, intents.ResumeTask{Target: target(m.task)})
	close(call)
	within(t, "the target", m.target.begun)
	m.finish("target")
}

// pauseAndMove asks for both while a tool is called, so that the run stops for
// neither in between.
func (m *movement) pauseAndMove(to string, moveFirst bool) {
	m.t.Helper()
	m.source.speak(2 * wordsInTurn)
	call := within(m.t, "the tool call", m.source.tools)
	if moveFirst {
		m.move(to)
	}
	m.command(m.client, intents.PauseTask{Target: target(m.task)})
	if !moveFirst {
		m.move(to)
	}
	close(call)
}

// A pause and a move may both be asked for, in either order: within the mesh the
// run pauses, and moves when it is resumed.
func TestAPauseAndAMove(t *testing.T) {
	t.Parallel()
	for name, moveFirst := range map[string]bool{"move, pause": true, "pause, move": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMovement(t)
			m.pauseAndMove(m.targetID, moveFirst)
			eventually(t, "the run is paused", func() bool { return m.record(m.task).Doc.Status == aaif.RunPaused })
			equal(t, "phase", m.phase(), state.PhaseAsked)
			m.command(m.client, intents.ResumeTask{Target: target(m.task)})
			within(t, "the target", m.target.begun)
			m.finish("target")
		})
	}
}

// A run that is asked to leave the mesh, and to pause, leaves it as one that is
// paused; if it is taken back it is paused here.
func TestAPauseGoesAlongOutOfTheMesh(t *testing.T) {
	t.Parallel()
	for name, moveFirst := range map[string]bool{"move, pause": true, "pause, move": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMovement(t)
			m.pauseAndMove(intents.MigrateFile, moveFirst)
			eventually(t, "the run stands still", func() bool { return m.phase() == state.PhaseCaptured })
			c := m.record(m.task)
			equal(t, "what it was", c.Mesh.Migration.Status, aaif.RunPaused)
			m.command(m.client, intents.MigrateTask{Target: target(m.task), Abort: true})
			equal(t, "status", m.record(m.task).Doc.Status, aaif.RunPaused)
			m.command(m.client, intents.ResumeTask{Target: target(m.task)})
			within(t, "it goes on", firstOfBoth(m.source.begun, m.target.begun))
			m.source.speak(100)
			m.target.speak(100)
			within(t, "the reply", m.heard.done)
			equal(t, "text", m.heard.text, whole())
		})
	}
}

// What stands still to be moved cannot be paused, and is not said to be.
func TestPauseOfARunThatStandsStill(t *testing.T) {
	t.Parallel()
	m := newMovement(t)
	m.source.speak(1)
	within(t, "a word", m.source.told)
	m.move(intents.MigrateFile)
	eventually(t, "the run stands still", func() bool { return m.phase() == state.PhaseCaptured })
	if out := m.command(m.client, intents.PauseTask{Target: target(m.task)}); out.Paused || out.Status != string(aaif.RunMigrating) {
		t.Errorf("pause: %+v", out)
	}
}

// firstOfBoth receives what comes first on either.
func firstOfBoth(a, b chan *mesh.Run) <-chan *mesh.Run {
	out := make(chan *mesh.Run, 1)
	go func() {
		select {
		case r := <-a:
			out <- r
		case r := <-b:
			out <- r
		}
	}()
	return out
}

package mesh_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// unconfirmed is a JetStream that stores what is published on a subject, and does not
// say so.
type unconfirmed struct {
	natsjs.JetStream
	subject string
	stored  chan struct{}
}

func (u unconfirmed) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	ack, err := u.JetStream.PublishMsg(ctx, msg, opts...)
	if err != nil || msg.Subject != u.subject {
		return ack, err
	}
	u.stored <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A run that is asked to stop while it sends a call does not cancel the call: it goes on
// later, and waits for the same answer. The cluster soak found teams that ended with
// E_CANCELLED, because a worker was restarted in that moment.
//
// A callee that has ended by then may have left nothing but its reply. The caller takes
// that, even if it words the call differently now, and sends nothing.
func TestACallIsNotCancelledThatIsInterruptedWhileItIsSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		ended bool // the callee has ended when the run goes on
	}{{"the callee works", false}, {"the callee has ended", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			to, err := r.m.Work("normal", helper)
			if err != nil {
				t.Fatal(err)
			}
			nc, stored, ended := natstest.Conn(t, r.srv), make(chan struct{}, 2), make(chan error, 2)
			hops := newGate(t)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: hops})
			r.serve(r.laneOn(nc, mesh.Config{}, func(d *mesh.Durable) {
				d.Queue = jetstream.NewQueue(unconfirmed{r.js(nc), to, stored}, r.m)
			}), mesh.Agent{Entity: lead, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				payload := task.Envelope.Payload
				if c.ended && task.Run().Restored() {
					payload = json.RawMessage(`{"n":2}`)
				}
				_, err := task.Call(ctx, mesh.Call{To: helper, Key: "one", Payload: payload})
				ended <- err
				if isErr(err, mesh.ErrInterrupted) {
					return nil, task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil)
				}
				return json.RawMessage(`{}`), err
			})})
			r.agedOf(helper)
			client, task := r.client(), newTask(lead, "lead.work", `{"n":1}`)
			r.submit(client, task)
			within(t, "the call", stored)
			call := within(t, "the helper", hops.entered)
			states, callee := jetstream.NewStates(r.js(r.nc), r.m), state.ID{Entity: helper, Run: state.RunID(helper, call.Envelope.ID)}
			if c.ended {
				hops.open()
				eventually(t, "the callee ends", func() bool {
					rec, err := states.Get(ctxFor(t), callee)
					return err == nil && rec.End != nil
				})
			} else {
				eventually(t, "the callee's claim", func() bool {
					_, err := states.Get(ctxFor(t), callee)
					return err == nil
				})
			}
			if _, err := client.Command(ctxFor(t), lead, intents.PauseTask{Target: target(task)}); err != nil {
				t.Fatal(err)
			}
			if err := within(t, "the end of the call", ended); !isErr(err, mesh.ErrInterrupted) {
				t.Errorf("the call ended with %v", err)
			}
			if _, err := client.Command(ctxFor(t), lead, intents.ResumeTask{Target: target(task)}); err != nil {
				t.Fatal(err)
			}
			hops.open()
			if reply, err := r.result(client, task); err != nil {
				t.Errorf("%v, %v", reply, err)
			}
			if len(stored) > 0 {
				t.Error("the call was sent again")
			}
		})
	}
}

// callsAndStops is an agent that calls the helper, and stops amid the call if the run is asked to. It
// notes the answer.
var callsAndStops = mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	for {
		answer, err := task.Call(ctx, mesh.Call{To: helper, Key: "one", Payload: task.Envelope.Payload})
		switch {
		case err == nil:
			return answer.Envelope.Payload, task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error {
				c.SetVariable("answer", []byte(answer.Envelope.Payload))
				return nil
			})
		case !isErr(err, mesh.ErrInterrupted):
			return nil, err
		}
		if err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil); err != nil {
			return nil, err
		}
	}
})

// A move out of the mesh waits for the call that the run makes, and a pause that comes then waits
// with it: it would go along. If the move is taken back, the pause is carried out at once.
func TestAPauseIsCarriedOutWhenTheMoveItWaitedForIsTakenBack(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	help := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: help})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: callsAndStops})
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	within(t, "the helper", help.entered)
	r.command(client, intents.MigrateTask{Target: target(task), To: intents.MigrateFile, Platform: "other"})
	equal(t, "status", r.command(client, intents.PauseTask{Target: target(task)}).Status, "pausing")
	r.command(client, intents.MigrateTask{Target: target(task), Abort: true})
	eventually(t, "the run is paused", func() bool { return r.record(task).Doc.Status == aaif.RunPaused })
	help.open()
	r.command(client, intents.ResumeTask{Target: target(task)})
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("%v, %v", reply, err)
	}
}

// A run that is paused amid a call, and one whose worker has stopped amid it, leave the mesh when they
// have read the answer.
func TestARunThatStoppedAmidACallReadsTheAnswerBeforeItLeavesTheMesh(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	help := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: help})
	stop := r.serving(r.lane(mesh.Config{}), mesh.Agent{Handler: callsAndStops})
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	within(t, "the helper", help.entered)
	r.command(client, intents.PauseTask{Target: target(task)})
	eventually(t, "the run is paused", func() bool { return r.record(task).Doc.Status == aaif.RunPaused })
	move := intents.MigrateTask{Target: target(task), To: intents.MigrateFile, Platform: "other"}
	if _, err := client.Command(ctxFor(t), reviewer, move); !isCode(err, envelope.CodeDenied) {
		t.Errorf("a move of the paused run: %v", err)
	}
	r.command(client, intents.ResumeTask{Target: target(task)})
	eventually(t, "the run goes on", func() bool { return r.record(task).Mesh.Owner != "" })
	stop()
	r.rewrite(task, func(c *state.Checkpoint) { // it was asked to move before another worker claimed it
		c.Mesh.Pending = string(aaif.RunMigrating)
		c.Mesh.Migration = &state.Migration{ID: "m", Phase: state.PhaseAsked, To: intents.MigrateFile}
	})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: callsAndStops})
	eventually(t, "another worker goes on with it", func() bool { c := r.record(task); return c.Mesh.Owner != "" || c.Doc.Status != aaif.RunRunning })
	help.open()
	eventually(t, "the run has stopped for its export", func() bool { return r.record(task).Doc.Status == aaif.RunMigrating })
	c := r.record(task)
	equal(t, "the answer", string(c.Variables()["answer"]), `{"n":1}`)
	equal(t, "open calls", len(c.Mesh.Calls), 0)
}

package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
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
	"github.com/aeemesh/aeemesh/state/transfer"
)

// The tests here are about what the Agent State documents of runs say (gap 25 of the
// traceability review).

// While a tool call is out the run awaits its result, and is running again after.
func TestARunAwaitsTheResultOfATool(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	writer := newAuthor("writer")
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: writer})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`)
	r.submit(client, task)
	within(t, "the run to begin", writer.begun)
	writer.speak(2 * wordsInTurn)
	call := within(t, "the tool call", writer.tools)
	equal(t, "while it is out", r.record(task).Doc.Status, aaif.RunAwaitingToolResult)
	if result, err := client.Command(ctxFor(t), reviewer, intents.PauseTask{Target: intents.Target{ID: task.ID}}); err != nil || result.Status != "pausing" {
		t.Errorf("pause: %+v, %v", result, err)
	}
	close(call)
	eventually(t, "it is paused", func() bool { return r.record(task).Doc.Status == aaif.RunPaused })
	if result, err := client.Command(ctxFor(t), reviewer, intents.ResumeTask{Target: intents.Target{ID: task.ID}}); err != nil || !result.Resumed {
		t.Errorf("resume: %+v, %v", result, err)
	}
	writer.speak(100)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	equal(t, "at the end", r.record(task).Doc.Status, aaif.RunCompleted)
	history, err := jetstream.NewStates(r.js(r.nc), r.m).History(ctxFor(t), r.record(task).ID())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, rec := range history {
		h, err := rec.Header()
		if err != nil {
			t.Fatal(err)
		}
		if h.Step == state.StepIntent || h.Step == state.StepModel {
			kinds = append(kinds, string(h.Step)+" "+string(h.Status))
		}
	}
	equal(t, "the steps", strings.Join(kinds, ", "), "model running, model running, intent awaiting_tool_result, model running")
}

// A run whose worker died while a call was out is taken over, as before.
func TestARunThatAwaitsAToolIsTakenOver(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	nc := natstest.Conn(t, r.srv)
	first, second := newAuthor("first"), newAuthor("second")
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: first})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`)
	r.submit(client, task)
	within(t, "the run to begin", first.begun)
	first.speak(2 * wordsInTurn)
	within(t, "the tool call", first.tools)
	nc.Close()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: second})
	within(t, "the second worker", second.begun)
	second.speak(100)
	close(within(t, "the tool call, again", second.tools))
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"by":"second"}` {
		t.Errorf("%v, %v", reply, err)
	}
}

// error.step names the step or the tool in which a run failed, and nothing else.
func TestTheErrorOfARunNamesItsStep(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		step state.Step
		code envelope.Code
		at   string // current_step
		want string
	}{
		"a tool that is out":          {step: state.Step{Kind: state.StepIntent, Name: "look"}, code: envelope.CodeTimeout, want: "look"},
		"a tool that failed":          {step: state.Step{Kind: state.StepReceipt, Name: "look"}, code: envelope.CodeTool, want: "look"},
		"after a tool":                {step: state.Step{Kind: state.StepReceipt, Name: "look"}, code: envelope.CodeModel, want: ""},
		"a member of a team":          {step: state.Step{Kind: state.StepTeam, Name: "sort"}, code: envelope.CodeAgent, at: "write", want: "sort"},
		"between, in a pipeline":      {step: state.Step{Kind: state.StepModel}, code: envelope.CodeModel, at: "write", want: "write"},
		"a turn of the model":         {step: state.Step{Kind: state.StepModel}, code: envelope.CodeModel, want: ""},
		"before anything was written": {code: envelope.CodeModel, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				if tt.step.Kind != "" {
					if err := task.Run().Commit(ctx, tt.step, func(c *state.Checkpoint) error {
						if tt.at != "" {
							c.Doc.PipelinePosition = &aaif.PipelinePosition{CurrentStep: tt.at}
						}
						return nil
					}); err != nil {
						return nil, err
					}
				}
				return nil, &envelope.Error{Code: tt.code, Message: "no"}
			})})
			client := r.client()
			task := newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			if _, err := r.result(client, task); err == nil {
				t.Fatal("it did not fail")
			}
			eventually(t, "it has failed", func() bool { return r.record(task).Terminal() })
			equal(t, "step", r.record(task).Doc.Error.Step, tt.want)
		})
	}
}

// A run that was begun under another version of its agent goes on, and says so.
func TestARunGoesOnUnderAnotherVersion(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	nc := natstest.Conn(t, r.srv)
	first, second := newAuthor("first"), newAuthor("second")
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: first, Version: "1.2.0"})
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`)
	r.submit(r.client(), task)
	within(t, "the run to begin", first.begun)
	first.speak(wordsInTurn)
	eventually(t, "a turn is written", func() bool { return len(r.record(task).Doc.Conversation) == 1 })
	equal(t, "version", r.record(task).Doc.AgentVersion, "1.2.0")
	nc.Close()
	r.serve(r.lane(mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: second, Version: "1.3.0"})
	within(t, "the second worker", second.begun)
	c := r.record(task)
	equal(t, "version", c.Doc.AgentVersion, "1.3.0")
	equal(t, "notice", c.Mesh.Step.Detail, "of version 1.2.0, goes on under 1.3.0")
}

// A run of another major version is not taken in from another platform, unless the
// operator says so: it stays where it is.
func TestARunOfAnotherVersionIsNotTakenIn(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for name, tt := range map[string]struct {
		there, here string
		any         bool
		refused     bool
	}{
		"the same":                    {there: "1.2.0", here: "1.2.0"},
		"another minor one":           {there: "1.2.0", here: "1.9.1"},
		"one with zeros":              {there: "02026.01.15", here: "2026.02.1"},
		"another major one":           {there: "1.2.0", here: "2.0.0", refused: true},
		"another major one, all same": {there: "1.2.0", here: "2.0.0", any: true},
		"one that says nothing":       {there: "", here: "2.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParcel(t, func(v *voyage) { v.sourceVersion, v.targetVersion = tt.there, tt.here })
			p.write(2)
			file := p.mustExport()
			node := p.paris.lane(mesh.Config{Entity: "service.handoff", Verifier: sign.Verifier{Ring: p.parisKeys}})
			receiver, err := node.Receiver(mesh.ReceiverOptions{Platform: "paris", AnyVersion: tt.any, Handoffs: jetstream.NewHandoffs(p.paris.js(p.paris.nc), p.paris.m)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = receiver.Import(ctxFor(t), file, nil)
			if tt.refused != errors.Is(err, transfer.ErrUnknownAgent) || !tt.refused && err != nil {
				t.Errorf("%v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "2.0.0") {
				t.Errorf("it does not say which: %v", err)
			}
		})
	}
}

// What leaves says who asked for it and which program wrote it.
func TestADocumentThatLeavesSaysWhoCapturedIt(t *testing.T) {
	t.Parallel()
	p := newParcel(t)
	p.write(2)
	_, doc, err := transfer.TakeToken(p.mustExport())
	if err != nil {
		t.Fatal(err)
	}
	c, err := state.Codec{}.Decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "captured by", c.Doc.Provenance.CapturedBy, ada)
	equal(t, "runtime", c.Doc.Provenance.SourceRuntimeVersion, "7.6.5")
}

// The memories of a user here are not those of a user whom only another platform
// names (finding 9 of the security review).
func TestAUserThatAnotherPlatformNames(t *testing.T) {
	t.Parallel()
	users := make(chan string, 10)
	v := newVoyage(t, func(v *voyage) {
		v.targetHandler = mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			users <- task.User()
			return json.RawMessage(`{"by":"target"}`), nil
		})
	})
	v.write(2)
	v.move()
	equal(t, "user", within(t, "the target", users), ada+" of berlin")
	within(t, "the reply", v.heard.done)
}

// A run that asks another agent leaves the mesh when that one has answered: where it
// arrives, no agent is asked again.
func TestARunLeavesWhenThoseThatItAskedHaveAnswered(t *testing.T) {
	t.Parallel()
	const helper = "agent.helper"
	var asked atomic.Int64
	begun, answer := make(chan struct{}, 10), make(chan struct{})
	help := mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
		asked.Add(1)
		begun <- struct{}{}
		select {
		case <-answer:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return json.RawMessage(`{"n":7}`), nil
	})
	lead := func(runs chan *mesh.Run) mesh.Handler {
		return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			run := task.Run()
			runs <- run
			if known := run.View().Variables()["answer"]; known != nil {
				return json.RawMessage(known), nil
			}
			a, err := task.Call(ctx, mesh.Call{To: helper, Key: "one", Payload: json.RawMessage(`{}`)})
			if errors.Is(err, mesh.ErrInterrupted) {
				err = run.Commit(ctx, state.Step{Kind: state.StepPause}, nil)
			}
			if err != nil {
				return nil, err
			}
			if err := run.Commit(ctx, state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error {
				c.SetVariable("answer", []byte(a.Envelope.Payload))
				return nil
			}); err != nil {
				return nil, err
			}
			return a.Envelope.Payload, nil
		})
	}
	v := newVoyage(t, func(v *voyage) {
		v.sourceHandler, v.targetHandler = lead(v.source.begun), lead(v.target.begun)
		for _, r := range []*durableRig{v.berlin, v.paris} {
			r.serve(r.lane(mesh.Config{Signer: newKeyFor(t, "helper-"+envelope.NewID(), helper, v.berlinKeys, v.parisKeys), Verifier: sign.Verifier{Ring: v.berlinKeys}}), mesh.Agent{Entity: helper, Handler: help})
		}
	})
	within(t, "the helper", begun)
	v.move()
	equal(t, "phase", v.berlin.record(v.task).Mesh.Migration.Phase, state.PhaseAsked)
	close(answer)
	within(t, "the reply", v.heard.done)
	if v.heard.err != nil || string(v.heard.reply.Payload) != `{"n":7}` {
		t.Errorf("%v, %v", v.heard.reply, v.heard.err)
	}
	equal(t, "asked", asked.Load(), int64(1))
	if v.inParis() == nil {
		t.Error("it did not leave")
	}
}

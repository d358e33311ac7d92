package mesh_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// requestDecision answers with the last message of its run.
type lastWord struct{}

func (lastWord) Handle(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
	said := task.Run().View().Doc.Conversation
	return mustJSON(map[string]any{"last": said[len(said)-1].Content, "from": task.Envelope.From}), nil
}

// A copy of another platform's run becomes a run of the agent with its agent_id,
// if that is served here; one that waits for an approval does not.
func TestACopyOfAnotherPlatformsRun(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client := r.client()
	if _, err := client.Fork(ctxFor(t), copied(), state.ForkOf{}); !errors.Is(err, transfer.ErrUnknownAgent) {
		t.Errorf("of an agent that nobody serves: %v", err)
	}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: lastWord{}})
	waits := copied()
	waits.Doc.Status = aaif.RunAwaitingApproval
	if _, err := client.Fork(ctxFor(t), waits, state.ForkOf{}); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("of one that waits for an approval: %v", err)
	}
	c := copied()
	receipt, err := client.Fork(ctxFor(t), c, state.ForkOf{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the copy", c.Mesh.Entity, "")
	reply, err := client.Result(ctxFor(t), reviewer, receipt.TaskID, mesh.ResultOptions{Follow: true})
	if err != nil || string(reply.Payload) != `{"from":"human.ada","last":"and now?"}` {
		t.Errorf("result %v, %v", reply, err)
	}
}

// A document of another platform does not say what its run was given. Where it
// began with a JSON object, as agents with an input schema are told of their
// input, that is the task's payload; else what was said last is, as text. The
// input is not held against a schema, since the run has long begun. Its result is.
func TestTheInputOfACopyIsWhatItBeganWith(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	client := r.client()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Intents: reviewIntents(t), DefaultIntent: "code.review", Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		if bytes.Contains(task.Envelope.Payload, []byte("break")) {
			return json.RawMessage(`{"ok":"yes"}`), nil
		}
		return mustJSON(map[string]any{"ok": true, "input": task.Envelope.Payload}), nil
	})})
	for _, c := range []struct {
		first, last, want string
		code              envelope.Code
	}{
		{` {"path": "a.go"} `, "and now?", `{"path":"a.go"}`, ""},
		{`review a.go`, "and now?", `{"text":"and now?"}`, ""},
		{`["a.go"]`, "and now?", `{"text":"and now?"}`, ""},
		{`{"path":"a.go","path":"b.go"}`, "and now?", `{"text":"and now?"}`, ""},
		{`{"path":"a.go"`, "and now?", `{"text":"and now?"}`, ""},
		{strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000), "and now?", `{"text":"and now?"}`, ""},
		{`{"path":"` + strings.Repeat("a", 1<<20) + `"}`, "and now?", `{"text":"and now?"}`, ""},
		{"go", "break", "", envelope.CodeOutputSchema},
	} {
		receipt, err := client.Fork(ctxFor(t), &state.Checkpoint{Doc: aaif.State{
			Standard: "SC-006", StateID: uuid.NewString(), AgentID: state.AgentID(reviewer), RunID: uuid.NewString(), CheckpointAt: state.Time(time.Now()), Status: aaif.RunPaused,
			Conversation: []aaif.Message{{Role: aaif.MessageSystem, Content: `{"path":"no"}`}, {Role: aaif.MessageUser, Content: c.first}, {Role: aaif.MessageAssistant, Content: "hm"}, {Role: aaif.MessageUser, Content: c.last}},
		}}, state.ForkOf{})
		if err != nil {
			t.Errorf("%.40s: %v", c.first, err)
			continue
		}
		reply, err := client.Result(ctxFor(t), reviewer, receipt.TaskID, mesh.ResultOptions{Follow: true})
		if codeOf(err) != c.code {
			t.Errorf("%.40s: %v, want %s", c.first, err, c.code)
		} else if err == nil {
			equal(t, c.first, string(reply.Payload), `{"input":`+c.want+`,"ok":true}`)
		}
	}
}

// A fork is no member of its parent's tree of tasks, whose deadline may have passed, and answers
// its own sender, even if the parent's task was delegated.
func TestAForkOfAMemberIsATaskOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client := r.client()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: lastWord{}})
	for name, requires := range map[string]string{
		"after its tree's deadline": `{"timeout_ms":600000,"tree":{"root":"root-0001","depth":1,"deadline":"2026-01-02T03:04:05Z","waiting":[{"entity":"agent.lead","task":"root-0001"}]}}`,
		"of a delegated task":       `{"timeout_ms":600000,"handoff":{"task":"root-0001","caller":"human.bob","intent":"code.review","chain":["eyJmcm9tIjoiYWdlbnQubGVhZCJ9"]},"handed_by":["agent.lead"]}`,
	} {
		task := requiring(newTask(reviewer, "code.review", `{"text":"Look."}`), requires)
		task.ReplyTo = "root-0001"
		forkCompletes(t, client, parentOf(t, task), name)
	}
}

// A document may name no priority, or one that does not exist.
func TestAForkOfARunWithoutAPriority(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client := r.client()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: lastWord{}})
	for _, priority := range []string{"", "at once"} {
		parent := parentOf(t, newTask(reviewer, "code.review", `{"text":"Look."}`))
		parent.Mesh.Priority = priority
		forkCompletes(t, client, parent, priority)
	}
}

// The time that a fork has is counted once, and also while it is paused.
func TestAForkThatIsPausedEndsInTime(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Sweep = 50 * time.Millisecond }), mesh.Agent{Handler: s})
	client := r.client()
	receipt, err := client.Fork(ctxFor(t), parentOf(t, requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":1000}`)), state.ForkOf{})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the task", s.entered)
	r.command(client, intents.PauseTask{Target: intents.Target{ID: receipt.TaskID}})
	s.next <- struct{}{}
	if reply, err := client.Result(ctxFor(t), reviewer, receipt.TaskID, mesh.ResultOptions{Follow: true}); codeOf(err) != envelope.CodeTimeout {
		t.Errorf("%v, %v", reply, err)
	}
}

// A run may be parked before any worker has claimed it, as a fork that awaits an approval is, or
// have been parked by an earlier release: its record has no deadline then.
func TestAParkedRunWithoutADeadlineGetsOne(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Sweep = 50 * time.Millisecond }), mesh.Agent{Handler: s})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":1000}`)
	r.submitPaused(client, s, task)
	eventually(t, "it is paused", func() bool { return r.record(task).Doc.Status == aaif.RunPaused })
	r.rewrite(task, func(c *state.Checkpoint) { c.Mesh.Deadline = time.Time{} })
	if reply, err := r.result(client, task); codeOf(err) != envelope.CodeTimeout {
		t.Errorf("%v, %v", reply, err)
	}
}

// forkCompletes forks a run, and fails the test if the fork does not end as it should.
func forkCompletes(t *testing.T, client *mesh.Node, parent *state.Checkpoint, name string) {
	t.Helper()
	receipt, err := client.Fork(ctxFor(t), parent, state.ForkOf{})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := client.Result(ctxFor(t), reviewer, receipt.TaskID, mesh.ResultOptions{Follow: true})
	if err != nil || string(reply.Payload) != `{"from":"human.ada","last":"and now?"}` {
		t.Errorf("%q: %v, %v", name, reply, err)
	}
}

// parentOf is the checkpoint of a run with the task.
func parentOf(t *testing.T, task *envelope.Envelope) *state.Checkpoint {
	t.Helper()
	raw, err := task.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := state.New(task.To, task.ID, state.AgentID(task.To))
	c.Mesh.Task, c.Mesh.Priority = raw, string(envelope.PriorityNormal)
	c.Append(model.User("and now?"), time.Now(), 0)
	return c
}

// Where an agent's runs are encrypted, one that comes from elsewhere is not stored
// in the clear: neither a copy nor one that is handed over.
func TestARunIsNotTakenInInTheClear(t *testing.T) {
	t.Parallel()
	ring, err := state.NewKeyring(state.Key{Secret: bytes.Repeat([]byte{7}, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	p := newParcel(t)
	p.write(2)
	p.paris.serve(p.paris.lane(mesh.Config{}), mesh.Agent{Handler: lastWord{}, Seal: ring})
	office := p.paris.client()
	eventually(t, "it is found", func() bool {
		found, err := office.Discover(ctxFor(t), reviewer, time.Second)
		return err == nil && slices.ContainsFunc(found, func(i mesh.Instance) bool { return i.Info.Metadata[mesh.MetaSealed] == "1" })
	})
	if _, err := p.receiver.Import(ctxFor(t), p.mustExport(), nil); !errors.Is(err, state.ErrSealed) || !errors.Is(err, transfer.ErrUnknownAgent) {
		t.Errorf("handed over: %v", err)
	}
	configured, err := p.paris.lane(mesh.Config{Entity: "service.handoff", Verifier: sign.Verifier{Ring: p.parisKeys}}).Receiver(mesh.ReceiverOptions{
		Platform: "paris", Issuers: []string{"service.>", "agent.>"}, Handoffs: jetstream.NewHandoffs(p.paris.js(p.paris.nc), p.paris.m),
		Agents: map[string]string{state.AgentID(reviewer): reviewer},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := configured.Import(ctxFor(t), p.mustExport(), nil); !errors.Is(err, state.ErrSealed) {
		t.Errorf("handed over to an agent that the operator names: %v", err)
	}
	copied := &state.Checkpoint{Doc: aaif.State{
		Standard: "SC-006", StateID: uuid.NewString(), AgentID: state.AgentID(reviewer), RunID: uuid.NewString(), CheckpointAt: state.Time(time.Now()),
		Status: aaif.RunPaused, Conversation: []aaif.Message{{Role: aaif.MessageUser, Content: "and now?"}},
	}}
	if _, err := office.Fork(ctxFor(t), copied, state.ForkOf{}); !errors.Is(err, state.ErrSealed) {
		t.Errorf("a copy: %v", err)
	}
	for rec, err := range p.paris.durableOver(p.paris.js(p.paris.nc)).States.List(ctxFor(t), reviewer) {
		t.Errorf("stored: %v, %v", rec.ID, err)
	}
}

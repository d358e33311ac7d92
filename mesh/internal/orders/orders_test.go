package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

func order(t *testing.T, intent string, payload any) *Order {
	t.Helper()
	o, err := New(envelope.New(envelope.TypeTask, "human.ada", "agent.a", intent, wire.MustJSON(payload)), "", false)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func code(err error) envelope.Code {
	var problem *envelope.Error
	errors.As(err, &problem)
	if problem == nil {
		return ""
	}
	return problem.Code
}

func TestWhatAnOrderNames(t *testing.T) {
	t.Parallel()
	id := state.RunID("agent.a", "task-0001")
	for _, c := range []struct {
		target intents.Target
		runID  string
		alone  bool
	}{
		{intents.Target{ID: "task-0001"}, id, false},
		{intents.Target{Run: id}, id, true},
		{intents.Target{Corr: "workflow-1"}, "", false},
		{intents.Target{Run: id, ID: "task-0001"}, id, false},
		{intents.Target{Run: id, Corr: "workflow-1"}, id, false},
	} {
		o := order(t, intents.TaskPause, intents.PauseTask{Target: c.target})
		if !o.Names("task-0001", "workflow-1", id) || o.Names("task-0002", "workflow-2", "another") || o.Names("", "", "") {
			t.Errorf("%+v: names", c.target)
		}
		if o.RunID("agent.a") != c.runID || o.NamesRunAlone() != c.alone {
			t.Errorf("%+v: run %q, alone %v", c.target, o.RunID("agent.a"), o.NamesRunAlone())
		}
	}
	if _, err := New(envelope.New(envelope.TypeTask, "human.ada", "agent.a", intents.TaskSteer, json.RawMessage(`{"id":7}`)), "", false); code(err) != envelope.CodeInputSchema {
		t.Errorf("a number as id: %v", err)
	}
	if o := order(t, intents.TaskPause, json.RawMessage(`{"id":"task-0001","ID":"task-0002","Corr":"workflow-1"}`)); o.ID != "task-0001" || o.Corr != "" {
		t.Errorf("names in another case were taken for those of the schema: %+v", o.Order)
	}
	long := wire.MustJSON(intents.SteerTask{Text: strings.Repeat("x", run.MaxSteerText+1)})
	if _, err := New(envelope.New(envelope.TypeTask, "human.ada", "agent.a", intents.TaskSteer, long), "", false); code(err) != envelope.CodeTooLarge {
		t.Errorf("a long text: %v", err)
	}
}

// A command that does not name its mesh reaches the runs of other platforms only.
func TestAnOrderThatNamesNoMesh(t *testing.T) {
	t.Parallel()
	here, moved, forked := state.New("agent.a", "task-0001", ""), state.New("agent.a", "task-0002", ""), state.New("agent.a", "task-0003", "")
	moved.Mesh.Parent, forked.Mesh.Parent = &state.Parent{Kind: "migration"}, &state.Parent{Kind: "fork"}
	o := &Order{Unbound: true}
	if o.MayReach(nil) || o.MayReach(here) || o.MayReach(forked) || !o.MayReach(moved) {
		t.Error("an order without a mesh")
	}
	if o = (&Order{}); !o.MayReach(nil) || !o.MayReach(here) {
		t.Error("an order with its mesh")
	}
}

func TestWhatIsForwardedAndAnswered(t *testing.T) {
	t.Parallel()
	for intent, want := range map[string]string{
		intents.TaskCancel: `{"id":"task-0002","reason":"why","durable":true}`, intents.TaskPause: `{"id":"task-0002","durable":true,"copy_of":"cmd-0001","reason":"why"}`,
		intents.TaskResume: `{"id":"task-0002","durable":true,"copy_of":"cmd-0001","reason":"why"}`, intents.TaskSteer: `{"id":"task-0002","durable":true,"copy_of":"cmd-0001","text":"left"}`,
		intents.TaskSettle: "", intents.TaskMigrate: "",
	} {
		o := &Order{Order: run.Order{Envelope: "cmd-0001", Intent: intent, Reason: "why", Text: "left"}}
		cmd := o.Forwarded("task-0002")
		if want == "" {
			if cmd != nil {
				t.Errorf("%s is forwarded: %v", intent, cmd)
			}
			continue
		}
		if got := string(wire.MustJSON(cmd)); got != want || cmd.CommandIntent() != intent {
			t.Errorf("%s: %s, want %s", intent, got, want)
		}
	}
	var out Outcome
	out.Did("r1", "paused")
	out.Did("r2", "pausing")
	if got := string((&Order{Order: run.Order{Intent: intents.TaskPause}}).Result(out)); got != `{"paused":true,"runs":["r1","r2"],"status":"pausing"}` {
		t.Error(got)
	}
	out.Answered(intents.CommandResult{Steered: true, Runs: []string{"r3"}})
	if !out.Done || out.Status != "pausing" || out.Runs[0] != "r3" {
		t.Errorf("%+v", out)
	}
	out.Answered(intents.CommandResult{Status: "failed"})
	if out.Done || out.Status != "failed" {
		t.Errorf("%+v", out)
	}
	if got := string((&Order{Order: run.Order{Intent: intents.TaskMigrate}}).Result(Outcome{})); got != `{"migrating":false}` {
		t.Error(got)
	}
}

func TestACommandThatIsPassedOnHasTheIDOfTheFirst(t *testing.T) {
	t.Parallel()
	first := order(t, intents.TaskSteer, intents.SteerTask{Target: intents.Target{ID: "task-0001"}, Text: "left"})
	second := order(t, intents.TaskSteer, first.Forwarded("task-0002"))
	third := order(t, intents.TaskSteer, second.Forwarded("task-0003"))
	if first.Envelope == "" || second.Envelope != first.Envelope || third.Envelope != first.Envelope {
		t.Errorf("%s, %s, %s", first.Envelope, second.Envelope, third.Envelope)
	}
	long := intents.SteerTask{Target: intents.Target{ID: "task-0001", CopyOf: strings.Repeat("x", 129)}, Text: "left"}
	if _, err := New(envelope.New(envelope.TypeTask, "human.ada", "agent.a", intents.TaskSteer, wire.MustJSON(long)), "", false); code(err) != envelope.CodeTooLarge {
		t.Error(err)
	}
}

// Which commands may come before their task: a resume only takes back a pause.
func TestCommandsThatMayPrecedeTheirTask(t *testing.T) {
	t.Parallel()
	paused := []state.Noted{{Intent: intents.TaskPause}}
	for intent, want := range map[string][2]bool{
		intents.TaskCancel: {true, true}, intents.TaskPause: {true, true}, intents.TaskSteer: {true, true}, intents.TaskResume: {false, true},
		intents.TaskSettle: {false, false}, intents.TaskMigrate: {false, false},
	} {
		o := &Order{Order: run.Order{Intent: intent, Durable: true}}
		if got := [2]bool{o.Precedes(nil), o.Precedes(paused)}; got != want {
			t.Errorf("%s: %v, want %v", intent, got, want)
		}
		if o.Durable = false; o.Precedes(paused) {
			t.Errorf("%s precedes a live task", intent)
		}
	}
}

// Each bound refuses the command beyond it, and leaves places for other senders.
func TestBoundsOfNotedCommands(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	var n Notes
	count := 0
	add := func(c *state.Checkpoint, from, key string) error {
		count++
		o := &Order{Order: run.Order{Envelope: fmt.Sprint(count), Intent: intents.TaskSteer, From: from, Durable: true}, KeyID: key}
		_, err := n.Add(c, o, "agent.a", now)
		return err
	}
	fill := func(c *state.Checkpoint, k int, from, key string) {
		t.Helper()
		for range k {
			if err := add(c, from, key); err != nil {
				t.Fatalf("%s, %d noted: %v", from, len(c.Mesh.Noted), err)
			}
		}
	}
	refused := func(c *state.Checkpoint, from, key string, want envelope.Code) {
		t.Helper()
		was := len(c.Mesh.Noted)
		if err := add(c, from, key); code(err) != want || len(c.Mesh.Noted) != was {
			t.Errorf("%s: %v, %d noted, were %d", from, err, len(c.Mesh.Noted), was)
		}
	}
	c := state.New("agent.a", "task-0001", "")
	fill(c, 8, "human.ada", "")
	refused(c, "human.ada", "", envelope.CodeDenied) // of one sender
	fill(c, 4, "human.bob", "")
	refused(c, "human.cy", "", envelope.CodeDenied) // unsigned
	fill(c, 4, "human.ada", "key")
	refused(c, "human.dan", "other", envelope.CodeDenied) // in all
	if c.Mesh.Step.Kind != state.StepSteer {
		t.Errorf("step %+v", c.Mesh.Step)
	}

	again := &Order{Order: run.Order{Envelope: "1", Intent: intents.TaskSteer, From: "human.ada"}}
	if added, err := n.Add(c, again, "agent.a", now); added || err != nil {
		t.Errorf("the same command again: %v, %v", added, err)
	}
	fresh := state.New("agent.a", "task-0002", "")
	long := &Order{Order: run.Order{Envelope: "long", Intent: intents.TaskSteer, From: "human.ada", Text: strings.Repeat("x", noteText+1)}}
	if added, err := n.Add(fresh, long, "agent.a", now); added || code(err) != envelope.CodeTooLarge {
		t.Errorf("a long text: %v, %v", added, err)
	}

	// Of all tasks: 128 of one sender, whatever names it signs for.
	for i := range 16 {
		noted := make([]state.Noted, 8)
		for j := range noted {
			noted[j] = state.Noted{KeyID: "key", From: fmt.Sprint("human.", j)}
		}
		n.Count(fmt.Sprint("run", i), noted, now, now.Add(NoteTTL))
	}
	refused(fresh, "human.ada", "key", envelope.CodeBusy)
	fill(fresh, 1, "human.ada", "")
	n.Forget(map[string]bool{"run1": true}, now.Add(time.Second)) // of 16 records only one is left
	fill(fresh, 1, "human.ada", "key")
	n.Forget(nil, now) // counted later than the sweep began
	if got := n.counts(now)[noteSender{keyID: "key"}]; got != 8 {
		t.Errorf("%d commands of the record that is left", got)
	}
	if got := n.counts(now.Add(NoteTTL + 1)); len(got) > 0 {
		t.Errorf("commands of an expired record: %v", got)
	}
}

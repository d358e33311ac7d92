package state_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
)

// For each member of the extension it is decided whether another platform may set it. A
// new member needs such a decision here, and in docs/migration.md.
func TestInboundDecidesAboutEveryMember(t *testing.T) {
	t.Parallel()
	kept := []string{
		"Format", "Entity", "TaskID", "Epoch", "Step", "Task", "KeyID", "Priority", "CBOR", // judged by the code that accepts the run
		"Deadline", "StoredAt", "StartedAt", "Ran", "Attempt", "Stream", "Told", "Notes", "Effects", "Commands", "Steering", "Usage", "Turns",
		"Loop", "Plan", "Parent", "Migration",
	}
	dropped := []string{"Owner", "Work", "Redelivered", "WakeAt", "Claims", "Noted", "Due", "Pending", "Calls", "Waits", "Trail", "Reply", "Handed", "Dead", "More"}
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	c := state.New("agent.x", "01J00000000000000000000000", "")
	c.Doc.CheckpointAt = state.Time(now.Add(-time.Hour))
	at := now.Add(-90 * time.Minute)
	c.Mesh = state.Mesh{
		Format: 2, Entity: "agent.x", TaskID: "01J00000000000000000000000", Epoch: 4, Owner: "w", Step: state.Step{Kind: state.StepModel}, Work: 7, Redelivered: 1, WakeAt: at,
		Task: json.RawMessage(`{}`), KeyID: "k", Priority: "normal", CBOR: true, Deadline: now, StoredAt: at, StartedAt: at, Ran: time.Second,
		Claims: 1, Attempt: 1, Stream: 3, Told: "half", Notes: []state.Note{{}}, Effects: []state.Effect{{Key: state.EffectKey(c.Doc.RunID, 1, 1)}},
		Commands: []string{"c"}, Noted: []state.Noted{{}}, Due: at, Pending: "migrating", Steering: []state.Steer{{}}, Usage: state.Usage{InputTokens: 5, TreeTokens: 9}, Turns: 2,
		Calls: []state.Call{{}}, Loop: json.RawMessage(`{}`), Plan: json.RawMessage(`{"a":1}`), Waits: []state.Wait{{}}, Reply: json.RawMessage(`{}`),
		Trail: []string{"t"}, Handed: &state.Handed{}, Dead: "d", Parent: &state.Parent{}, Migration: &state.Migration{ID: "m"}, More: []byte(`{"new":1}`),
	}
	was := reflect.ValueOf(c.Mesh)
	for i := range was.NumField() {
		name := was.Type().Field(i).Name
		if was.Field(i).IsZero() {
			t.Errorf("%s is not set: the test does not tell about it", name)
		}
		if slices.Contains(kept, name) == slices.Contains(dropped, name) {
			t.Errorf("%s: is it another platform's to say?", name)
		}
	}
	if err := c.Inbound(now); err != nil {
		t.Fatal(err)
	}
	is := reflect.ValueOf(c.Mesh)
	for i := range is.NumField() {
		if name := is.Type().Field(i).Name; is.Field(i).IsZero() != slices.Contains(dropped, name) {
			t.Errorf("%s is %v", name, is.Field(i))
		}
	}
	if c.Mesh.Usage.TreeTokens != 0 {
		t.Error("the counters of another mesh are kept")
	}
	// The clock of this mesh is an hour ahead of the checkpoint.
	if want := at.Add(time.Hour); !c.Mesh.StoredAt.Equal(want) || !c.Mesh.StartedAt.Equal(want) || !c.Mesh.Deadline.Equal(now.Add(time.Hour)) {
		t.Errorf("times %v %v %v", c.Mesh.StoredAt, c.Mesh.StartedAt, c.Mesh.Deadline)
	}
}

func TestInboundRefuses(t *testing.T) {
	t.Parallel()
	id := state.RunID("agent.x", "01J00000000000000000000000")
	open := func(key string) func(*state.Mesh) {
		return func(m *state.Mesh) { m.Effects = []state.Effect{{Key: key, Status: state.EffectInFlight}} }
	}
	for name, change := range map[string]func(*state.Mesh){
		"a running time below zero": func(m *state.Mesh) { m.Ran = -time.Hour },
		"tokens below zero":         func(m *state.Mesh) { m.Usage.InputTokens = -1 << 40 },
		"costs below zero":          func(m *state.Mesh) { m.Usage.CostNanoUSD = -1 },
		"turns below zero":          func(m *state.Mesh) { m.Turns = -1 },
		"attempts below zero":       func(m *state.Mesh) { m.Attempt = -1 },
		"tries below zero":          func(m *state.Mesh) { m.Effects = []state.Effect{{Status: state.EffectDone, Tries: -1}} },
		"an epoch beyond all":       func(m *state.Mesh) { m.Epoch = 1<<64 - 1 },
		"a stream beyond all":       func(m *state.Mesh) { m.Stream = 1 << 40 },
		"another run's open call":   open("another.1.1"),
		"one of a longer id":        open(id + "0.1.1"),
		"one of an id with a dot":   open(id + ".1.1.1"), // another platform chooses the ids of its runs
		"one of a part of this id":  open(id + ".1"),
	} {
		c := state.New("agent.x", "01J00000000000000000000000", "")
		change(&c.Mesh)
		if err := c.Inbound(time.Now()); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Times of another platform are moved to this mesh's clock. None is in the future, and the
// deadline is at most a month away.
func TestInboundMovesTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	c := state.New("agent.x", "01J00000000000000000000000", "")
	there := now.Add(-time.Hour) // its clock, at the checkpoint
	c.Doc.CheckpointAt = state.Time(there)
	c.Mesh.StoredAt, c.Mesh.StartedAt, c.Mesh.Deadline = there.Add(-time.Minute), there.Add(time.Minute), there.Add(365*24*time.Hour)
	if err := c.Inbound(now); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][2]time.Time{
		"stored": {c.Mesh.StoredAt, now.Add(-time.Minute)}, "started": {c.Mesh.StartedAt, now}, "deadline": {c.Mesh.Deadline, now.Add(30 * 24 * time.Hour)},
	} {
		if !got[0].Equal(got[1]) {
			t.Errorf("%s: %v, want %v", name, got[0], got[1])
		}
	}
}

// A run that comes without a deadline gets one, as it would have had here.
func TestInboundGivesADeadline(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for requires, want := range map[string]time.Duration{
		`null`: 30 * 24 * time.Hour, `{"timeout_ms":60000}`: time.Minute, `{"timeout_ms":9000000000}`: 30 * 24 * time.Hour, `{"timeout_ms":"soon"}`: 30 * 24 * time.Hour,
	} {
		c := state.New("agent.x", "01J00000000000000000000000", "")
		c.Doc.CheckpointAt = state.Time(now.Add(time.Hour)) // its clock is ahead
		c.Mesh.Task = json.RawMessage(`{"v":"1","id":"01J00000000000000000000000","ts":"2026-11-20T10:00:00.000Z","type":"task","from":"agent.a","to":"agent.x","intent":"chat.ask","corr":"01J00000000000000000000000","reply_to":null,"trace":null,"priority":"normal","requires":` + requires + `,"payload":{},"sig":null}`)
		if err := c.Inbound(now); err != nil {
			t.Fatal(err)
		}
		if got := c.Mesh.Deadline.Sub(now); got != want {
			t.Errorf("%s: %v, want %v", requires, got, want)
		}
	}
}

// An agent that a plan names with another spelling is not asked either.
func TestInboundPlanLosesItsChosenAgents(t *testing.T) {
	t.Parallel()
	for plan, want := range map[string]string{
		`{"chosen":[{"key":"k","entity":"agent.bank"}],"scope":"s"}`:       `{"scope":"s"}`,
		`{"Chosen":[{"key":"k"}],"\u0063HOSEN":[{"key":"k"}],"scope":"s"}`: `{"scope":"s"}`,
		`{"scope":"s"}`: `{"scope":"s"}`,
		`[1]`:           `[1]`,
	} {
		c := state.New("agent.x", "01J00000000000000000000000", "")
		c.Mesh.Plan = json.RawMessage(plan)
		if err := c.Inbound(time.Now()); err != nil || string(c.Mesh.Plan) != want {
			t.Errorf("%s: %s, %v", plan, c.Mesh.Plan, err)
		}
	}
}

func TestInboundStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		was     aaif.RunStatus
		unknown bool
		asks    bool
		want    aaif.RunStatus
	}{
		{was: aaif.RunRunning, want: aaif.RunRunning}, {was: aaif.RunPaused, want: aaif.RunPaused}, {was: aaif.RunAwaitingToolResult, want: aaif.RunRunning},
		{was: aaif.RunAwaitingApproval, unknown: true, want: aaif.RunAwaitingApproval}, {was: aaif.RunAwaitingApproval, want: aaif.RunRunning},
		{was: aaif.RunAwaitingApproval, asks: true, want: aaif.RunAwaitingApproval},
		{was: aaif.RunMigrating, want: aaif.RunRunning}, {was: aaif.RunCompleted, want: aaif.RunRunning}, {was: "asleep", want: aaif.RunRunning},
		{unknown: true, want: aaif.RunRunning},
	} {
		c := state.New("agent.x", "01J00000000000000000000000", "")
		c.Mesh.Migration = &state.Migration{Status: tt.was}
		if tt.unknown {
			c.Mesh.Effects = []state.Effect{{Status: state.EffectUnknown}}
		}
		if tt.asks { // its handler asks for an approval
			c.Doc.ApprovalRequest = &aaif.ApprovalRequest{}
		}
		if got := c.InboundStatus(); got != tt.want {
			t.Errorf("%s, unknown %t: %s", tt.was, tt.unknown, got)
		}
	}
}

// What a run waits for in its mesh stays there: elsewhere it goes on. An approval that its handler
// has asked for can be given there.
func TestWhatARunWaitsForElsewhere(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*state.Mesh)
		want   aaif.RunStatus
	}{
		"a time":                           {func(m *state.Mesh) { m.WakeAt = time.Now().Add(time.Hour) }, aaif.RunRunning},
		"an answer":                        {func(m *state.Mesh) { m.Waits = []state.Wait{{TaskID: "a"}} }, aaif.RunRunning},
		"an approval":                      {func(*state.Mesh) {}, aaif.RunAwaitingApproval},
		"an approval after an answer":      {func(m *state.Mesh) { m.Waits = []state.Wait{{TaskID: "a", Answered: true}} }, aaif.RunAwaitingApproval},
		"an approval, and then an answer":  {func(m *state.Mesh) { m.Waits = []state.Wait{{TaskID: "a", Later: true}} }, aaif.RunAwaitingApproval},
		"a person's word about a call":     {func(m *state.Mesh) { m.Effects = unknownEffect }, aaif.RunAwaitingApproval},
		"that, and an answer for the rest": {func(m *state.Mesh) { m.Effects, m.Waits = unknownEffect, []state.Wait{{TaskID: "a"}} }, aaif.RunAwaitingApproval},
	} {
		c := state.New("agent.x", "01J00000000000000000000000", "")
		c.Doc.ApprovalRequest = &aaif.ApprovalRequest{TriggerDescription: "It waits."}
		c.Mesh.Migration = &state.Migration{ID: "m", Status: aaif.RunAwaitingApproval}
		tt.change(&c.Mesh)
		for i := range c.Mesh.Effects {
			c.Mesh.Effects[i].Key = state.EffectKey(c.Doc.RunID, 1, 1)
		}
		for how, there := range map[string]*state.Checkpoint{"as this release sends it": c.Outbound("here", "there", "1"), "with its waits": c.Clone()} {
			if err := there.Inbound(time.Now()); err != nil {
				t.Fatal(err)
			}
			if got := there.InboundStatus(); got != tt.want {
				t.Errorf("%s, %s: %s", name, how, got)
			}
		}
		if c.Doc.ApprovalRequest == nil {
			t.Errorf("%s: the run here has changed", name)
		}
	}
}

var unknownEffect = []state.Effect{{ID: "call", Status: state.EffectUnknown}}

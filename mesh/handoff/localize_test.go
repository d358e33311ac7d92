package handoff_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// task makes another task of a run, and the run's names with it.
func (p *platform) task(c *state.Checkpoint, g *transfer.Grant, change func(*envelope.Envelope)) {
	p.t.Helper()
	task, err := envelope.Parse(c.Mesh.Task)
	if err != nil {
		p.t.Fatal(err)
	}
	change(task)
	if c.Mesh.Task, err = task.AppendJSON(nil); err != nil {
		p.t.Fatal(err)
	}
	c.Mesh.TaskID, c.Doc.RunID = task.ID, state.RunID(entity, task.ID)
	g.RunID = c.Doc.RunID
}

// Finding 9 of the security review: what a platform says of a run's sender is its
// word, unless a key that is trusted here proves it.
func TestTheSenderOfAHandedOverRun(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	adas := p.trust("ada-1", "human.ada")
	ceos, _, err := sign.NewKey("ceo-1", sign.Ed25519, "human.ceo") // unknown here
	if err != nil {
		t.Fatal(err)
	}
	forged, _, err := sign.NewKey("ada-1", sign.Ed25519, "human.ada")
	if err != nil {
		t.Fatal(err)
	}
	old, key, err := sign.NewKey("ada-0", sign.Ed25519, "human.ada")
	if err != nil {
		t.Fatal(err)
	}
	key.Revoked = true
	if err := p.ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	signed := func(from string, s *sign.Signer) func(*envelope.Envelope) {
		return func(e *envelope.Envelope) {
			e.From = from
			if s == nil {
				return
			}
			if err := s.Sign(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		change  func(*envelope.Envelope)
		keyID   string
		refused bool
	}{
		"proven":                   {change: signed("human.ada", adas), keyID: "ada-1"},
		"unsigned":                 {change: signed("human.ceo", nil)},
		"by a key that is unknown": {change: signed("human.ceo", ceos)},
		"by a key that is revoked": {change: signed("human.ada", old)},
		"by a forged signature":    {change: signed("human.ada", forged), refused: true},
		"by another's key":         {change: signed("human.ceo", adas), refused: true},
	} {
		x := p.pack(func(c *state.Checkpoint, g *transfer.Grant) {
			p.task(c, g, tt.change)
			c.Mesh.KeyID, c.Mesh.Priority = "ceo-1", "urgent" // says the source
		})
		_, err := p.send(x)
		if tt.refused {
			if !errors.Is(err, state.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := p.commit(x.id); err != nil {
			t.Fatal(err)
		}
		m := p.run(runOf(t, x)).Mesh
		equal(t, name+": key", m.KeyID, tt.keyID)
		vouched, priority := there, "high"
		if tt.keyID != "" {
			vouched, priority = "", "urgent"
		}
		equal(t, name+": whose word it is", m.Vouched(), vouched)
		equal(t, name+": priority", m.Priority, priority)
	}
}

// runOf is the id of the run in a parcel, which pack may not know.
func runOf(t *testing.T, x parcel) string {
	t.Helper()
	h, err := state.ReadHeader(x.doc)
	if err != nil {
		t.Fatal(err)
	}
	return h.Run
}

// stream is what goes over the wire of a parcel.
func stream(t *testing.T, x parcel) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	if err := transfer.Write(context.Background(), &b, x.token, x.doc); err != nil {
		t.Fatal(err)
	}
	return &b
}

// What the task of a handed-over run cannot be.
func TestTheTaskOfAHandedOverRun(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	other := envelope.NewID() // of another task here
	for name, change := range map[string]func(*state.Checkpoint, *transfer.Grant){
		"for another agent": func(c *state.Checkpoint, g *transfer.Grant) {
			p.task(c, g, func(e *envelope.Envelope) { e.To = "agent.bank" })
		},
		"no task": func(c *state.Checkpoint, g *transfer.Grant) {
			p.task(c, g, func(e *envelope.Envelope) { e.Type = envelope.TypeEvent })
		},
		"handed on": func(c *state.Checkpoint, g *transfer.Grant) {
			p.task(c, g, func(e *envelope.Envelope) {
				e.Requires = json.RawMessage(`{"handoff":{"task":"12345678","caller":"human.bob","intent":"a.b","chain":["x"]}}`)
			})
		},
		"handed on, respelled": func(c *state.Checkpoint, g *transfer.Grant) {
			p.task(c, g, func(e *envelope.Envelope) { e.Requires = json.RawMessage(`{"hando\u0066f":{"task":"12345678"}}`) })
		},
		"of another run": func(c *state.Checkpoint, g *transfer.Grant) {
			run := c.Doc.RunID
			p.task(c, g, func(e *envelope.Envelope) { e.ID = other })
			c.Doc.RunID, g.RunID = run, run
		},
		"of another run, by its record alone": func(c *state.Checkpoint, _ *transfer.Grant) { c.Mesh.TaskID = other },
		"of another run, by its record and its name": func(c *state.Checkpoint, g *transfer.Grant) {
			c.Mesh.TaskID, c.Doc.RunID = other, state.RunID(entity, other)
			g.RunID = c.Doc.RunID
		},
	} {
		x := p.pack(change)
		if _, err := p.send(x); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if p.run(runOf(t, x)) != nil {
			t.Errorf("%s: there is a run", name)
		}
	}
	// The token is of an agent that is served here, and the run of another one.
	y := p.pack(func(c *state.Checkpoint, g *transfer.Grant) {
		p.task(c, g, func(e *envelope.Envelope) { e.To = "agent.bank" })
		c.Mesh.Entity, c.Doc.RunID = "agent.bank", state.RunID("agent.bank", c.Mesh.TaskID)
		g.RunID = c.Doc.RunID
	})
	if _, err := p.send(y); !errors.Is(err, transfer.ErrUnknownAgent) {
		t.Errorf("a run of another agent: %v", err)
	}
	// One that its sender forbids to hand on is a task like any other.
	x := p.pack(func(c *state.Checkpoint, g *transfer.Grant) {
		p.task(c, g, func(e *envelope.Envelope) { e.Requires = json.RawMessage(`{"handoff":false}`) })
	})
	if _, err := p.send(x); err != nil {
		t.Error(err)
	}
}

// What a source says of other tasks has no effect here.
func TestAHandedOverRunCommandsNobody(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack(func(c *state.Checkpoint, _ *transfer.Grant) {
		m := &c.Mesh
		m.Calls = []state.Call{{Key: "step/0", ID: "01J00000000000000000000000", To: "agent.bank"}}
		m.Waits = []state.Wait{{Entity: "human.boss", TaskID: "01J00000000000000000000001", Asked: p.now}}
		m.WakeAt = p.now.Add(time.Hour)
		m.Handed = &state.Handed{To: "agent.bank", TaskID: "01J00000000000000000000002", Task: json.RawMessage(`{"type":"task"}`)}
		m.Plan = json.RawMessage(`{"format":1,"pattern":"pipeline","steps":["a"],"scope":"s","chosen":[{"key":"step/0","entity":"agent.bank"}]}`)
		m.Migration.Status = aaif.RunAwaitingApproval
		c.Doc.ApprovalRequest = &aaif.ApprovalRequest{TriggerDescription: "The run waits for human.boss.", RequestedAt: state.Time(p.now)}
		m.Deadline = p.now.Add(10 * 365 * 24 * time.Hour)
	})
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	if _, err := p.commit(x.id); err != nil {
		t.Fatal(err)
	}
	c := p.run(x.run)
	m := c.Mesh
	if len(m.Calls) > 0 || len(m.Waits) > 0 || !m.WakeAt.IsZero() || m.Handed != nil || c.Doc.ApprovalRequest != nil {
		t.Errorf("left of what others are to do: %+v", m)
	}
	if strings.Contains(string(m.Plan), "agent.bank") || !strings.Contains(string(m.Plan), "pipeline") {
		t.Errorf("plan %s", m.Plan)
	}
	// Nothing here could wake it, so it goes on.
	equal(t, "status", c.Doc.Status, aaif.RunRunning)
	equal(t, "kicks", len(p.kicked), 1)
	if d := m.Deadline.Sub(p.now); d > 30*24*time.Hour {
		t.Errorf("it may run for %v", d)
	}
	// A call that is open under another run's key would be repeated as that one's.
	for status, want := range map[state.EffectStatus]error{
		state.EffectInFlight: state.ErrInvalid, state.EffectPending: state.ErrInvalid, state.EffectUnknown: state.ErrInvalid, state.EffectDone: nil,
	} {
		y := p.pack(func(c *state.Checkpoint, _ *transfer.Grant) {
			c.Mesh.Effects = []state.Effect{{ID: "call-1", Tool: "pay", Key: state.EffectKey(x.run, 1, 1), Status: status}}
		})
		if _, err := p.receiver.Receive(context.Background(), stream(t, y)); !errors.Is(err, want) {
			t.Errorf("%s: %v", status, err)
		}
	}
}

func TestARunThatCannotBeQueuedHereIsRefused(t *testing.T) {
	t.Parallel()
	var fault error
	p := newPlatform(t, func(cfg *handoff.ReceiverConfig, _ *handoff.HandlerOptions) {
		cfg.MayKick = func(*state.Checkpoint) error { return fault }
	})
	for code, err := range map[transfer.Code]error{
		transfer.CodeTooLarge: fmt.Errorf("%w: 2 MiB", state.ErrTooLarge), transfer.CodeNoState: errors.New("nested too deep"),
	} {
		fault = err
		x := p.pack()
		if _, err := p.receiver.Receive(context.Background(), stream(t, x)); transfer.NewError(err).Code != code || !strings.Contains(err.Error(), fault.Error()) {
			t.Errorf("%s: %v", code, err)
		}
		status, err := p.receiver.Get(context.Background(), x.id)
		if err != nil || status.Phase != state.PhaseRefused {
			t.Errorf("%s: %+v, %v", code, status, err)
		}
	}
}

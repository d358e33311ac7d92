package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
	"github.com/aeemesh/aeemesh/state/transfer"
)

func TestHandoffArrives(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	about, err := p.client.About(context.Background())
	if err != nil || about != (handoff.About{Platform: here, Version: "1.2.3"}) {
		t.Fatalf("about %+v, %v", about, err)
	}
	x := p.pack()
	status, err := p.send(x)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "staged", status, handoff.Status{Handoff: x.id, Phase: state.PhaseStaged, Run: x.run, Entity: entity})
	if p.run(x.run) != nil || len(p.kicked) != 0 {
		t.Fatal("the run is here before the source let go of it")
	}
	equal(t, "records", p.records(), "staged large")

	p.later(10 * time.Second)
	for range 3 { // the answer may be lost
		status, err = p.commit(x.id)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "accepted", status.Phase, state.PhaseRunning)
	}
	c := p.run(x.run)
	if c == nil {
		t.Fatal("no run")
	}
	m := c.Mesh
	equal(t, "status", c.Doc.Status, aaif.RunRunning)
	equal(t, "epoch", m.Epoch, 5)
	equal(t, "told", m.Told, "half a sen")
	equal(t, "stream", m.Stream, 7)
	equal(t, "parent", *m.Parent, state.Parent{Kind: "migration", Run: x.run, StateID: m.Parent.StateID, Platform: there})
	equal(t, "phase", m.Migration.Phase, state.PhaseAccepted)
	equal(t, "conversation", len(c.Doc.Conversation), 1)
	// An hour and the way have passed, by whichever clock.
	if d := p.now.Sub(m.StoredAt); d < time.Hour || d > time.Hour+time.Minute {
		t.Errorf("stored %v ago", d)
	}
	equal(t, "kicks", fmt.Sprint(p.kicked), fmt.Sprint([]string{x.run}))
	equal(t, "records", p.records(), "running small")
	equal(t, "phases", strings.Join(p.phases, " "), "receiving staged accepted running")

	// The phase stays, and the status is that of the run.
	for _, want := range []aaif.RunStatus{aaif.RunRunning, aaif.RunCompleted} {
		if want == aaif.RunCompleted {
			run.End(c, run.Ending{Reply: []byte(`{}`)})
			rec, err := p.states.Get(t.Context(), c.ID())
			if err != nil {
				t.Fatal(err)
			}
			data, err := state.Codec{}.Over(rec.Revision).Encode(c)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.states.Put(t.Context(), c.ID(), rec.Revision, data); err != nil {
				t.Fatal(err)
			}
		}
		all, err := p.receiver.List(t.Context())
		if err != nil || len(all) != 1 || all[0].Phase != state.PhaseRunning || all[0].Status != want {
			t.Errorf("list: %+v, %v, want status %s", all, err, want)
		}
	}
}

// A run that waited at its source waits on, and no worker is woken for it.
func TestHandoffOfAPausedRun(t *testing.T) {
	t.Parallel()
	for _, status := range []aaif.RunStatus{aaif.RunPaused, aaif.RunAwaitingApproval} {
		p := newPlatform(t)
		x := p.pack(func(c *state.Checkpoint, _ *transfer.Grant) {
			c.Mesh.Migration.Status = status
			c.Mesh.Effects = []state.Effect{{ID: "call-1", Tool: "pay", Key: state.EffectKey(c.Doc.RunID, 1, 1), Status: state.EffectUnknown}}
		})
		if _, err := p.send(x); err != nil {
			t.Fatal(err)
		}
		if _, err := p.commit(x.id); err != nil {
			t.Fatal(err)
		}
		equal(t, "status", p.run(x.run).Doc.Status, status)
		equal(t, "kicks", len(p.kicked), 0)
	}
}

func TestHandoffWithATokenThatIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for name, tt := range map[string]struct {
		change func(*state.Checkpoint, *transfer.Grant)
		want   error
	}{
		"expired": {func(_ *state.Checkpoint, g *transfer.Grant) {
			g.Issued = g.Issued.Add(-10 * time.Minute)
			g.Expires = g.Issued.Add(time.Minute)
		}, transfer.ErrTokenExpired},
		"for another":    {func(_ *state.Checkpoint, g *transfer.Grant) { g.Target = "rome" }, transfer.ErrTokenAudience},
		"checksum":       {func(_ *state.Checkpoint, g *transfer.Grant) { g.Checksum = strings.Repeat("0", 64) }, transfer.ErrTokenState},
		"another state":  {func(_ *state.Checkpoint, g *transfer.Grant) { g.StateID = agentID }, transfer.ErrTokenState},
		"another run":    {func(_ *state.Checkpoint, g *transfer.Grant) { g.RunID = agentID }, transfer.ErrTokenState},
		"another source": {func(_ *state.Checkpoint, g *transfer.Grant) { g.Source = "rome" }, transfer.ErrTokenState},
		"unknown agent": {func(c *state.Checkpoint, g *transfer.Grant) {
			c.Doc.AgentID, g.AgentID = "99999999-1111-4111-8111-111111111111", "99999999-1111-4111-8111-111111111111"
		}, transfer.ErrUnknownAgent},
		"another issuer": {func(_ *state.Checkpoint, g *transfer.Grant) { g.Issuer = "agent.y" }, transfer.ErrTokenKey},
	} {
		x := p.pack(tt.change)
		if _, err := p.send(x); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if p.run(x.run) != nil || strings.Contains(p.records(), "large") {
			t.Errorf("%s: something is left: %s", name, p.records())
		}
	}
	// A key that speaks for another agent may not hand over this one's runs,
	// though it is trusted.
	other := p.trust("other", "agent.y")
	ours := p.signer
	p.signer = other
	x := p.pack(func(_ *state.Checkpoint, g *transfer.Grant) { g.Issuer = "agent.y" })
	p.signer = ours
	if _, err := p.send(x); !errors.Is(err, transfer.ErrTokenKey) {
		t.Errorf("a key of another agent: %v", err)
	}
	// Only the token whose stream went wrong behind it has left a trace.
	equal(t, "records", p.records(), "refused small")
}

func TestHandoffTokenIsGoodForOneUse(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	const n = 8
	errs := make(chan error, n)
	for range n {
		go func() { _, err := p.send(x); errs <- err }()
	}
	won := 0
	for range n {
		if err := <-errs; err == nil {
			won++
		} else if !errors.Is(err, transfer.ErrTokenUsed) {
			t.Errorf("a replay: %v", err)
		}
	}
	equal(t, "winners", won, 1)
	if _, err := p.commit(x.id); err != nil {
		t.Fatal(err)
	}
	if _, err := p.send(x); !errors.Is(err, transfer.ErrRunExists) {
		t.Errorf("after the run has begun: %v", err)
	}
	// Nor when the run is gone, nor when the handoff was refused.
	if err := p.states.Delete(context.Background(), state.ID{Entity: entity, Run: x.run}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.send(x); !errors.Is(err, transfer.ErrTokenUsed) {
		t.Errorf("after the run is gone: %v", err)
	}
	y := p.pack()
	if _, err := p.refuse(y.id); err != nil {
		t.Fatal(err)
	}
	if _, err := p.send(y); !errors.Is(err, transfer.ErrTokenUsed) {
		t.Errorf("after a refusal that came first: %v", err)
	}
}

func TestHandoffOfARunThatIsHere(t *testing.T) {
	t.Parallel()
	for name, here := range map[string]struct {
		status aaif.RunStatus
		came   *state.Migration // by a handoff whose record has expired
	}{
		"begun here":       {aaif.RunRunning, nil},
		"came before":      {aaif.RunRunning, &state.Migration{ID: newID(t), Phase: state.PhaseAccepted}},
		"paused before":    {aaif.RunPaused, &state.Migration{ID: newID(t), Phase: state.PhaseStaged}},
		"leaves meanwhile": {aaif.RunMigrating, &state.Migration{ID: newID(t), Phase: state.PhaseCommitted}},
	} {
		p := newPlatform(t)
		x := p.pack()
		data, err := state.Codec{}.Encode(&state.Checkpoint{
			Doc:  aaif.State{AgentID: agentID, RunID: x.run, Status: here.status},
			Mesh: state.Mesh{Format: 1, Entity: entity, Migration: here.came},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.states.Put(context.Background(), state.ID{Entity: entity, Run: x.run}, 0, data); err != nil {
			t.Fatal(err)
		}
		if _, err := p.send(x); !errors.Is(err, transfer.ErrRunExists) {
			t.Errorf("%s: %v", name, err)
		}
		if c := p.run(x.run); c == nil || c.Doc.Status != here.status {
			t.Errorf("%s: the run here is %+v", name, c)
		}
		equal(t, name+": records", p.records(), "")
	}
}

// Two tokens for one run may both have come before it is accepted. It belongs to the first that
// is: the other handoff neither takes it nor takes it away.
func TestTwoHandoffsOfOneRun(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	var first *transfer.Grant
	x := p.pack(func(_ *state.Checkpoint, g *transfer.Grant) { first = g })
	second := *first
	second.ID = newID(t)
	token, err := second.Sign(p.signer)
	if err != nil {
		t.Fatal(err)
	}
	y := parcel{second.ID, x.run, token, x.doc, x.taskID}
	for _, z := range []parcel{x, y} {
		if _, err := p.send(z); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.commit(x.id); err != nil {
		t.Fatal(err)
	}
	if status, err := p.commit(y.id); !errors.Is(err, transfer.ErrRunExists) {
		t.Errorf("the second: %+v, %v", status, err)
	}
	if status, err := p.refuse(y.id); err != nil || status.Phase != state.PhaseRefused {
		t.Errorf("the second, taken back: %+v, %v", status, err)
	}
	if c := p.run(x.run); c == nil || c.Mesh.Migration.ID != x.id || len(p.kicked) != 1 {
		t.Errorf("the run here is %+v, begun %d times", c, len(p.kicked))
	}
}

// A run that has ended is not begun anew at the target.
func TestHandoffOfARunThatHasEnded(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for _, status := range []aaif.RunStatus{aaif.RunCompleted, aaif.RunFailed} {
		x := p.pack(func(c *state.Checkpoint, _ *transfer.Grant) { c.Doc.Status = status })
		if _, err := p.send(x); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", status, err)
		}
	}
	equal(t, "records", p.records(), "refused small, refused small")
}

// Of a concurrent commit and refusal one wins, and both answers say which.
func TestHandoffCommitRacesRefusal(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for range 30 {
		x := p.pack()
		if _, err := p.send(x); err != nil {
			t.Fatal(err)
		}
		results := make(chan state.Phase, 4)
		for i := range 4 {
			go func() {
				status, err := p.commit, error(nil)
				if i%2 == 1 {
					status = p.refuse
				}
				s, err := status(x.id)
				if err != nil {
					t.Error(err)
				}
				results <- s.Phase
			}()
		}
		refused := 0
		for range 4 {
			switch phase := <-results; phase {
			case state.PhaseRefused:
				refused++
			case state.PhaseAccepted, state.PhaseRunning:
			default:
				t.Errorf("the last word is %q", phase)
			}
		}
		run := p.run(x.run)
		if refused != 0 && refused != 4 || (refused == 4) != (run == nil) {
			t.Fatalf("%d of 4 heard of a refusal; run %v", refused, run)
		}
	}
}

// The workers are asked again before a run is accepted: an upgrade may have come between.
func TestARunThatNoLongerFits(t *testing.T) {
	t.Parallel()
	upgraded := fmt.Errorf("%w: it is served in version 2.0.0 here", transfer.ErrUnknownAgent)
	var fits error
	p := newPlatform(t, func(cfg *handoff.ReceiverConfig, _ *handoff.HandlerOptions) {
		cfg.Fits = func(context.Context, string, string) error { return fits }
	})
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	fits = errors.New("no worker answers for now")
	if status, err := p.commit(x.id); err == nil {
		t.Errorf("committed unasked: %+v", status)
	}
	equal(t, "records", p.records(), "staged large")
	fits = upgraded
	for range 2 {
		status, err := p.commit(x.id)
		if err != nil || status.Phase != state.PhaseRefused || status.Reason != upgraded.Error() {
			t.Errorf("%+v, %v", status, err)
		}
	}
	if p.run(x.run) != nil || len(p.kicked) > 0 {
		t.Error("the run is here")
	}
}

package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

// diesAt commits a handoff; the receiver dies before or after it writes a phase.
func (p *platform) diesAt(id string, phase state.Phase, after bool) {
	p.t.Helper()
	p.fail = func(at state.Phase, done bool) {
		if at == phase && done == after {
			panic(died{})
		}
	}
	defer func() {
		p.fail = nil
		if v := recover(); v != (died{}) {
			p.t.Fatalf("it did not die, but: %v", v)
		}
	}()
	_, _ = p.receiver.Commit(context.Background(), id)
}

// prepared sends a run and has the receiver die when it has stored the run, before it accepts it.
func (p *platform) prepared() parcel {
	p.t.Helper()
	x := p.pack()
	if _, err := p.send(x); err != nil {
		p.t.Fatal(err)
	}
	p.diesAt(x.id, state.PhaseAccepted, false)
	if c := p.run(x.run); c == nil || c.Doc.Status != aaif.RunMigrating || c.Mesh.Migration.Phase != state.PhaseStaged {
		p.t.Fatalf("it is not prepared: %+v", c)
	}
	return x
}

// expire deletes the record of a handoff, as the store does after its life.
func (p *platform) expire(id string) {
	p.t.Helper()
	if err := p.handoffs.Delete(context.Background(), state.ID{Entity: "service.handoff", Run: id}); err != nil {
		p.t.Fatal(err)
	}
}

// collect starts another receiver on the same stores, and has it collect.
func (p *platform) collect(change ...func(*handoff.ReceiverConfig)) (refused, started int, err error) {
	p.t.Helper()
	cfg := p.config()
	for _, f := range change {
		f(&cfg)
	}
	r, err := handoff.NewReceiver(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return r.Collect(context.Background())
}

// A receiver dies between the preparation of a run and its acceptance, and stays down until the
// handoff's record has expired. The run that it prepared is deleted, whether its source asks first
// or the next receiver looks first; after that it cannot be accepted.
func TestAPreparedRunWithoutARecordIsDeleted(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{true, false} {
		t.Run(fmt.Sprint("the source asks first ", asked), func(t *testing.T) {
			t.Parallel()
			p := newPlatform(t)
			x := p.prepared()
			p.later(time.Hour)
			p.expire(x.id)
			if asked {
				if status, err := p.refuse(x.id); err != nil || status.Phase != state.PhaseRefused {
					t.Fatalf("%+v, %v", status, err)
				}
			}
			if _, _, err := p.collect(); err != nil {
				t.Fatal(err)
			}
			if c := p.run(x.run); c != nil {
				t.Errorf("the run is %s, in phase %s", c.Doc.Status, c.Mesh.Migration.Phase)
			}
			if status, err := p.commit(x.id); err != nil || status.Phase != state.PhaseRefused {
				t.Errorf("%+v, %v", status, err)
			}
			equal(t, "records", p.records(), "refused small")
			equal(t, "kicks", len(p.kicked), 0)
		})
	}
}

// A receiver that is up looks again after an hour.
func TestPreparedRunsWithoutARecordAreLookedForEveryHour(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	if _, _, err := p.receiver.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	x := p.prepared()
	p.expire(x.id)
	for _, wait := range []time.Duration{time.Minute, time.Hour} {
		p.later(wait)
		if _, _, err := p.receiver.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if gone := p.run(x.run) == nil; gone != (wait == time.Hour) {
			t.Errorf("after %v: the run is gone %t", wait, gone)
		}
	}
}

// undeleted is a store that deletes nothing.
type undeleted struct{ state.Store }

func (undeleted) Delete(context.Context, state.ID) error { return errors.New("no answer") }

// The refusal of a prepared run is interrupted before the run is deleted. It is deleted later,
// however late, and also when the refusal's record has expired.
func TestAPreparedRunThatWasRefusedIsDeletedHoweverLate(t *testing.T) {
	t.Parallel()
	for _, expired := range []bool{false, true} {
		p := newPlatform(t)
		x := p.prepared()
		cfg := p.config()
		cfg.States = undeleted{p.states}
		r, err := handoff.NewReceiver(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Refuse(t.Context(), x.id, entity, "the source took the run back"); err == nil || p.run(x.run) == nil {
			t.Fatal("it was not interrupted")
		}
		p.later(3 * handoff.Stay)
		if expired {
			p.expire(x.id)
		}
		if _, _, err := p.collect(); err != nil {
			t.Fatal(err)
		}
		if p.run(x.run) != nil {
			t.Errorf("expired %t: there is a run", expired)
		}
		equal(t, "records", p.records(), "refused small")
	}
}

// A run that is being accepted, or that was accepted and not started, stays; it is started however
// late.
func TestARunOfAnAcceptedHandoffIsNotDeleted(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	p.fail = func(at state.Phase, after bool) { // while the commit goes on
		if at != state.PhaseAccepted {
			return
		}
		if refused, started, err := p.collect(); err != nil || refused+started != 0 {
			t.Errorf("accepted %t: collect: %d, %d, %v", after, refused, started, err)
		}
		if p.run(x.run) == nil {
			t.Errorf("accepted %t: there is no run", after)
		}
	}
	if status, err := p.receiver.Commit(t.Context(), x.id); err != nil || status.Phase != state.PhaseRunning {
		t.Errorf("%+v, %v", status, err)
	}
	p.fail = nil
	equal(t, "status", p.run(x.run).Doc.Status, aaif.RunRunning)

	x = p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	p.diesAt(x.id, state.PhaseAccepted, true)
	p.later(29 * 24 * time.Hour)
	broken := func(cfg *handoff.ReceiverConfig) {
		cfg.Kick = func(context.Context, *state.Checkpoint) error { return errors.New("no answer") }
	}
	if _, _, err := p.collect(broken); err == nil || p.run(x.run) == nil {
		t.Fatalf("a receiver that cannot start it: %v, the run is %+v", err, p.run(x.run))
	}
	if _, started, err := p.collect(); err != nil || started != 1 {
		t.Errorf("collect: %d started, %v", started, err)
	}
	equal(t, "status", p.run(x.run).Doc.Status, aaif.RunRunning)
	equal(t, "kicks", len(p.kicked), 2)
}

// The record expires while the receiver is about to accept: the run is refused and deleted, or
// accepted, never one half of each.
func TestARecordThatExpiresDuringTheCommit(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	p.fail = func(at state.Phase, after bool) {
		if at == state.PhaseAccepted && !after {
			p.mu.Lock()
			p.fail = nil
			p.mu.Unlock()
			p.expire(x.id)
			if refused, _, err := p.collect(); err != nil || refused != 1 {
				t.Errorf("collect: %d refused, %v", refused, err)
			}
		}
	}
	if status, err := p.receiver.Commit(t.Context(), x.id); err != nil || status.Phase != state.PhaseRefused {
		t.Errorf("%+v, %v", status, err)
	}
	if p.run(x.run) != nil || len(p.kicked) != 0 {
		t.Errorf("there is a run, begun %d times", len(p.kicked))
	}
}

// Runs that leave, go to another worker, or run are no business of the receiver; nor are those that
// another platform's receiver has prepared in the same store.
func TestRunsThatWereNotPreparedHereStay(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	var runs []string
	for i, m := range []state.Migration{
		{Phase: state.PhaseCaptured, Target: here}, {Phase: state.PhaseCommitted, Target: here}, {Phase: state.PhaseRelaying, Target: here},
		{Phase: state.PhaseStaged, Target: "rome"}, {Phase: state.PhaseStaged, Target: here},
	} {
		c := state.New(entity, newID(t), agentID)
		m.ID = newID(t)
		c.Mesh.Migration, c.Doc.Status = &m, aaif.RunMigrating
		if i == 4 {
			c.Doc.Status = aaif.RunPaused
		}
		data, err := state.Codec{}.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.states.Put(t.Context(), c.ID(), 0, data); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, c.Doc.RunID)
	}
	if refused, started, err := p.collect(); err != nil || refused+started != 0 {
		t.Errorf("collect: %d, %d, %v", refused, started, err)
	}
	for i, id := range runs {
		if p.run(id) == nil {
			t.Errorf("run %d is gone", i)
		}
	}
	equal(t, "records", p.records(), "")
}

// lagging is a store whose reads are answered by a replica that has nothing yet.
type lagging struct{ state.Store }

func (lagging) Get(context.Context, state.ID) (state.Record, error) {
	return state.Record{}, state.ErrNotFound
}

// A record that a read does not find yet is found when the refusal is written.
func TestARecordThatIsNotReadYetKeepsItsRun(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.prepared()
	refused, _, err := p.collect(func(cfg *handoff.ReceiverConfig) { cfg.Handoffs = lagging{cfg.Handoffs} })
	if err != nil || refused != 0 {
		t.Errorf("collect: %d refused, %v", refused, err)
	}
	if p.run(x.run) == nil {
		t.Fatal("the run is gone")
	}
	if status, err := p.commit(x.id); err != nil || status.Phase != state.PhaseRunning {
		t.Errorf("%+v, %v", status, err)
	}
}

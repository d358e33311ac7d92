package handoff_test

import (
	"bytes"
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

func TestHandoffIsCollected(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	collect := func(refused, started int) {
		t.Helper()
		r, s, err := p.receiver.Collect(context.Background())
		if err != nil || r != refused || s != started {
			t.Errorf("collect: %d, %d, %v; want %d, %d", r, s, err, refused, started)
		}
	}
	collect(0, 0)
	p.later(handoff.Stay + time.Second)
	collect(1, 0)
	equal(t, "records", p.records(), "refused small")
	if status, err := p.commit(x.id); err != nil || status.Phase != state.PhaseRefused {
		t.Errorf("%+v, %v", status, err)
	}
	equal(t, "reason", p.records(), "refused small")
}

// died is how a process ends in these tests.
type died struct{}

// The receiver dies before or after each write. What it leaves is finished by
// another one, and the run is here once or not at all.
func TestReceiverDiesAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, phase := range []state.Phase{state.PhaseReceiving, state.PhaseStaged, state.PhaseAccepted, state.PhaseRunning} {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprint(phase, " ", done), func(t *testing.T) {
				t.Parallel()
				p := newPlatform(t)
				x := p.pack()
				p.fail = func(at state.Phase, after bool) {
					if at == phase && after == done {
						p.mu.Lock()
						p.fail = nil
						p.mu.Unlock()
						panic(died{})
					}
				}
				dies := func(f func()) (dead bool) {
					defer func() {
						if v := recover(); v != nil {
							if _, ok := v.(died); !ok {
								panic(v)
							}
							dead = true
						}
					}()
					f()
					return false
				}
				ctx := context.Background()
				var stream bytes.Buffer
				if err := transfer.Write(ctx, &stream, x.token, x.doc); err != nil {
					t.Fatal(err)
				}
				dead := dies(func() {
					if _, err := p.receiver.Receive(ctx, &stream); err != nil {
						t.Fatal(err)
					}
				})
				staged := !dead
				dead = dead || dies(func() {
					if _, err := p.receiver.Commit(ctx, x.id); err != nil {
						t.Fatal(err)
					}
				})
				if !dead {
					t.Fatal("it lives")
				}
				if !staged {
					// The source hears nothing, takes its run back, and says so.
					status, err := p.refuse(x.id)
					if err != nil {
						t.Fatal(err)
					}
					equal(t, "phase", status.Phase, state.PhaseRefused)
					equal(t, "records", p.records(), "refused small")
					if p.run(x.run) != nil {
						t.Error("there is a run")
					}
					return
				}
				// The source has let go. It asks until it knows.
				p.later(handoff.DefaultIdle + time.Second)
				if _, _, err := p.receiver.Collect(ctx); err != nil {
					t.Fatal(err)
				}
				status, err := p.commit(x.id)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "phase", status.Phase, state.PhaseRunning)
				run := p.run(x.run)
				if run == nil || run.Doc.Status != aaif.RunRunning || run.Mesh.Epoch != 5 || len(p.kicked) == 0 {
					t.Errorf("run %+v, kicks %v", run, p.kicked)
				}
				equal(t, "records", p.records(), "running small")
			})
		}
	}
}

// A run that was ended between its preparation and its start, by a worker of an earlier release, which
// did not refuse the cancel, has an answer: it is not started. If the handoff is refused, it is deleted.
func TestARunThatEndsBeforeItStartsIsNotStarted(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{true, false} {
		p := newPlatform(t)
		x := p.pack()
		if _, err := p.send(x); err != nil {
			t.Fatal(err)
		}
		p.fail = func(at state.Phase, after bool) {
			if at == state.PhaseAccepted && !after {
				panic(died{})
			}
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = p.receiver.Commit(t.Context(), x.id)
		}()
		p.fail = nil
		c := p.run(x.run)
		if c == nil || c.Mesh.Migration.Phase != state.PhaseStaged {
			t.Fatalf("it is not prepared: %+v", c)
		}
		run.End(c, run.Ending{Reply: []byte(`{}`), Error: &aaif.RunError{Code: "E_CANCELLED"}})
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
		decide, phase := p.commit, state.PhaseRunning
		if !taken {
			decide, phase = p.refuse, state.PhaseRefused
		}
		if status, err := decide(x.id); err != nil || status.Phase != phase {
			t.Errorf("%+v, %v", status, err)
		}
		if c = p.run(x.run); (c != nil) != taken || taken && c.Doc.Status != aaif.RunFailed || len(p.kicked) > 0 {
			t.Errorf("taken %t: the run is %+v, begun %d times", taken, c, len(p.kicked))
		}
	}
}

// A run that has ended, and is forgotten, does not begin anew because its
// receiver had died before it could write that it had begun.
func TestReceiverDoesNotStartTwice(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	p.fail = func(at state.Phase, after bool) {
		if at == state.PhaseRunning && !after {
			panic(died{})
		}
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = p.receiver.Commit(context.Background(), x.id)
	}()
	p.fail = nil
	equal(t, "kicks", len(p.kicked), 1)
	if status, err := p.receiver.Refuse(context.Background(), x.id, entity, "the source took the run back"); !errors.Is(err, handoff.ErrAccepted) {
		t.Errorf("a run that was accepted is refused: %+v, %v", status, err)
	}
	if err := p.states.Delete(context.Background(), state.ID{Entity: entity, Run: x.run}); err != nil {
		t.Fatal(err)
	}
	p.later(time.Hour)
	if _, _, err := p.receiver.Collect(context.Background()); err != nil {
		t.Fatal(err)
	}
	if p.run(x.run) != nil || len(p.kicked) != 1 {
		t.Errorf("it began anew: %v", p.kicked)
	}
	equal(t, "records", p.records(), "running small")
}

// A record is kept under its token's id, which no seal covers.
func TestARecordOfAnotherHandoffIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x, y := p.pack(), newID(t)
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	for rec, err := range p.handoffs.List(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.handoffs.Put(context.Background(), state.ID{Entity: rec.ID.Entity, Run: y}, 0, rec.Data); err != nil {
			t.Fatal(err)
		}
		break
	}
	if status, err := p.receiver.Commit(context.Background(), y); err == nil || p.run(x.run) != nil {
		t.Errorf("the record of handoff %s, under %s: %+v", x.id, y, status)
	}
}

func TestReceiverConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := handoff.NewReceiver(handoff.ReceiverConfig{Issuers: []string{"a..b"}})
	for _, want := range []string{"Platform", "Keys", "Agent", "Handoffs", "States", "Kick", "Replies", "issuer"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not missed: %v", want, err)
		}
	}
}

// A run that is only staged has no receipt, and callers can tell.
func TestAStagedRunHasNoReceipt(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	if _, err := p.receiver.Receipt(context.Background(), x.id, "", p.signer); !errors.Is(err, handoff.ErrNoVerdict) || err.Error() != "handoff "+x.id+" is staged: there is no verdict yet" {
		t.Errorf("got %v", err)
	}
}

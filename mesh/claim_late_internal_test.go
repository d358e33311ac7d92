package mesh

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/state"
)

// firstWrites is a store in which a test interferes with the first write of one run.
type firstWrites struct {
	*jetstream.States
	next atomic.Pointer[func(put func() (uint64, error)) (uint64, error)]
}

func (s *firstWrites) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	put := func() (uint64, error) { return s.States.PutNoted(ctx, id, prev, data, note) }
	if prev == 0 {
		if f := s.next.Swap(nil); f != nil {
			return (*f)(put)
		}
	}
	return put()
}

// unclaimed serves an agent, and calls handle for a task that has begun before its claim is
// written, where handle interferes with its first write. Other tasks end at once.
func unclaimed(t *testing.T, handle func(ctx context.Context, s *firstWrites, r *Run) error) {
	t.Helper()
	store, handled := &firstWrites{}, make(chan bool, 1000)
	node, ctx := serveDurable(t, time.Minute, Agent{Entity: "agent.x", Handler: HandlerFunc(func(ctx context.Context, task *Task) (_ json.RawMessage, err error) {
		unwritten := task.Run().unwritten.Load()
		if unwritten {
			err = handle(ctx, store, task.Run())
		}
		handled <- unwritten && store.next.Swap(nil) == nil // else the claim was written in between
		return json.RawMessage(`{}`), err
	})}, func(cfg *Config) {
		store.States = cfg.Durable.States.(*jetstream.States)
		cfg.Durable.States = store
	})
	for {
		if _, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{}); err != nil {
			t.Fatal(err)
		}
		select {
		case yes := <-handled:
			if yes {
				return
			}
		case <-ctx.Done():
			t.Fatal("no task begins before its claim is written")
		}
	}
}

// The first checkpoint was stored, and its confirmation did not come in the time that the
// handler had for it. The worker finds its own record, and the run goes on under its claim.
func TestAFirstCheckpointThatWasNotConfirmedIsKnownAgain(t *testing.T) {
	t.Parallel()
	var unconfirmed, next error
	var epoch uint64
	unclaimed(t, func(ctx context.Context, s *firstWrites, r *Run) error {
		step, cancel := context.WithCancel(ctx)
		defer cancel()
		write := func(put func() (uint64, error)) (uint64, error) {
			_, err := put()
			cancel()
			return 0, cmp.Or(err, step.Err())
		}
		s.next.Store(&write)
		unconfirmed = r.Commit(step, state.Step{Kind: state.StepHandler, Name: "first"}, nil)
		next = r.Commit(ctx, state.Step{Kind: state.StepHandler, Name: "second"}, nil)
		epoch = r.Epoch()
		return nil
	})
	if !errors.Is(unconfirmed, context.Canceled) || next != nil || epoch != 1 {
		t.Errorf("the first commit: %v, the next one: %v, in epoch %d", unconfirmed, next, epoch)
	}
}

// A claim has no staged steps, so one that was stored and not confirmed leaves them to the next write.
func TestAClaimThatWasNotConfirmedLeavesStagedStepsToTheNextWrite(t *testing.T) {
	t.Parallel()
	var unconfirmed, next error
	var loop string
	unclaimed(t, func(ctx context.Context, s *firstWrites, r *Run) error {
		step, cancel := context.WithCancel(ctx)
		defer cancel()
		write := func(put func() (uint64, error)) (uint64, error) {
			_, err := put()
			cancel()
			return 0, cmp.Or(err, step.Err())
		}
		if err := r.Stage(state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error { c.Mesh.Loop = json.RawMessage(`1`); return nil }); err != nil {
			return err
		}
		r.View()
		s.next.Store(&write)
		unconfirmed = r.Claim(step)
		next = r.Commit(ctx, state.Step{Kind: state.StepHandler}, nil)
		loop = string(r.View().Mesh.Loop)
		return nil
	})
	if !errors.Is(unconfirmed, context.Canceled) || next != nil || loop != "1" {
		t.Errorf("the claim: %v, the next commit: %v, staged: %q", unconfirmed, next, loop)
	}
}

// Another claim of the run was written before this worker's first checkpoint: by another worker,
// or by this one under a later delivery. This worker has lost the run, and with it the message.
func TestAFirstCheckpointAfterAnotherClaimLosesTheRun(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]string{"another worker's": "another", "its own": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lost error
			var held bool
			unclaimed(t, func(ctx context.Context, s *firstWrites, r *Run) error {
				write := func(put func() (uint64, error)) (uint64, error) {
					c := r.cp.Load().Clone()
					c.Mesh.Epoch, c.Mesh.Owner = 2, cmp.Or(owner, c.Mesh.Owner)
					data, err := state.Codec{}.Encode(c)
					if err == nil {
						_, err = s.States.Put(ctx, r.id, 0, data)
					}
					if err != nil {
						return 0, err
					}
					return put()
				}
				s.next.Store(&write)
				lost = r.Commit(ctx, state.Step{Kind: state.StepHandler}, nil)
				r.lane.mu.Lock()
				_, held = r.lane.holds[r.hold]
				r.lane.mu.Unlock()
				return lost
			})
			if !errors.Is(lost, ErrLost) || held {
				t.Errorf("the commit: %v, the worker renews the message: %v", lost, held)
			}
		})
	}
}

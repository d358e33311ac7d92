package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// chain is the handler of an agent: a chain of steps, each of which has one external
// effect. It commits an intent before each effect and a receipt after it, and resumes
// where its last owner stopped.
type chain struct {
	effects string // the address of the effect log
	system  string // the system of the worker
	lease   time.Duration
	gates   *gates
	owner   func(string) // is called with the name under which runs are owned here
	forgets bool         // ignores receipts, to break a promise
}

// progress is what a chain stores in its run's record: the receipts so far.
type progress struct {
	Receipts []int `json:"receipts"`
}

func readProgress(loop json.RawMessage) (p progress) {
	if len(loop) > 0 {
		json.Unmarshal(loop, &p)
	}
	return p
}

// Points of the chain itself, in addition to those of the mesh.
const (
	pointBeforeEffect Point = "before-effect"
	pointAfterEffect  Point = "after-effect"
)

// Handle runs one task.
func (c *chain) Handle(ctx context.Context, t *mesh.Task) (json.RawMessage, error) {
	run := t.Run()
	if run == nil {
		return nil, envelope.Errorf(envelope.CodeRequires, "a soak's tasks go through the durable lane")
	}
	var o order
	if err := json.Unmarshal(t.Envelope.Payload, &o); err != nil {
		return nil, err
	}
	now := run.View()
	c.owner(now.Mesh.Owner)
	done := readProgress(now.Mesh.Loop)
	if c.forgets {
		done = progress{}
	}
	for i := len(done.Receipts); i < o.Steps; i++ {
		if o.Wait && i == 1 {
			c.await(ctx, run)
		}
		receipt, err := c.step(ctx, run, o, i)
		if err != nil {
			return nil, err
		}
		done.Receipts = append(done.Receipts, receipt)
	}
	return json.Marshal(done)
}

// await waits until the run is asked to move, but not for ever: the request may be lost.
// A run that was asked before, and was taken back, goes on.
func (c *chain) await(ctx context.Context, run *mesh.Run) {
	if run.View().Mesh.Migration != nil {
		return
	}
	timer := time.NewTimer(10 * c.lease)
	defer timer.Stop()
	select {
	case <-run.StopRequested():
	case <-timer.C:
	case <-ctx.Done():
	}
}

// step runs step i: it has its effect and stores its receipt in the record.
func (c *chain) step(ctx context.Context, run *mesh.Run, o order, i int) (int, error) {
	key := state.EffectKey(run.ID(), i, 0)
	begun := run.View().Effect(key)
	if begun != nil && begun.Status == state.EffectInFlight && o.Once {
		// It may have happened, and must not happen twice.
		return gaveUp, c.receipt(ctx, run, i, key, gaveUp, state.EffectTimedOut)
	}
	if err := run.Commit(ctx, state.Step{Kind: state.StepIntent, Name: fmt.Sprint(i)}, func(cp *state.Checkpoint) error {
		e := cp.Effect(key)
		if e == nil {
			cp.Mesh.Effects = append(cp.Mesh.Effects, state.Effect{ID: fmt.Sprint(i), Tool: "effect", Key: key})
			e = &cp.Mesh.Effects[len(cp.Mesh.Effects)-1]
		}
		e.Status, e.Epoch, e.At = state.EffectInFlight, run.Epoch(), time.Now()
		e.Tries++
		return nil
	}); err != nil {
		return 0, err
	}
	c.gates.at(ctx, pointBeforeEffect, run.ID())
	receipt, err := cause(ctx, c.effects, call{Key: key, Run: run.ID(), Epoch: run.Epoch(), Step: i, Once: o.Once, From: c.system})
	if err != nil {
		return 0, errors.Join(err, ctx.Err())
	}
	c.gates.at(ctx, pointAfterEffect, run.ID())
	return receipt, c.receipt(ctx, run, i, key, receipt, state.EffectDone)
}

func (c *chain) receipt(ctx context.Context, run *mesh.Run, i int, key string, receipt int, status state.EffectStatus) error {
	return run.Commit(ctx, state.Step{Kind: state.StepReceipt, Name: fmt.Sprint(i)}, func(cp *state.Checkpoint) error {
		e := cp.Effect(key)
		if e == nil {
			return fmt.Errorf("the intent of step %d is gone", i)
		}
		e.Status, e.Epoch, e.DoneAt = status, run.Epoch(), time.Now()
		p := readProgress(cp.Mesh.Loop)
		p.Receipts = append(p.Receipts, receipt)
		loop, err := json.Marshal(p)
		cp.Mesh.Loop = loop
		return err
	})
}

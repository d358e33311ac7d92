package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

// The message of a run that was lost during its transfer is its new owner's: Requeue
// touches nothing, and here there is nothing that it could touch.
func TestARunThatWasLostOnItsWayIsNotRequeued(t *testing.T) {
	t.Parallel()
	stopped{}.Requeue(fmt.Errorf("checkpoint of a run: %w", ErrLost))
}

// A run that has ended or moved here is not captured any more, and a worker that stops need not
// wait for that.
func TestTheWaitForACaptureEndsWithTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := &Run{lane: &lane{holdings: &holdings{ctx: t.Context()}}, task: &Task{}}
		r.mu.Lock()
		r.captureAfter(10 * time.Minute)
		r.stop(ErrParked)
		r.mu.Unlock()
		r.lane.work.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("the worker has work for %v after the run", took)
		}
	})
}

// The wait of a transfer that was taken back must not capture the run for the next one.
func TestTheNextTransferHasAWaitOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := &Run{lane: &lane{holdings: &holdings{ctx: t.Context()}}, task: &Task{}, end: ErrLost} // nothing is written
		r.mu.Lock()
		r.captureAfter(10 * time.Minute)
		r.captureAfter(time.Minute)
		r.mu.Unlock()
		r.lane.work.Wait()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the waits last %v", took)
		}
		r.mu.Lock()
		r.captureAfter(10 * time.Minute)
		r.captureAfter(0)
		r.mu.Unlock()
		r.lane.work.Wait()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("a transfer without a time waits, until %v", took)
		}
	})
}

// What a run waits for may come while it is on its way to another platform. Nothing watches
// for it then; so when the transfer has failed, the worker looks.
func TestAWaitingRunThatDidNotMoveIsChecked(t *testing.T) {
	t.Parallel()
	signer, key, err := sign.NewKey("sleeper-1", sign.Ed25519, "agent.sleeper")
	if err != nil {
		t.Fatal(err)
	}
	ring := new(sign.Ring)
	if err := ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	lanes := make(chan *lane, 1)
	failed, goOn := make(chan state.ID, 1), make(chan struct{})
	handler := HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
		run := task.Run()
		if run.View().Mesh.Plan != nil {
			return json.RawMessage(`{"woken":true}`), nil
		}
		lanes <- run.lane
		return nil, run.ParkUntil(ctx, Wake{At: run.lane.clock.now().Add(time.Hour)}, func(c *state.Checkpoint) error {
			c.Mesh.Plan = json.RawMessage(`{}`)
			return nil
		})
	})
	node, ctx := serveDurable(t, 0, Agent{Entity: "agent.sleeper", Handler: handler, Signer: signer}, func(cfg *Config) {
		cfg.Verifier.Ring = ring
		cfg.Durable.Remotes = func(url string) (*handoff.Client, error) { return handoff.NewClient(url, handoff.ClientOptions{}) }
		cfg.Durable.Observe = func(at Point, id state.ID) {
			if at == PointBeforeMove+Point(state.PhaseAborted) {
				failed <- id
				<-goOn
			}
		}
	})
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.sleeper", "x.y.z", json.RawMessage(`{}`))
	if _, err := node.Submit(ctx, task, client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	l := <-lanes
	for l.waits.Len() == 0 && ctx.Err() == nil {
		<-tick.C
	}
	nowhere := intents.MigrateTask{Target: intents.Target{ID: task.ID}, To: "https://127.0.0.1:1"}
	if out, err := node.Command(ctx, "agent.sleeper", nowhere); err != nil || !out.Migrating {
		t.Fatalf("migrate: %+v, %v", out, err)
	}
	var id state.ID
	select {
	case id = <-failed:
	case <-ctx.Done():
		t.Fatal("the transfer does not end")
	}
	// As after a check of a run that is being transferred: nothing watches it. Its time comes.
	l.waits.Remove(id.Run)
	if err := comes(ctx, l, id); err != nil {
		t.Error(err)
	}
	close(goOn)
	reply, err := node.Result(ctx, task.To, task.ID, client.ResultOptions{Follow: true})
	if err != nil || string(reply.Payload) != `{"woken":true}` {
		t.Errorf("%+v, %v", reply, err)
	}
}

// comes lets the time come that a run waits for.
func comes(ctx context.Context, l *lane, id state.ID) error {
	rec, err := l.cfg.States.Get(ctx, id)
	if err != nil {
		return err
	}
	c, err := l.records.read(rec)
	if err != nil {
		return err
	}
	c.Mesh.WakeAt = l.clock.now().Add(-time.Second)
	_, _, err = l.records.put(ctx, id, rec.Revision, c)
	return err
}

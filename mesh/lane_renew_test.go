package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// A worker owns a run, and nothing in it is at work on the run. It lets the lease on the
// run's message end, and takes the redelivered message for a claim, so that the run goes
// on, although its owner lives and there is no other worker. Finding D6 of the reliability
// review: such a run stood still for as long as its owner lived.
func TestALeaseIsNotRenewedWithoutWork(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	begun := make(chan *Run, 10)
	handler := HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
		run := task.Run()
		if err := run.Claim(ctx); err != nil {
			return nil, err
		}
		begun <- run
		if run.Epoch() == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return json.RawMessage(`{"went":"on"}`), nil
	})
	node, ctx := serveDurable(t, 600*time.Millisecond, Agent{Entity: "agent.x", Handler: handler, Concurrency: 2})
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
	if _, err := node.Submit(ctx, task, client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case run := <-begun:
		run.tally.add(-1) // as if its handler had gone without a trace
	case <-ctx.Done():
		t.Fatal("the task did not begin")
	}
	reply, err := node.Result(ctx, task.To, task.ID, client.ResultOptions{Follow: true})
	if err != nil || string(reply.Payload) != `{"went":"on"}` {
		t.Errorf("%+v, %v", reply, err)
	}
	if n := len(begun); n != 1 {
		t.Errorf("the handler began %d times more", n)
	}
}

// The buffer of a connection that is lost is for replies: renewals of leases do not fill it. They are
// made up for soon after the connection is back, and not with the next one, before which the leases may end.
func TestLeasesAreNotRenewedWithoutAConnection(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	outer := t
	t.Run("", func(t *testing.T) { // ends before the second server
		w := &waiter{begun: make(chan *Run, 100), over: make(chan struct{})}
		node, ctx := serveDurableOn(t, js, 10*time.Minute, Agent{Entity: "agent.x", Handler: w})
		t.Cleanup(func() { close(w.over) })
		if _, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{}); err != nil {
			t.Fatal(err)
		}
		l := natstest.Within(t, "the task", w.begun).lane
		srv.Close()
		natstest.Eventually(t, "the connection is lost", func() bool { return !node.conn.IsConnected() })
		const times = 1000
		was := node.conn.Stats().OutMsgs
		for range times {
			l.renewLeases()
		}
		if n := node.conn.Stats().OutMsgs - was; n >= times {
			t.Errorf("%d messages wait for the connection", n)
		}
		natstest.Restart(outer, srv)
		natstest.Eventually(t, "the leases are renewed", func() bool { return !l.unrenewed.Load() })
	})
}

// A worker that stood still, or was cut off, looks whether it still has its runs: the
// handler of one that it has lost ends at once, and not with its next step.
func TestAWorkerThatLooksFindsThatItHasLostARun(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(ctx context.Context, states state.Store, rec state.Record) error{
		"its own": nil,
		"another's": func(ctx context.Context, states state.Store, rec state.Record) error {
			return claimedBy(ctx, states, rec, "another")
		},
		"gone": func(ctx context.Context, states state.Store, rec state.Record) error {
			return states.Delete(ctx, rec.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, ended, over := make(chan *Run, 10), make(chan error, 10), make(chan struct{})
			defer close(over)
			node, ctx := serveDurable(t, time.Minute, Agent{Entity: "agent.x", Handler: HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
				if err := task.Run().Claim(ctx); err != nil {
					return nil, err
				}
				begun <- task.Run()
				select {
				case <-ctx.Done():
				case <-over:
				}
				ended <- context.Cause(ctx)
				return json.RawMessage(`{}`), ctx.Err()
			})})
			task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
			if _, err := node.Submit(ctx, task, client.SubmitOptions{}); err != nil {
				t.Fatal(err)
			}
			run := <-begun
			states := run.lane.cfg.States
			rec, err := states.Get(ctx, run.id)
			if err != nil {
				t.Fatal(err)
			}
			if change == nil {
				if run.verify(ctx); run.ended() != nil {
					t.Errorf("it has ended: %v", run.ended())
				}
				return
			}
			if err := change(ctx, states, rec); err != nil {
				t.Fatal(err)
			}
			run.verify(ctx)
			if !errors.Is(run.ended(), ErrLost) {
				t.Fatalf("it goes on: %v", run.ended())
			}
			if err := <-ended; !errors.Is(err, ErrLost) {
				t.Errorf("the handler ends with %v", err)
			}
		})
	}
}

// The message of a run comes again to a worker that has the run, or believes so: it keeps the
// message only if it still owns the run. Else the owner's death would not bring the message back
// before this worker's handler has returned.
func TestAMessageThatComesAgainIsKeptByTheOwnerAlone(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"its own": false, "another's": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, over := make(chan *Run, 10), make(chan struct{})
			defer close(over)
			node, ctx := serveDurable(t, time.Minute, Agent{Entity: "agent.x", Handler: HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
				if err := task.Run().Claim(ctx); err != nil {
					return nil, err
				}
				begun <- task.Run()
				<-over
				return json.RawMessage(`{}`), nil
			})})
			task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
			if _, err := node.Submit(ctx, task, client.SubmitOptions{}); err != nil {
				t.Fatal(err)
			}
			r := <-begun
			l, first := r.lane, r.hold
			if lost {
				rec, err := l.cfg.States.Get(ctx, r.id)
				if err != nil {
					t.Fatal(err)
				}
				if err := claimedBy(ctx, l.cfg.States, rec, "another"); err != nil {
					t.Fatal(err)
				}
			}
			delivery := *first.Delivery
			delivery.Delivered++
			hold := l.hold(&delivery)
			l.deliveries.redelivered(r, newRun(l, &Task{Envelope: task, host: l.host}, hold))
			hold.tally.add(-1) // see lane.deliver
			l.mu.Lock()
			_, before := l.holds[first]
			_, after := l.holds[hold]
			l.mu.Unlock()
			if before || after == lost || (r.ended() != nil) != lost {
				t.Errorf("it renews the first delivery: %v, the second: %v; the run has ended here: %v", before, after, r.ended())
			}
		})
	}
}

// claimedBy makes another worker the owner in a record.
func claimedBy(ctx context.Context, states state.Store, rec state.Record, owner string) error {
	c, err := state.Codec{}.Read(rec)
	if err != nil {
		return err
	}
	c.Mesh.Owner, c.Mesh.Epoch = owner, c.Mesh.Epoch+1
	data, err := state.Codec{}.Encode(c)
	if err == nil {
		_, err = states.Put(ctx, rec.ID, rec.Revision, data)
	}
	return err
}

// ended returns why nothing more may be written, nil while the run goes on.
func (r *Run) ended() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

package mesh

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// lateStore is a store in which the next write of one run is made, and its confirmation comes too
// late. old is what a replica answers that does not have the write yet: the next reads return it.
type lateStore struct {
	*jetstream.States
	run  string
	next atomic.Pointer[context.CancelFunc]
	lags atomic.Int64
	old  state.Record
}

func (s *lateStore) Get(ctx context.Context, id state.ID) (state.Record, error) {
	if id.Run == s.run && s.next.Load() == nil && s.lags.Add(-1) >= 0 {
		return s.old, nil
	}
	return s.States.Get(ctx, id)
}

func (s *lateStore) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	rev, err := s.States.PutNoted(ctx, id, prev, data, note)
	if cancel := s.next.Load(); cancel != nil && err == nil && id.Run == s.run && s.next.CompareAndSwap(cancel, nil) {
		(*cancel)()
		return 0, ctx.Err()
	}
	return rev, err
}

// A command has little time. Where the record says that a run goes on, and there was no time left to
// queue the run, or to learn that the record was written, the worker queues it all the same.
func TestARunGoesOnThoughItsResumeHadNoTimeLeft(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"to queue the run", "to learn that it was written", "to learn it, and a replica lags"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, late := &lateStore{}, atomic.Pointer[context.CancelFunc]{}
			began := make(chan *Run, 10)
			agent := Agent{Entity: "agent.x", Handler: HandlerFunc(func(_ context.Context, task *Task) (json.RawMessage, error) {
				began <- task.Run()
				return json.RawMessage(`{}`), nil
			})}
			node, ctx := serveDurable(t, time.Minute, agent, func(cfg *Config) {
				store.States = cfg.Durable.States.(*jetstream.States)
				cfg.Durable.States = store
				cfg.Durable.Observe = func(p Point, _ state.ID) {
					if p == PointRequeue {
						if cancel := late.Swap(nil); cancel != nil {
							(*cancel)()
						}
					}
				}
			})
			if _, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{}); err != nil {
				t.Fatal(err)
			}
			l := begun(t, ctx, began).lane

			rec := storePaused(t, ctx, l)
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			if name == "to queue the run" {
				late.Store(&cancel)
			} else {
				store.run, store.old = rec.ID.Run, rec
				store.next.Store(&cancel)
				if name != "to learn that it was written" {
					store.lags.Store(3)
				}
			}
			l.commands.applyStored(short, &orders.Order{Order: run.Order{Envelope: envelope.NewID(), Intent: intents.TaskResume, From: "human.ada", Run: rec.ID.Run}}, false, nil)
			if short.Err() == nil {
				t.Fatal("the command had time")
			}
			if r := begun(t, ctx, began); r.id.Run != rec.ID.Run {
				t.Errorf("run %s begins", r.id.Run)
			}
		})
	}
}

// storePaused stores a paused run of the agent.x.
func storePaused(t *testing.T, ctx context.Context, l *lane) state.Record {
	t.Helper()
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
	raw, err := task.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := l.clock.now()
	c := state.New("agent.x", task.ID, l.host.AgentID)
	run.Describe(c, run.Task{Envelope: raw, Priority: envelope.PriorityNormal, Stored: now, Deadline: now.Add(time.Hour)}, now)
	c.Mesh.Epoch, c.Doc.Status = 1, aaif.RunPaused
	if _, _, err := l.records.put(ctx, c.ID(), 0, c); err != nil {
		t.Fatal(err)
	}
	rec, err := l.cfg.States.Get(ctx, c.ID())
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// fullQueue is a JetStream whose work queue takes no more messages while full is set.
type fullQueue struct {
	natsjs.JetStream
	full atomic.Bool
}

func (q *fullQueue) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	if strings.HasPrefix(msg.Subject, "aee.work.") && q.full.Load() {
		return nil, &natsjs.APIError{Code: 503, ErrorCode: 10077, Description: "maximum messages exceeded"}
	}
	return q.JetStream.PublishMsg(ctx, msg, opts...)
}

// A run that goes on is queued when the queue has room again, also if a command has changed its
// record meanwhile; and the change stays.
func TestARunGoesOnThoughACommandComesBeforeTheQueueHasRoom(t *testing.T) {
	t.Parallel()
	queue := &fullQueue{}
	began := make(chan *Run, 10)
	agent := Agent{Entity: "agent.x", Steers: true, Handler: HandlerFunc(func(_ context.Context, task *Task) (json.RawMessage, error) {
		began <- task.Run()
		return json.RawMessage(`{}`), nil
	})}
	var err error
	if queue.JetStream, err = natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true}))); err != nil {
		t.Fatal(err)
	}
	node, ctx := serveDurableOn(t, queue, time.Minute, agent)
	if _, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	l := begun(t, ctx, began).lane
	id := storePaused(t, ctx, l).ID
	queue.full.Store(true)
	for _, o := range []run.Order{{Intent: intents.TaskResume}, {Intent: intents.TaskSteer, Text: "hurry"}} {
		o.Envelope, o.From, o.Run = envelope.NewID(), "human.ada", id.Run
		if out := l.commands.applyStored(ctx, &orders.Order{Order: o}, false, nil); !out.Done {
			t.Fatalf("%s: %+v", o.Intent, out)
		}
	}
	queue.full.Store(false)
	r := begun(t, ctx, began)
	if r.id != id {
		t.Fatalf("run %s begins", r.id.Run)
	}
	if got := r.Steering(); len(got) != 1 || got[0].Text != "hurry" {
		t.Errorf("it has the messages %v", got)
	}
}

// begun returns the next run that begins.
func begun(t *testing.T, ctx context.Context, began <-chan *Run) *Run {
	t.Helper()
	select {
	case r := <-began:
		return r
	case <-ctx.Done():
		t.Fatal("no run begins")
		return nil
	}
}

package mesh

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// lateStore is a store in which the next write of one run is made, and its confirmation comes too
// late.
type lateStore struct {
	*jetstream.States
	run  string
	next atomic.Pointer[context.CancelFunc]
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
	for _, name := range []string{"to queue the run", "to learn that it was written"} {
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
			begun := func() *Run {
				t.Helper()
				select {
				case r := <-began:
					return r
				case <-ctx.Done():
					t.Fatal("no run begins")
					return nil
				}
			}
			if _, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{}); err != nil {
				t.Fatal(err)
			}
			l := begun().lane

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
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			if name == "to queue the run" {
				late.Store(&cancel)
			} else {
				store.run = c.Doc.RunID
				store.next.Store(&cancel)
			}
			l.commands.applyStored(short, &orders.Order{Order: run.Order{Envelope: envelope.NewID(), Intent: intents.TaskResume, From: "human.ada", Run: c.Doc.RunID}}, false, nil)
			if short.Err() == nil {
				t.Fatal("the command had time")
			}
			if r := begun(); r.id.Run != c.Doc.RunID {
				t.Errorf("run %s begins", r.id.Run)
			}
		})
	}
}

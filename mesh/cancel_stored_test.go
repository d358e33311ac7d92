package mesh

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// beforeWrites is a store that calls a function before each write of a record.
type beforeWrites struct {
	*jetstream.States
	call atomic.Pointer[func()]
}

func (s *beforeWrites) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	if f := s.call.Load(); f != nil {
		(*f)()
	}
	return s.States.PutNoted(ctx, id, prev, data, note)
}

// A worker cancels a run that no worker has. If it dies when the record is written, and the reply
// is not stored, the worker that draws the run's message stores it: so the queue has a message
// before the record is written. That of a parked run does not count, as it may be about to be
// acked.
func TestACancelOfAStoredRunIsWrittenWhenTheRunHasAMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status aaif.RunStatus
		gone   bool // the run's message
		fenced bool // the worker may not read messages of the queue by their sequence
		queued bool // a new message is
	}{
		"its owner is gone":                                      {status: aaif.RunRunning},
		"its owner is gone, and its message, too":                {status: aaif.RunRunning, gone: true, queued: true},
		"its owner is gone, and the worker cannot see a message": {status: aaif.RunRunning, fenced: true, queued: true},
		"parked":          {status: aaif.RunPaused, gone: true, queued: true},
		"parked just now": {status: aaif.RunPaused, queued: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &beforeWrites{}
			node, ctx, _, other := begunRun(t, func(cfg *Config) { // the only place is taken: no message is drawn
				store.States = cfg.Durable.States.(*jetstream.States)
				cfg.Durable.States = store
			})
			l := other.lane
			js, err := natsjs.New(node.conn)
			if err != nil {
				t.Fatal(err)
			}
			work, err := js.Stream(ctx, jetstream.StreamWork)
			if err != nil {
				t.Fatal(err)
			}
			task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
			raw, err := task.AppendJSON(nil)
			if err != nil {
				t.Fatal(err)
			}
			receipt, err := node.Submit(ctx, task, client.SubmitOptions{})
			if err == nil && test.gone {
				err = work.DeleteMsg(ctx, receipt.Seq)
			}
			if err != nil {
				t.Fatal(err)
			}
			now := l.clock.now()
			c := state.New("agent.x", task.ID, l.host.AgentID)
			run.Describe(c, run.Task{Envelope: raw, Priority: envelope.PriorityNormal, Stored: now, Deadline: now.Add(time.Hour)}, now)
			c.Doc.Status, c.Mesh.Epoch, c.Mesh.Claims, c.Mesh.Work = test.status, 1, 1, receipt.Seq
			if test.status == aaif.RunRunning {
				c.Mesh.Owner = "another"
			}
			data, err := state.Codec{}.Encode(c)
			if err == nil {
				_, err = store.Put(ctx, c.ID(), 0, data)
			}
			if err != nil {
				t.Fatal(err)
			}
			messages := func() uint64 {
				info, err := work.Info(ctx)
				if err != nil {
					t.Error(err)
					return 0
				}
				return info.State.Msgs
			}
			before, atWrite := messages(), uint64(0)
			count := func() { atWrite = messages() }
			store.call.Store(&count)
			if test.fenced {
				l.cfg.Queue.Fence()
			}
			o := &orders.Order{Order: run.Order{Envelope: envelope.NewID(), Intent: intents.TaskCancel, From: "human.ada", ID: task.ID}}
			out := l.commands.applyStored(ctx, o, true, nil)
			store.call.Store(nil)
			if !out.Done || (atWrite > before) != test.queued {
				t.Errorf("%+v; messages before: %d, when the record is written: %d", out, before, atWrite)
			}
		})
	}
}

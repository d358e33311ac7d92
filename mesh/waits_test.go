package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// A worker hears an answer from its publisher, or was not listening yet; the
// stream has it only later, without a notice.
func TestAnAnswerThatIsStoredLateWakesTheRun(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for _, heard := range []bool{true, false} {
		t.Run(fmt.Sprintf("heard %t", heard), func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			s, err := r.js(r.nc).Stream(ctxFor(t), jetstream.StreamReply)
			if err != nil {
				t.Fatal(err)
			}
			// What comes to late.x is stored as if it had come to aee.reply.x.
			cfg := s.CachedInfo().Config
			cfg.Subjects = append(cfg.Subjects, "late.>")
			cfg.SubjectTransform = &natsjs.SubjectTransformConfig{Source: "late.>", Destination: "aee.reply.>"}
			if _, err := r.js(r.nc).UpdateStream(ctxFor(t), cfg); err != nil {
				t.Fatal(err)
			}
			requests := r.listen("$JS.API.DIRECT.GET." + jetstream.StreamReply + ".>")
			looked := func(when string) {
				t.Helper()
				for !strings.HasPrefix(within(t, "a look "+when, requests).Reply, "_INBOX_worker.") {
				}
			}
			worker := natstest.Conn(t, r.srv, nats.CustomInboxPrefix("_INBOX_worker"))
			r.serve(r.laneOn(worker, mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}}})
			client := r.client()
			task := newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			ask := r.asked(client, bob).Task
			looked("before bob is asked")
			looked("when the run is parked")
			r.waits(task)
			answer := &nats.Msg{Subject: "aee.reply." + bob + "." + ask.ID, Data: encode(t, ask.Reply(envelope.TypeResult, json.RawMessage(`{"ok":true}`)))}
			if heard {
				answer.Header = nats.Header{natsjs.ExpectedLastSeqHeader: {"1000"}} // so that it is not stored
				if err := r.nc.PublishMsg(answer); err != nil {
					t.Fatal(err)
				}
				looked("when the answer is heard")
			}
			answer.Subject, answer.Header = "late."+bob+"."+ask.ID, nil
			if err := r.nc.PublishMsg(answer); err != nil {
				t.Fatal(err)
			}
			if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"human.bob":"{\"ok\":true}"}` {
				t.Errorf("result %v, %v", show(reply), err)
			}
		})
	}
}

// between is a store in which another worker writes just before a run that waits
// is woken.
type between struct {
	jetstream.RunStore
	used atomic.Bool
}

func (b *between) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	h, err := state.ReadHeader(data)
	if err != nil {
		return 0, err
	}
	if h.Step == state.StepResume && !b.used.Swap(true) {
		rec, err := b.Get(ctx, id)
		if err != nil {
			return 0, err
		}
		if _, err := b.RunStore.Put(ctx, id, rec.Revision, rec.Data); err != nil {
			return 0, err
		}
	}
	return b.RunStore.PutNoted(ctx, id, prev, data, note)
}

// A command is stored at the moment that the run is woken: it wakes nevertheless.
func TestARunThatChangesAsItIsWokenWakes(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.States = &between{RunStore: d.States} }), mesh.Agent{Handler: asking{people: []string{bob}}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	ask := r.asked(client, bob)
	r.waits(task)
	r.answer(client, ask, `{"ok":true}`)
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"human.bob":"{\"ok\":true}"}` {
		t.Errorf("result %v, %v", show(reply), err)
	}
}

// A run that waits for a person is watched by all workers. After its cancel the worker that cancelled it
// watches it no more, and the others do so until their next sweep; a run that still waits stays watched.
func TestACancelledRunIsWatchedNoMore(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for name, sweeps := range map[string][]time.Duration{"the only worker": {-1}, "two workers": {200 * time.Millisecond, 200 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t).shortLeases()
			client, workers := r.client(), []*mesh.Node(nil)
			for _, every := range sweeps {
				node := r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Sweep = every })
				workers = append(workers, node)
				r.serve(node, mesh.Agent{Handler: asking{people: []string{bob}}})
			}
			task, other := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			r.submit(client, other)
			watched := func(n int) {
				t.Helper()
				for i, node := range workers {
					eventually(t, fmt.Sprintf("worker %d watches %d runs", i, n), func() bool { return mesh.RunsWatched(node) == n })
				}
			}
			watched(2)
			<-time.After(3 * time.Second) // the check that follows the start of a watch is over
			watched(2)
			r.command(client, intents.CancelTask{ID: task.ID})
			watched(1)
			asks, err := client.PersonTasks(ctxFor(t), bob)
			if err != nil {
				t.Fatal(err)
			}
			for _, ask := range asks {
				if ask.Task.ReplyTo == other.ID {
					r.answer(client, ask, `{"ok":true}`)
				}
			}
			if _, err := r.result(client, other); err != nil {
				t.Error(err)
			}
			watched(0)
		})
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
	"github.com/aeemesh/aeemesh/state"
)

// Finding 4 of the security review: the runs of one agent do not fill the store for all.
// From its share on its new tasks wait; what has begun goes on, and so do others. The
// worker has the permissions of its own entity alone.
func TestAnAgentTakesNoMoreThanItsShareOfTheStore(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for store, c := range map[string]struct{ limit, tasks, size int }{
		"KV_" + jetstream.BucketState:   {4 << 20, 60, 100 << 10},
		"OBJ_" + jetstream.ObjectsState: {8 << 20, 40, 400 << 10},
	} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			var m subject.Map
			live, errA := perms.Worker(m, reviewer, time.Hour)
			lane, errB := perms.DurableWorker(m, reviewer, "_INBOX_worker")
			p := newPermitted(t, both(t, live, errA, lane, errB), perms.Permissions{}, perms.Permissions{}, m)
			limit := func(bytes int) {
				t.Helper()
				s, err := p.js(p.nc).Stream(ctxFor(t), store)
				if err != nil {
					t.Fatal(err)
				}
				cfg := s.CachedInfo().Config
				cfg.MaxBytes = int64(bytes)
				if _, err := p.js(p.nc).UpdateStream(ctxFor(t), cfg); err != nil {
					t.Fatal(err)
				}
			}
			limit(c.limit)
			entered, goOn := make(chan *mesh.Task, c.tasks), make(chan struct{})
			p.serve(p.laneOn(p.user("worker", p.worker), mesh.Config{}, fenced), mesh.Agent{Concurrency: 64, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				entered <- task
				select {
				case <-goOn:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil)
				return json.RawMessage(`{}`), err
			})})
			events := p.listen("bus.mesh.task")
			client := p.laneOn(p.nc, mesh.Config{Entity: ada})
			payload := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", c.size))
			for range c.tasks {
				p.submit(client, newTask(reviewer, "code.review", payload))
			}
			begun, waits := 0, map[string]bool{}
			eventually(t, "each task has begun or waits", func() bool {
				for id, words := range taskEvents(t, events) {
					for _, word := range words {
						switch word {
						case "started":
							begun++
						case "retrying E_BUSY true true":
							waits[id] = true
						default:
							t.Errorf("a task: %s", word)
						}
					}
				}
				return begun+len(waits) >= c.tasks
			})
			if least := c.limit / c.size / 3; begun < least || begun > c.limit/c.size*6/10 {
				t.Errorf("%d tasks of %d bytes have begun", begun, c.size)
			}
			s, err := p.js(p.nc).Stream(ctxFor(t), store)
			if err != nil {
				t.Fatal(err)
			}
			if used := s.CachedInfo().State.Bytes; used > uint64(c.limit)*6/10 {
				t.Errorf("%d bytes of %d are in use", used, c.limit)
			}
			eventually(t, "its health says so", func() bool {
				return strings.Contains(string(p.request(newTask(reviewer, intents.StatusHealth, `{}`)).Payload), "its new tasks wait")
			})

			// What has begun goes on, and others begin.
			goOn <- struct{}{}
			eventually(t, "the run that goes on has ended", func() bool {
				for _, words := range taskEvents(t, events) {
					for _, word := range words {
						if word == "finished" {
							return true
						}
					}
				}
				return false
			})
			p.serve(p.laneOn(p.nc, mesh.Config{}), mesh.Agent{Entity: lead, Handler: echo})
			for range 2 {
				if _, _, err := client.Perform(ctxFor(t), newTask(lead, "code.review", payload), mesh.SubmitOptions{}, mesh.ResultOptions{}); err != nil {
					t.Errorf("a task of another agent: %v", err)
				}
			}
			// A task that waits can be cancelled.
			for id := range waits {
				p.command(client, intents.CancelTask{ID: id})
				break
			}
			for len(entered) > 0 {
				<-entered
			}
			limit(64 << 20)
			within(t, "a task that has waited", entered)
			close(goOn)
		})
	}
}

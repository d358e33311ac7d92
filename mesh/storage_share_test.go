package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
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
			live, errA := perms.Worker(m, reviewer)
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

// Agents that each use less than a quarter do not fill the store together: what they leave is
// for an agent that uses little.
func TestAgentsTogetherLeaveRoomInTheStore(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	const limit, size, rounds = 4 << 20, 100 << 10, 12
	r := newDurableRig(t)
	store, err := r.js(r.nc).Stream(ctxFor(t), "KV_"+jetstream.BucketState)
	if err != nil {
		t.Fatal(err)
	}
	cfg := store.CachedInfo().Config
	cfg.MaxBytes = limit
	if _, err := r.js(r.nc).UpdateStream(ctxFor(t), cfg); err != nil {
		t.Fatal(err)
	}
	g := newGate(t)
	for i := range 4 {
		r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: crowdMember(i), Concurrency: rounds, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			if err := task.Run().Claim(ctx); err != nil {
				return nil, err
			}
			return g.Handle(ctx, task)
		})})
	}
	events := r.listen("bus.mesh.task")
	client := r.lane(mesh.Config{Entity: ada})
	payload := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", size))
	states := jetstream.NewStates(r.js(r.nc), r.m)
	waits, known := map[string]bool{}, func(task *envelope.Envelope) bool {
		_, err := states.Get(ctxFor(t), state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)})
		return err == nil
	}
	for range rounds {
		var tasks []*envelope.Envelope
		for i := range 4 {
			task := newTask(crowdMember(i), "code.review", payload)
			r.submit(client, task)
			tasks = append(tasks, task)
		}
		eventually(t, "each task is stored as a run, or waits", func() bool {
			for id, words := range taskEvents(t, events) {
				waits[id] = waits[id] || slices.Contains(words, "retrying E_BUSY true true")
			}
			return !slices.ContainsFunc(tasks, func(task *envelope.Envelope) bool { return !waits[task.ID] && !known(task) })
		})
	}
	info, err := store.Info(ctxFor(t))
	if err != nil {
		t.Fatal(err)
	}
	if used := info.State.Bytes; used < limit*70/100 || used > limit*88/100 {
		t.Errorf("%d bytes of %d are in use", used, limit)
	}
	eventually(t, "its health says what the agent may use", func() bool {
		health := string(r.request(newTask(crowdMember(0), intents.StatusHealth, `{}`)).Payload)
		return strings.Contains(health, "by runs of this agent, which may use") && strings.Contains(health, "its new tasks wait")
	})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: echo})
	for range 3 {
		if _, _, err := client.Perform(ctxFor(t), newTask(lead, "code.review", `{"n":1}`), mesh.SubmitOptions{}, mesh.ResultOptions{}); err != nil {
			t.Errorf("a task of an agent that uses little: %v", err)
		}
	}
	g.open()
}

package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

func TestAFailureIsTriedAgainWithItsState(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	events := r.events()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{
		Retry: mesh.RetryPolicy{Max: 3, Base: time.Millisecond, Backoff: mesh.BackoffFixed},
		Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			c := task.Run().View()
			if c.Mesh.Attempt < 2 {
				if err := task.Run().Stage(state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error {
					c.Mesh.Loop = json.RawMessage(fmt.Sprintf(`{"failures":%d}`, c.Mesh.Attempt+1))
					return nil
				}); err != nil {
					return nil, err
				}
				return nil, envelope.Errorf(envelope.CodeUnavailable, "the model is away")
			}
			return c.Mesh.Loop, nil
		}),
	})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"failures":2}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	retrying := r.event(events, intents.TaskRetrying)
	equal(t, "attempt told", member(t, retrying.Payload, "attempt"), "2")
	if !strings.Contains(member(t, retrying.Payload, "error"), "the model is away") {
		t.Errorf("event %s", retrying.Payload)
	}
	r.drainedQueue()
	c := r.record(task)
	equal(t, "attempt", c.Mesh.Attempt, 2)
	equal(t, "error of a run that completed", c.Doc.Error, (*aaif.RunError)(nil))
	equal(t, "dead letters", len(r.letters()), 0)
}

func TestAnAsynchronousAgentAnswersWithAJobID(t *testing.T) {
	t.Parallel()
	for _, signs := range []bool{false, true} {
		t.Run(fmt.Sprintf("signed %t", signs), func(t *testing.T) {
			t.Parallel()
			anAsynchronousAgentAnswersWithAJobID(t, signs)
		})
	}
}

func anAsynchronousAgentAnswersWithAJobID(t *testing.T, signs bool) {
	r := newDurableRig(t)
	g := newGate(t)
	var own, clients mesh.Config
	if signs {
		k := newKeys(t)
		own.Verifier, own.Seen = sign.Verifier{Ring: k.ring, Mode: sign.Required}, seen.New(r.js(r.nc), r.m, 10*time.Minute)
		own.Signer = k.signer("reviewer", sign.Ed25519, reviewer)
		clients.Verifier, clients.Signer, clients.Entity = k.verifier(), k.signer("ada", sign.Ed25519, ada), ada
	}
	r.serve(r.lane(own), mesh.Agent{Handler: g, Async: true})
	client := r.lane(clients)
	task := requiring(newTask(reviewer, "code.review", `{"n":1}`), `{"handoff":false}`)
	reply, err := client.Send(ctxFor(t), task, mesh.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"job_id":%q,"run_id":%q,"replies":%q}`, reply.ReplyTo, state.RunID(reviewer, reply.ReplyTo), "aee.reply.agent.reviewer."+reply.ReplyTo)
	equal(t, "answer", string(reply.Payload), want)
	within(t, "the task in the background", g.entered)
	g.open()
	if signs { // what was handed over is done live, and comes through the queue with its lane only
		handed := requiring(newTask(reviewer, "code.review", `{}`), `{"handoff":{}}`)
		r.queue("normal", signed(t, clients.Signer, handed))
		_, err := r.result(client, handed)
		equal(t, "a captured one", codeOf(err), envelope.CodeRequires)
		if !strings.Contains(err.Error(), "requires.lane") {
			t.Error(err)
		}
	}
	task.ID = reply.ReplyTo
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Errorf("result %v, %v", reply, err)
	}
}

// A worker that stops gives back what it has not begun, lets the step end that
// it is in, and hands the run on.
func TestDrainHandsOn(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 3)
	first := r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s, Concurrency: 1})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", s.entered)
	s.next <- struct{}{}
	if err := within(t, "the first step", s.outcome); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	first.stop()
	go func() { stopped <- first.end() }()
	s2 := newStepper(t, 3)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s2})
	eventually(t, "the worker is stopping", func() bool {
		select {
		case s.next <- struct{}{}:
		default:
		}
		select {
		case err := <-s.outcome:
			return isErr(err, mesh.ErrParked)
		default:
			return false
		}
	})
	again := within(t, "the task again", s2.entered)
	done := again.Run().View()
	equal(t, "epoch", done.Mesh.Epoch, uint64(2))
	equal(t, "claims", done.Mesh.Claims, 1)
	if err := within(t, "the first worker", stopped); err != nil {
		t.Error(err)
	}
	s2.open()
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
	r.drainedQueue()
	equal(t, "replies", len(r.replies(task)), 1)
}

// A handler that outlives the drain keeps its process from nothing but its own
// end: the run goes on elsewhere at once, and the claim does not count.
func TestDrainGivesUpWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	late := make(chan error, 1)
	first := r.serve(r.lane(mesh.Config{Drain: 50 * time.Millisecond}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		payload, err := g.Handle(ctx, task)
		late <- task.Run().Commit(context.WithoutCancel(ctx), state.Step{Kind: state.StepHandler}, nil)
		return payload, err
	})})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	eventually(t, "it is claimed", func() bool { return r.begun(task) != nil })
	if err := first.end(); err == nil || !strings.Contains(err.Error(), "under way still (1)") {
		t.Errorf("the drain: %v", err)
	}
	c := r.record(task)
	equal(t, "owner", c.Mesh.Owner, "")
	equal(t, "claims", c.Mesh.Claims, 0)
	g.open()
	if err := within(t, "a commit after the drain", late); !isErr(err, mesh.ErrLost) {
		t.Errorf("a commit after the drain: %v", err)
	}
	equal(t, "the record", r.record(task).Doc.StateID, c.Doc.StateID)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
	r.drainedQueue()
	equal(t, "replies", len(r.replies(task)), 1)
}

// leaving is a store that stores nothing once it has left, as while JetStream is away.
type leaving struct {
	jetstream.RunStore
	left  atomic.Bool
	tried chan struct{}
}

func (s *leaving) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	if !s.left.Load() {
		return s.RunStore.PutNoted(ctx, id, prev, data, note)
	}
	select {
	case s.tried <- struct{}{}:
	default:
	}
	return 0, nats.ErrTimeout
}

// A worker ends although a handler commits for as long as it takes and the store is away, and
// although the change of a commit does not return.
func TestAWorkerEndsDuringACommit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for the patience of a lane")
	}
	for name, stuck := range map[string]bool{"no store": false, "a change that does not return": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			store := &leaving{tried: make(chan struct{}, 1)}
			over, late := make(chan struct{}), make(chan error, 1)
			w := r.serve(r.lane(mesh.Config{Drain: 100 * time.Millisecond}, func(d *mesh.Durable) {
				store.RunStore, d.States = d.States, store
			}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				step := state.Step{Kind: state.StepHandler}
				if err := task.Run().Commit(ctx, step, nil); err != nil {
					return nil, err
				}
				store.left.Store(true)
				err := task.Run().Commit(context.WithoutCancel(ctx), step, func(*state.Checkpoint) error {
					if stuck {
						store.tried <- struct{}{}
						<-over
					}
					return nil
				})
				late <- err
				return nil, err
			})})
			r.submit(r.client(), newTask(reviewer, "code.review", `{}`))
			within(t, "the commit", store.tried)
			w.stop()
			if err := within(t, "Serve", w.done); err == nil || !strings.Contains(err.Error(), "under way still (1)") {
				t.Errorf("Serve: %v", err)
			}
			close(over)
			if err := within(t, "the commit", late); codeOf(err) != envelope.CodeUnavailable {
				t.Errorf("the commit: %v", err)
			}
		})
	}
}

func TestCBORAllTheWay(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(streamFive)})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{"n":1}`), `{"stream":true}`)
	var chunks []string
	_, reply, err := client.Perform(ctxFor(t), task, mesh.SubmitOptions{CBOR: true}, mesh.ResultOptions{OnStream: func(e *envelope.Envelope) error {
		chunks = append(chunks, string(e.Payload))
		return nil
	}})
	if err != nil || string(reply.Payload) != `{"n":1}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	equal(t, "stream", chunks, []string{`{"seq":1,"text":"chunk"}`, `{"seq":2,"text":"chunk"}`, `{"seq":3,"text":"chunk"}`, `{"seq":4,"text":"chunk"}`, `{"seq":5,"text":"chunk"}`})
	for msg, err := range jetstream.NewReplies(r.js(r.nc), r.m).Read(ctxFor(t), task.To, task.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "Content-Type", msg.Header.Get("Content-Type"), envelope.ContentCBOR)
		if _, err := envelope.ParseCBOR(msg.Data); err != nil {
			t.Error(err)
		}
	}
	r.stored(task, reply)
	// And a client that asks later gets the same.
	var later []string
	if _, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{OnStream: func(e *envelope.Envelope) error {
		later = append(later, string(e.Payload))
		return nil
	}}); err != nil || !slices.Equal(later, chunks) {
		t.Errorf("later %q, %v", later, err)
	}
}

// The wait ends with the error of OnStream, while the task goes on.
func TestAnErrorFromOnStreamEndsTheWaitForADurableTask(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(streamFive)})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{"n":1}`), `{"stream":true}`)
	enough := errors.New("enough")
	stop := mesh.ResultOptions{OnStream: func(*envelope.Envelope) error { return enough }}
	if _, reply, err := client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, stop); !errors.Is(err, enough) || reply != nil {
		t.Errorf("Perform: %v, %v", reply, err)
	}
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
	if reply, err := client.Result(ctxFor(t), task.To, task.ID, stop); !errors.Is(err, enough) || reply != nil {
		t.Errorf("Result: %v, %v", reply, err)
	}
}

// diesInASentence begins a streamed task on a worker that dies after "one two ". end lets
// the dead worker's handler return.
func (r *durableRig) diesInASentence(change ...func(*mesh.Durable)) (client *mesh.Node, task *envelope.Envelope, end func()) {
	r.t.Helper()
	g := newGate(r.t)
	nc := natstest.Conn(r.t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}, change...), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		for _, text := range []string{"one ", "two "} {
			if err := task.EmitText(text); err != nil {
				r.t.Error(err)
			}
		}
		return g.Handle(ctx, task)
	})})
	client = r.client()
	task = requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`)
	r.submit(client, task)
	within(r.t, "the task", g.entered)
	eventually(r.t, "both pieces are stored", func() bool { return len(r.replies(task)) == 2 })
	nc.Close()
	return client, task, g.open
}

// The worker dies in the middle of a sentence. The sender reads it once: what
// the next worker says again is left out, and where it says something else the
// sender is told so.
func TestAStreamGoesOnAfterAWorkersDeath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		again []string
		want  []string
	}{
		{"the same", []string{"one ", "two ", "three ", "four"}, []string{`{"seq":1,"text":"one "}`, `{"seq":2,"text":"two "}`, `{"seq":3,"text":"three "}`, `{"seq":4,"text":"four"}`}},
		{"in other pieces", []string{"one two thr", "ee four"}, []string{`{"seq":1,"text":"one "}`, `{"seq":2,"text":"two "}`, `{"seq":3,"text":"thr"}`, `{"seq":4,"text":"ee four"}`}},
		{"different", []string{"one ", "too many"}, []string{`{"seq":1,"text":"one "}`, `{"seq":2,"text":"two "}`, `{"seq":3,"restart":true,"text":"one too many"}`}},
		{"shorter", []string{"one "}, []string{`{"seq":1,"text":"one "}`, `{"seq":2,"text":"two "}`, `{"seq":3,"restart":true,"text":"one "}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t).shortLeases()
			client, task, end := r.diesInASentence()
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
				for _, text := range c.again {
					if err := task.EmitText(text); err != nil {
						return nil, err
					}
				}
				return json.RawMessage(`{}`), nil
			})})
			var chunks []string
			reply, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: true, OnStream: func(e *envelope.Envelope) error {
				chunks = append(chunks, string(e.Payload))
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "stream", chunks, c.want)
			r.drainedQueue() // so it is stored, too
			replies := r.replies(task)
			equal(t, "the last", replies[len(replies)-1].ID, reply.ID)
			equal(t, "replies", len(replies), len(c.want)+1)
			end()
		})
	}
}

func TestAHandlerMayGoOnWithWhatWasTold(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	g := newGate(t)
	nc := natstest.Conn(t, r.srv)
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		run := task.Run()
		if err := task.EmitText("a finished turn. "); err != nil {
			t.Error(err)
		}
		if err := run.Commit(ctx, state.Step{Kind: state.StepModel}, func(c *state.Checkpoint) error { c.Mesh.Told = ""; return nil }); err != nil {
			t.Error(err)
		}
		if err := task.EmitText("half a "); err != nil {
			t.Error(err)
		}
		return g.Handle(ctx, task)
	})})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"stream":true}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	eventually(t, "both pieces are stored", func() bool { return len(r.replies(task)) == 2 })
	nc.Close()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		equal(t, "told", task.Run().SentText(), "half a ")
		return json.RawMessage(`{}`), task.EmitText("sentence")
	})})
	var text string
	if _, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: true, OnStream: func(e *envelope.Envelope) error {
		text += strings.Trim(member(t, e.Payload, "text"), `"`)
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	equal(t, "text", text, "a finished turn. half a sentence")
	g.open()
}

func TestTheWholeMeshKeepsToALimit(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	g, dead := newGate(t), newGate(t)
	var mu sync.Mutex
	running, most := 0, 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		running += n
		most = max(most, running)
	}
	first, agent := mesh.Agent{Concurrency: 4, MeshConcurrency: 2}, mesh.Agent{Concurrency: 4, MeshConcurrency: 2}
	first.Handler = mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		count(1) // until the worker is cut off
		return dead.Handle(ctx, task)
	})
	agent.Handler = mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		count(1)
		defer count(-1)
		return g.Handle(ctx, task)
	})
	nc := natstest.Conn(t, r.srv)
	slotsOn := func(nc *nats.Conn) *slot.Store { return slot.NewStore(r.js(nc), r.m, 4*time.Second) }
	r.serve(r.laneOn(nc, mesh.Config{Drain: time.Millisecond}, func(d *mesh.Durable) { d.Slots = slotsOn(nc) }), first)
	slots := slotsOn(r.nc)
	keeping := func(d *mesh.Durable) { d.Slots = slots }
	client := r.client()
	var tasks []*envelope.Envelope
	for i := range 5 {
		tasks = append(tasks, newTask(reviewer, "code.review", fmt.Sprintf(`{"n":%d}`, i)))
		r.submit(client, tasks[i])
	}
	within(t, "a task", dead.entered)
	within(t, "a task", dead.entered)
	r.serve(r.lane(mesh.Config{}, keeping), agent)
	r.serve(r.lane(mesh.Config{}, keeping), agent)
	if held, err := slots.List(ctxFor(t), reviewer); err != nil || len(held) != 2 {
		t.Errorf("slots held %+v, %v", held, err)
	}
	count(-2)
	nc.Close() // its slots come free with their lease, and its tasks with theirs
	within(t, "a task again", g.entered)
	within(t, "a task again", g.entered)
	for range len(tasks) - 2 { // one ends, and the next begins
		g.release <- struct{}{}
		within(t, "the next task", g.entered)
	}
	g.open()
	for _, task := range tasks {
		if _, err := r.result(client, task); err != nil {
			t.Error(err)
		}
	}
	r.drainedQueue()
	mu.Lock()
	defer mu.Unlock()
	equal(t, "tasks that ran at once", most, 2)
}

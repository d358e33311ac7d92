package mesh_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// brief serves the reviewer with a handler of one short step, and counts its calls.
func (r *durableRig) brief(change ...func(*mesh.Durable)) *atomic.Int32 {
	calls := &atomic.Int32{}
	r.serve(r.lane(mesh.Config{}, change...), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		calls.Add(1)
		return json.RawMessage(`{"done":true}`), nil
	})})
	r.aged()
	return calls
}

func (r *durableRig) runRecord(task *envelope.Envelope) state.Record {
	r.t.Helper()
	rec, err := jetstream.NewStates(r.js(r.nc), r.m).Get(ctxFor(r.t), runOf(task))
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// A task of one short step leaves its reply and nothing else: the write of the reply is
// the end of the run.
func TestAShortTaskLeavesItsReplyAlone(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	calls := r.brief()
	core := r.listen("aee.reply." + reviewer + ".*")
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"done":true}` {
		t.Fatal(reply, err)
	}
	r.drainedQueue()
	rec := r.runRecord(task)
	if rec.End == nil || rec.End.TaskID != task.ID || rec.End.Status != aaif.RunCompleted || rec.End.Epoch != 1 || string(rec.Data) != string(encode(t, reply)) {
		t.Errorf("the record is %s, %+v", rec.Data, rec.End)
	}
	if heard := within(t, "the reply, by the subject of the task", core); string(heard.Data) != string(rec.Data) {
		t.Errorf("heard %s", heard.Data)
	}
	if stored := r.storedOn(jetstream.StreamReply, "aee.reply."+reviewer+"."+task.ID); len(stored) != 0 {
		t.Errorf("%s has it, too", jetstream.StreamReply)
	}

	// The same message again gets the same answer, under any priority; another task under
	// the id gets none of it.
	urgent := task.Clone()
	urgent.Priority = envelope.PriorityHigh
	for _, again := range []*envelope.Envelope{task, urgent} {
		r.again(again, nil)
		if heard := within(t, "the reply again", core); string(heard.Data) != string(rec.Data) {
			t.Errorf("heard %s", heard.Data)
		}
	}
	other := task.Clone()
	other.Payload = json.RawMessage(`{"another":1}`)
	r.again(other, nil)
	letters := r.storedOn(jetstream.StreamDead, "aee.dead."+reviewer+"."+task.ID)
	if len(letters) != 1 {
		t.Errorf("%d dead letters of another task under the id", len(letters))
	}
	if now := r.runRecord(task); now.Revision != rec.Revision || calls.Load() != 1 {
		t.Errorf("the record is at %d, was at %d; begun %d times", now.Revision, rec.Revision, calls.Load())
	}

	// A command says what the run does.
	answer, err := client.Command(ctxFor(t), reviewer, intents.CancelTask{ID: task.ID, Durable: true})
	if err != nil || answer.Cancelled || answer.Status != string(aaif.RunCompleted) {
		t.Errorf("a cancel of an ended run: %+v, %v", answer, err)
	}
}

// A run that has more to keep than its reply keeps its document.
func TestWhatHasMoreThanAReplyKeepsItsDocument(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{7}, state.KeySize)
	ring, err := state.NewKeyring(state.Key{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change  func(*mesh.Durable)
		handler func(context.Context, *mesh.Task) error
		task    func(*envelope.Envelope)
	}{
		"kept":     {change: func(d *mesh.Durable) { d.KeepTasks = true }},
		"sealed":   {change: func(d *mesh.Durable) { d.Codec.Seal = ring }},
		"streamed": {task: func(e *envelope.Envelope) { e.Requires = json.RawMessage(`{"stream":true}`) }},
		"failed":   {handler: func(context.Context, *mesh.Task) error { return errors.New("it failed") }},
		"a step": {handler: func(ctx context.Context, t *mesh.Task) error {
			return t.Run().Commit(ctx, state.Step{Kind: state.StepHandler, Name: "one"}, nil)
		}},
		"a staged step": {handler: func(_ context.Context, t *mesh.Task) error {
			return t.Run().Stage(state.Step{Kind: state.StepHandler, Name: "one"}, func(c *state.Checkpoint) error { c.Mesh.Loop = json.RawMessage(`1`); return nil })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			node := r.lane(mesh.Config{}, func(d *mesh.Durable) {
				if c.change != nil {
					c.change(d)
				}
			})
			r.serve(node, mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, t *mesh.Task) (json.RawMessage, error) {
				if c.handler != nil {
					return json.RawMessage(`{}`), c.handler(ctx, t)
				}
				return json.RawMessage(`{}`), nil
			})})
			r.aged()
			client, task := r.client(), newTask(reviewer, "code.review", `{"kept":1}`)
			if c.task != nil {
				c.task(task)
			}
			r.submit(client, task)
			reply, _ := r.result(client, task)
			if reply == nil {
				t.Fatal("no reply")
			}
			r.drainedQueue()
			rec := r.runRecord(task)
			if rec.End != nil || !rec.Replied {
				t.Fatalf("the record is %s, %+v", rec.Data, rec.End)
			}
			doc, err := state.Codec{Seal: ring, AcceptClear: true}.Read(rec)
			if err != nil || !strings.Contains(string(doc.Mesh.Task), `"kept":1`) || string(doc.Mesh.Reply) != string(encode(t, reply)) {
				t.Errorf("the document: %+v, %v", doc, err)
			}
			equal(t, "terminal replies", len(r.storedOn("KV_"+jetstream.BucketState, "$KV.aee_reply."+reviewer+"."+runOf(task).Run)), 1)
		})
	}
}

// Who may write to the bucket and has no key is not believed that a run has ended.
func TestAnEndThatIsNotSealedIsNotBelieved(t *testing.T) {
	t.Parallel()
	ring, err := state.NewKeyring(state.Key{Secret: bytes.Repeat([]byte{7}, state.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	rec := state.Record{ID: state.ID{Entity: reviewer, Run: "r"}, Data: []byte(`{}`), End: &state.End{Status: aaif.RunCompleted}}
	if _, err := (state.Codec{Seal: ring}).Read(rec); !errors.Is(err, state.ErrClear) {
		t.Errorf("read: %v", err)
	}
}

// A worker dies between the reply and its announcement, or the acknowledgement: the next
// one tells the sender, and begins nothing.
func TestAWorkerDiesBehindTheReply(t *testing.T) {
	t.Parallel()
	for _, at := range []mesh.Point{mesh.PointAfterTerminal, mesh.PointReplied} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t).shortLeases()
			p := newPoints(t)
			held := p.hold(at)
			cut := natstest.NewCable(t)
			node := r.over(cut, observing(p))
			calls := &atomic.Int32{}
			handler := mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
				calls.Add(1)
				return json.RawMessage(`{}`), nil
			})
			r.serve(node, mesh.Agent{Handler: handler})
			r.aged()
			core := r.listen("aee.reply." + reviewer + ".*")
			client, task := r.client(), newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			within(t, "the point", held)
			cut.Block(true)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: handler})
			if _, err := r.result(client, task); err != nil {
				t.Fatal(err)
			}
			within(t, "the reply", core)
			r.drainedQueue()
			equal(t, "begun", calls.Load(), int32(1))
			equal(t, "replies", len(r.replies(task)), 1)
		})
	}
}

// The sender of a task is told the outcome as soon as the record has it, and what is stored
// then is the same reply.
func TestTheSenderIsToldBeforeTheReplyIsStored(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	p := newPoints(t)
	held := p.hold(mesh.PointAnnounced)
	r.serve(r.lane(mesh.Config{}, observing(p)), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		return task.Envelope.Payload, task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil)
	})})
	core := r.listen("aee.reply." + reviewer + ".*")
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	release := within(t, "the announcement", held)
	told := within(t, "the reply", core)
	equal(t, "stored replies", len(r.replies(task)), 0)
	equal(t, "status", r.record(task).Doc.Status, aaif.RunCompleted)
	close(release)
	r.drainedQueue()
	stored := r.replies(task)
	equal(t, "stored replies", len(stored), 1)
	equal(t, "reply", canonical(t, encode(t, stored[0])), canonical(t, told.Data))
}

// Who asks for a result right after its sender was told may be too early: Result looks again.
func TestAResultThatIsNotThereIsLookedForAgain(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
	looks := r.listen("$JS.API.DIRECT.GET.KV_aee_state.$KV.aee_reply.>")
	if _, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{}); !isErr(err, mesh.ErrNoResult) {
		t.Error(err)
	}
	settle(t, r.nc)
	equal(t, "looks", len(drained(looks)), 5)
}

// A staged step that no document can hold is left out when the run ends, or is retried: otherwise
// each claim would do the work again.
func TestAStagedStepThatCannotBeStoredIsLeftOut(t *testing.T) {
	t.Parallel()
	loop := func(loop string) func(*state.Checkpoint) error {
		return func(c *state.Checkpoint) error {
			c.Mesh.Loop = json.RawMessage(loop)
			return nil
		}
	}
	for name, c := range map[string]struct {
		change   func(*state.Checkpoint) error
		failures int32
	}{
		"the end":   {loop(`{"a":1,"a":2}`), 0},
		"a retry":   {loop(`{"a":1,"a":2}`), 1},
		"too large": {loop(`"` + strings.Repeat("x", 100_000) + `"`), 0},
		"a panic":   {func(*state.Checkpoint) error { panic("the change is broken") }, 0},
		"no change": {nil, 0},
	} {
		change, failures := c.change, c.failures
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			var began atomic.Int32
			r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.Codec.MaxBytes = 64 << 10 }), mesh.Agent{
				Retry: mesh.RetryPolicy{Max: 3, Base: time.Millisecond, Backoff: mesh.BackoffFixed},
				Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
					n := began.Add(1)
					err := task.Run().Stage(state.Step{Kind: state.StepHandler}, change)
					if err == nil && n <= failures {
						err = envelope.Errorf(envelope.CodeUnavailable, "the model is away")
					}
					return json.RawMessage(`{"n":1}`), err
				}),
			})
			client, task := r.client(), newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			reply, err := r.result(client, task)
			if err != nil || string(reply.Payload) != `{"n":1}` || began.Load() != failures+1 {
				t.Fatalf("result %v, %v after %d attempts", reply, err, began.Load())
			}
			r.drainedQueue()
			c := r.record(task)
			equal(t, "attempt", c.Mesh.Attempt, int(failures))
			equal(t, "staged", string(c.Mesh.Loop), "")
		})
	}
}

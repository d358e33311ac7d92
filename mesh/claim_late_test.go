package mesh_test

import (
	"cmp"
	"context"
	"encoding/json"
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

// aged makes the reviewer's consumer, and waits until it is older than what is submitted
// next, so that its task begins before its claim is written.
func (r *durableRig) aged() { r.agedOf(reviewer) }

func (r *durableRig) agedOf(entity string) {
	r.t.Helper()
	spec, err := jetstream.WorkConsumer(r.m, "normal", entity, cmp.Or(r.lease, longLease))
	if err != nil {
		r.t.Fatal(err)
	}
	js := r.js(r.nc)
	if _, err := jetstream.EnsureConsumer(ctxFor(r.t), js, r.m, spec, true); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the consumer is there, and not of just now", func() bool {
		cons, err := js.Consumer(r.t.Context(), jetstream.StreamWork, spec.Config.Durable)
		return err == nil && time.Since(cons.CachedInfo().Created) > 100*time.Millisecond
	})
}

// steps are the kinds of a run's checkpoints.
func (r *durableRig) steps(task *envelope.Envelope) (kinds []state.StepKind) {
	r.t.Helper()
	records, err := jetstream.NewStates(r.js(r.nc), r.m).History(ctxFor(r.t), runOf(task))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, rec := range records {
		c, err := state.Codec{}.Read(rec)
		if err != nil {
			r.t.Fatal(err)
		}
		kinds = append(kinds, c.Mesh.Step.Kind)
	}
	return kinds
}

func runOf(task *envelope.Envelope) state.ID {
	return state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)}
}

// atOnce is a store in which each claim is written before its run begins, as in one with
// several replicas.
type atOnce struct{ jetstream.RunStore }

func (atOnce) Absent(context.Context, state.ID) bool { return false }

// overtaken is a store in which another worker writes a run's first record just
// before its owner does.
type overtaken struct {
	*jetstream.States
	used  atomic.Bool
	first func() error
}

func (o *overtaken) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note jetstream.Note) (uint64, error) {
	if prev == 0 && !o.used.Swap(true) {
		if err := o.first(); err != nil {
			return 0, err
		}
	}
	return o.States.PutNoted(ctx, id, prev, data, note)
}

func (o *overtaken) Reply(ctx context.Context, id state.ID, prev uint64, reply jetstream.Reply, note jetstream.Note, end *state.End) (uint64, error) {
	if prev == 0 && !o.used.Swap(true) {
		if err := o.first(); err != nil {
			return 0, err
		}
	}
	return o.States.Reply(ctx, id, prev, reply, note, end)
}

// interfere serves a task whose run has another worker's record when its own
// first one is written, which is after the handler has begun.
func interfere(t *testing.T, r *durableRig, begun func(*state.Checkpoint)) (*mesh.Node, *envelope.Envelope, *newlyBegun) {
	n := &newlyBegun{}
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	states := jetstream.NewStates(r.js(r.nc), r.m)
	first := func() error {
		c := state.New(reviewer, task.ID, "")
		begun(c)
		data, err := state.Codec{}.Encode(c)
		if err == nil {
			_, err = states.Put(ctxFor(t), c.ID(), 0, data)
		}
		n.err = err
		return err
	}
	node := r.lane(mesh.Config{}, func(d *mesh.Durable) { d.States = &overtaken{States: d.States.(*jetstream.States), first: first} })
	r.serve(node, mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, got *mesh.Task) (json.RawMessage, error) {
		n.epochs = append(n.epochs, got.Run().Epoch())
		return json.RawMessage(`{}`), nil
	})})
	r.aged()
	r.submit(client, task)
	return client, task, n
}

type newlyBegun struct {
	epochs []uint64
	err    error // of the record that was put beside it
}

func TestAShortTaskIsOneCheckpoint(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g})
	r.aged()
	client := r.client()
	short, long := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	r.submit(client, long)
	within(t, "the long one", g.entered)
	eventually(t, "its claim is written meanwhile", func() bool {
		_, err := jetstream.NewStates(r.js(r.nc), r.m).Get(ctxFor(t), runOf(long))
		return err == nil
	})
	g.open()
	since := time.Now()
	r.submit(client, short)
	for _, task := range []*envelope.Envelope{long, short} {
		if _, err := r.result(client, task); err != nil {
			t.Fatal(err)
		}
	}
	brief := time.Since(since) < 125*time.Millisecond // before a claim is written by itself
	r.drainedQueue()
	equal(t, "checkpoints of the long one", r.steps(long), []state.StepKind{state.StepClaim, state.StepTerminal})
	if kinds := r.steps(short); brief || len(kinds) != 2 {
		equal(t, "checkpoints of the short one", kinds, []state.StepKind{state.StepTerminal})
	}
	equal(t, "epoch", r.record(short).Mesh.Epoch, uint64(1))
}

func TestACancelThatIsNotedBeforeTheFirstCheckpointHolds(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, task, n := interfere(t, r, func(c *state.Checkpoint) {
		c.Doc.Status = aaif.RunPaused
		c.Mesh.Noted = []state.Noted{{ID: envelope.NewID(), Intent: intents.TaskCancel, From: ada, At: time.Now()}}
	})
	r.cancelled(client, task)
	if n.err != nil || len(n.epochs) != 1 {
		t.Errorf("begun %d times, %v", len(n.epochs), n.err)
	}
}

func TestASteerThatIsNotedBeforeTheFirstCheckpointIsKept(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client, task, n := interfere(t, r, func(c *state.Checkpoint) {
		c.Doc.Status = aaif.RunPaused
		c.Mesh.Noted = []state.Noted{{ID: envelope.NewID(), Intent: intents.TaskSteer, From: ada, Text: "faster", At: time.Now()}}
	})
	if _, err := r.result(client, task); err != nil || n.err != nil {
		t.Fatal(err, n.err)
	}
	r.drainedQueue()
	equal(t, "steering", len(r.record(task).Mesh.Steering), 1)
	equal(t, "begun", len(n.epochs), 1)
}

// Another worker has the run, by a later delivery: what this one has done comes
// to nothing, and it says nothing. The other one is never heard of again, so the
// message comes back.
func TestARunThatAnotherBeganBeforeTheFirstCheckpointIsLost(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	client, task, n := interfere(t, r, func(c *state.Checkpoint) {
		last, err := r.js(r.nc).Stream(t.Context(), jetstream.StreamWork)
		if err != nil {
			t.Error(err)
			return
		}
		info, err := last.Info(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		m := &c.Mesh
		m.Epoch, m.Claims, m.Owner, m.Work = 1, 1, "another", info.State.LastSeq
		m.Step = state.Step{Kind: state.StepClaim}
		msg, err := last.GetMsg(t.Context(), m.Work)
		if err != nil {
			t.Error(err)
			return
		}
		m.Task, m.StoredAt = msg.Data, msg.Time
	})
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	r.drainedQueue()
	equal(t, "replies", len(r.replies(task)), 1)
	equal(t, "epochs", n.epochs, []uint64{1, 2})
	equal(t, "checkpoints", r.steps(task), []state.StepKind{state.StepClaim, state.StepClaim, state.StepTerminal})
}

// Who publishes to the work subject with any NATS client says nothing of ids to
// the server, so that one task may be there twice. Two workers get one message
// each, at the same time, and one of them does it.
func TestTheSameTaskTwiceIsDoneOnce(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	for range 2 {
		r.serve(r.laneOn(natstest.Conn(t, r.srv), mesh.Config{}), mesh.Agent{Handler: g, Concurrency: 1})
	}
	r.aged()
	task := newTask(reviewer, "code.review", `{}`)
	for range 2 {
		if err := r.nc.Publish("aee.work.normal."+reviewer, encode(t, task)); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "the task", g.entered)
	// The other message is dealt with while the first is worked on.
	eventually(t, "one message is left", func() bool { return r.queued() == 1 || len(g.entered) > 0 })
	g.open()
	if _, err := r.result(r.client(), task); err != nil {
		t.Fatal(err)
	}
	r.drainedQueue()
	if n := len(g.entered); n != 0 {
		t.Errorf("it was begun %d times", n+1)
	}
}

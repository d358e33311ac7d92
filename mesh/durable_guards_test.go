package mesh_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// Section 5 of the reliability review broke each of these guards, and neither a test
// nor soak noticed.

// again puts the message of a task into the queue once more, as a redelivery whose
// acknowledgement was lost would come, and waits until it has been dealt with.
func (r *durableRig) again(task *envelope.Envelope, header nats.Header) {
	r.t.Helper()
	msg := &nats.Msg{Subject: "aee.work.normal." + task.To, Data: encode(r.t, task), Header: header}
	if _, err := r.js(r.nc).PublishMsg(ctxFor(r.t), msg); err != nil {
		r.t.Fatal(err)
	}
	r.drainedQueue()
}

func TestAPausedRunDoesNotRunWhenItsMessageComesAgain(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", s.entered)
	if _, err := client.Command(ctxFor(t), reviewer, intents.PauseTask{Target: intents.Target{ID: task.ID}}); err != nil {
		t.Fatal(err)
	}
	s.next <- struct{}{}
	r.drainedQueue()
	before := r.record(task)
	equal(t, "status", before.Doc.Status, aaif.RunPaused)

	r.again(task, nil)
	equal(t, "the record", r.record(task).Doc.StateID, before.Doc.StateID)
	equal(t, "handlers that began", len(s.entered), 0)
}

// A reply that is stored is not stored once more, however late its message comes
// again: the server forgets Nats-Msg-Ids after two minutes.
func TestAReplyIsLookedForBeforeItIsPublishedAgain(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]bool{"the reply alone": false, "beside a document": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			forgotten := r.forgetsIDsOf("KV_"+jetstream.BucketState, strings.TrimSuffix(jetstream.ReplySubjects(r.m, "agent.probe"), "*")+"x")
			r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.KeepTasks = steps }), mesh.Agent{Handler: echo})
			client, task := r.client(), newTask(reviewer, "code.review", `{"n":1}`)
			r.submit(client, task)
			if _, err := r.result(client, task); err != nil {
				t.Fatal(err)
			}
			r.drainedQueue()
			forgotten()
			r.again(task, nil)
			equal(t, "replies", len(r.replies(task)), 1)
		})
	}
}

// A worker that gets a message late, because it was cut off, does not take the run
// from the one that the server has given it to since.
func TestAnOlderDeliveryDoesNotClaimOverANewerOwner(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	line, at := natstest.NewCable(t), newPoints(t)
	delivered := at.hold(mesh.PointDelivered)
	store := &gated{came: make(chan struct{}, 100), open: make(chan struct{})}
	close(store.open)
	begun := make(chan struct{}, 100)
	late := r.serve(r.over(line, observing(at), func(d *mesh.Durable) { store.RunStore, d.States = d.States, store }), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		begun <- struct{}{}
		return json.RawMessage(`{"by":"the late one"}`), nil
	})})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	release := within(t, "the first delivery", delivered)
	line.Block(true)

	heir := r.claimedByAnother(task)
	line.Block(false)
	close(release)
	within(t, "the late one to try", store.came)
	if err := late.end(); err != nil { // after what it has begun
		t.Error(err)
	}
	equal(t, "handlers of the late one", len(begun), 0)
	heir.stillOwns(client)
}

// heir is a worker that claimed a task's run while another one with an older delivery stood still.
type heir struct {
	r      *durableRig
	task   *envelope.Envelope
	steps  *stepper
	before *state.Checkpoint
}

func (r *durableRig) claimedByAnother(task *envelope.Envelope) *heir {
	r.t.Helper()
	steps := newStepper(r.t, 1)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: steps})
	within(r.t, "the heir", steps.entered)
	eventually(r.t, "it is claimed", func() bool { return r.begun(task) != nil })
	return &heir{r, task, steps, r.record(task)}
}

// stillOwns checks that no other worker has written, and that the heir ends the run.
func (h *heir) stillOwns(client *mesh.Node) {
	r := h.r
	r.t.Helper()
	equal(r.t, "the record", r.record(h.task).Doc.StateID, h.before.Doc.StateID)
	equal(r.t, "messages in the queue", r.queued(), uint64(1)) // the late one has not acked that of the heir
	h.steps.next <- struct{}{}
	if _, err := r.result(client, h.task); err != nil {
		r.t.Error(err)
	}
	r.drainedQueue()
	equal(r.t, "epoch", r.record(h.task).Mesh.Epoch, h.before.Mesh.Epoch)
}

// So it is with a delivery that lay in the connection until its lease had expired: the
// worker cannot tell by its clock that it is an older one.
func TestADeliveryThatComesLateDoesNotClaimOverANewerOwner(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	line, at := natstest.NewCable(t), newPoints(t)
	begun := make(chan string, 10)
	late := r.serve(r.over(line, observing(at)), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		begun <- task.Envelope.ID
		return json.RawMessage(`{"by":"the late one"}`), nil
	})})
	client := r.client()
	r.submit(client, newTask(reviewer, "code.review", `{}`))
	within(t, "a task before", begun)
	r.drainedQueue()
	eventually(t, "it waits for a task", func() bool { return r.waiting() > 0 })
	line.Block(true)
	task := newTask(reviewer, "code.review", `{"n":2}`)
	r.submit(client, task)

	heir := r.claimedByAnother(task)
	delivered := at.hold(mesh.PointDelivered)
	line.Block(false)
	close(within(t, "the delivery", delivered))
	if err := late.end(); err != nil { // after what it has begun
		t.Error(err)
	}
	equal(t, "handlers of the late one", len(begun), 0)
	heir.stillOwns(client)
}

// Nothing is written on top of a record that ends a run, also if another worker wrote it.
func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	committed := make(chan error, 1)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler, Name: "first"}, nil); err != nil {
			return nil, err
		}
		g.Handle(ctx, task)
		err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler, Name: "late"}, nil)
		committed <- err
		return nil, err
	})})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", g.entered)

	// Under the same owner and epoch, as only this worker could have written it.
	states := jetstream.NewStates(r.js(r.nc), r.m)
	id := state.ID{Entity: reviewer, Run: state.RunID(reviewer, task.ID)}
	rec, err := states.Get(ctxFor(t), id)
	if err != nil {
		t.Fatal(err)
	}
	end := r.record(task)
	end.Doc.Status = aaif.RunCompleted
	end.Mesh.Reply = encode(t, task.Reply(envelope.TypeResult, json.RawMessage(`{"by":"the test"}`)))
	data, err := state.Codec{}.Encode(end)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := states.Put(ctxFor(t), id, rec.Revision, data); err != nil {
		t.Fatal(err)
	}
	g.open()
	if err := within(t, "the late commit", committed); !isErr(err, mesh.ErrLost) {
		t.Errorf("the late commit: %v", err)
	}

	// Nor do commands, and messages that come again, change anything.
	for intent, payload := range map[string]string{
		intents.TaskPause: `{"id":"ID"}`, intents.TaskResume: `{"id":"ID"}`, intents.TaskCancel: `{"id":"ID"}`, intents.TaskSteer: `{"id":"ID","text":"on"}`,
		intents.TaskSettle: `{"id":"ID","outcome":"done"}`, intents.TaskMigrate: `{"id":"ID","to":"any"}`,
	} {
		// Over the queue they apply to runs of owners that do not answer, too.
		r.submit(client, newTask(reviewer, intent, strings.Replace(payload, "ID", task.ID, 1)))
	}
	r.drainedQueue()
	r.again(task, nil)
	r.again(task, nats.Header{headers.HeaderRun: {id.Run}})
	if rec, err = states.Get(ctxFor(t), id); err != nil || !bytes.Equal(rec.Data, data) || !rec.Replied {
		t.Errorf("the record has changed after the end: %s, %v", rec.Data, err)
	}
	replies := r.replies(task)
	if len(replies) != 1 || string(replies[0].Payload) != `{"by":"the test"}` {
		t.Errorf("replies %v", replies)
	}
}

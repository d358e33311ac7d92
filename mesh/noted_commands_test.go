package mesh_test

import (
	"context"
	"iter"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// bucketInfo is what the server says of the bucket of runs.
func (r *durableRig) bucketInfo() *natsjs.StreamInfo {
	r.t.Helper()
	s, err := r.js(r.nc).Stream(ctxFor(r.t), "KV_"+jetstream.BucketState)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo()
}

// life is the time to live of the newest record of a run, and its revision.
func (r *durableRig) life(id state.ID) (seconds int, revision uint64) {
	r.t.Helper()
	s, err := r.js(r.nc).Stream(ctxFor(r.t), "KV_"+jetstream.BucketState)
	if err != nil {
		r.t.Fatal(err)
	}
	msg, err := s.GetLastMsgForSubject(ctxFor(r.t), "$KV."+jetstream.BucketState+"."+id.Entity+"."+id.Run)
	if err != nil {
		r.t.Fatal(err)
	}
	seconds, _ = strconv.Atoi(msg.Header.Get(natsjs.MsgTTLHeader))
	return seconds, msg.Sequence
}

// Finding 4 of the security review: commands for tasks that never come do not fill the
// store, however many and however large they are.
func TestNotesAreShortAndFew(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: willing{g}})
	client := r.client()
	steer := func(id string, text int) error {
		_, err := client.Command(ctxFor(t), reviewer, intents.SteerTask{Target: intents.Target{ID: id, Durable: true}, Text: strings.Repeat("x", text)})
		return err
	}
	equal(t, "a note that is too long", codeOf(steer(envelope.NewID(), 4<<10+1)), envelope.CodeTooLarge)
	equal(t, "bytes stored", r.bucketInfo().State.Bytes, uint64(0))
	const tasks, each = 16, 8
	for range tasks {
		id := envelope.NewID()
		for range each {
			if err := steer(id, 1); err != nil {
				t.Fatal(err)
			}
		}
		if id != "" && r.bucketInfo().State.Msgs == each {
			equal(t, "one too many for a task", codeOf(steer(id, 1)), envelope.CodeDenied)
		}
	}
	full := r.bucketInfo().State
	equal(t, "records stored", full.Msgs, uint64(tasks*each))
	err := steer(envelope.NewID(), 1)
	if codeOf(err) != envelope.CodeBusy || !strings.Contains(err.Error(), "128 commands of "+ada+" wait already for tasks of "+reviewer) {
		t.Errorf("one too many for the sender: %v", err)
	}
	equal(t, "bytes stored after that", r.bucketInfo().State.Bytes, full.Bytes)

	// What is no note is bounded, too.
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", g.entered)
	equal(t, "a text that is too long", codeOf(steer(task.ID, 32<<10+1)), envelope.CodeTooLarge)
	for range 64 {
		if err := steer(task.ID, 32); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "a message too many for the next turn", codeOf(steer(task.ID, 1)), envelope.CodeBusy)
	if out := r.command(client, intents.CancelTask{ID: task.ID}); !out.Cancelled {
		t.Errorf("a cancel after all that: %+v", out)
	}
}

// Finding 4 of the security review, turned round: the notes of another sender keep no
// cancel of the task's own out.
func TestNotesOfOthersKeepNoCancelOut(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	adas, eves := k.signer("ada", sign.Ed25519, ada), k.signer("eve", sign.Ed25519, "human.eve")
	r := newDurableRig(t)
	v := k.verifier()
	v.Mode = sign.Required
	r.serve(r.lane(mesh.Config{Verifier: v, Signer: k.signer("own", sign.Ed25519, "agent.*")}), mesh.Agent{Handler: echo})
	client := r.lane(mesh.Config{Entity: ada, Verifier: v, Signer: adas})
	eve := r.lane(mesh.Config{Entity: "human.eve", Verifier: v, Signer: eves})
	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	task := requiring(newTask(reviewer, "code.review", `{"n":1}`), `{"not_before":"`+later+`"}`)
	r.submit(client, task)
	refused := 0
	for range 17 {
		if _, err := eve.Command(ctxFor(t), reviewer, intents.SteerTask{Target: intents.Target{ID: task.ID, Durable: true}, Text: "x"}); err != nil {
			refused++
		}
	}
	if _, err := client.Command(ctxFor(t), reviewer, intents.CancelTask{ID: task.ID, Durable: true}); err != nil || refused == 0 {
		t.Errorf("ada's cancel: %v; %d of eve's were refused", err, refused)
	}
}

// A sender who names made-up tasks takes her own places only, under whatever names she signs;
// and unsigned commands together leave places for signed ones.
func TestNotesOfOneSenderLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	k := newKeys(t)
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{Verifier: k.verifier(), Signer: k.signer("own", sign.Ed25519, "agent.*")}), mesh.Agent{Handler: echo})
	as := func(entity string, s *sign.Signer) *mesh.Node {
		return r.lane(mesh.Config{Entity: entity, Verifier: k.verifier(), Signer: s})
	}
	pause := func(node *mesh.Node) error {
		_, err := node.Command(ctxFor(t), reviewer, intents.PauseTask{Target: intents.Target{ID: envelope.NewID(), Durable: true}})
		return err
	}
	// takes notes commands for made-up tasks until one is refused.
	takes := func(most int, nodes ...*mesh.Node) (noted int, err error) {
		for ; noted <= most; noted++ {
			if err = pause(nodes[noted%len(nodes)]); err != nil {
				break
			}
		}
		return noted, err
	}
	eves := k.signer("eve", sign.Ed25519, "human.*")
	noted, err := takes(1024, as("human.eve", eves), as("human.eva", eves))
	if noted != 128 || codeOf(err) != envelope.CodeBusy {
		t.Errorf("%d commands of one key are noted, then: %v", noted, err)
	}
	var made []*mesh.Node
	for i := range 8 {
		made = append(made, as("human.made_up_"+strconv.Itoa(i), nil))
	}
	noted, err = takes(1024, made...)
	if noted != 512 || codeOf(err) != envelope.CodeBusy || !strings.Contains(err.Error(), "512 unsigned commands wait already for tasks of "+reviewer) {
		t.Errorf("%d unsigned commands are noted, then: %v", noted, err)
	}
	if err := pause(as(ada, k.signer("ada", sign.Ed25519, ada))); err != nil {
		t.Errorf("a command of another sender: %v", err)
	}
}

// Unsigned commands for one task, under many names, leave places for those of its sender.
func TestUnsignedNotesKeepNoSignedCancelOut(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{Verifier: k.verifier(), Signer: k.signer("own", sign.Ed25519, "agent.*")}), mesh.Agent{Handler: echo})
	id := envelope.NewID()
	refused := 0
	for i := range 17 {
		eve := r.lane(mesh.Config{Entity: "human.made_up_" + strconv.Itoa(i), Verifier: k.verifier()})
		if _, err := eve.Command(ctxFor(t), reviewer, intents.SteerTask{Target: intents.Target{ID: id, Durable: true}, Text: "x"}); err != nil {
			refused++
		}
	}
	client := r.lane(mesh.Config{Entity: ada, Verifier: k.verifier(), Signer: k.signer("ada", sign.Ed25519, ada)})
	if _, err := client.Command(ctxFor(t), reviewer, intents.CancelTask{ID: id, Durable: true}); err != nil || refused == 0 {
		t.Errorf("ada's cancel: %v; %d of the unsigned ones were refused", err, refused)
	}
}

// aged is a store whose runs were written ten minutes before.
type aged struct {
	*jetstream.States
	looks atomic.Int64
}

func (a *aged) Open(ctx context.Context, entity string) iter.Seq2[state.Record, error] {
	return func(yield func(state.Record, error) bool) {
		for rec, err := range a.States.Open(ctx, entity) {
			rec.Time = rec.Time.Add(-10 * time.Minute)
			if !yield(rec, err) {
				return
			}
		}
		a.looks.Add(1)
	}
}

// A note lives for minutes, unless its task may be in the queue, or is in the schedule.
func TestANoteWaitsForAsLongAsItsTask(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	g := newGate(t)
	store := &aged{States: jetstream.NewStates(r.js(r.nc), r.m)}
	sweeping := func(d *mesh.Durable) { d.States, d.Sweep = store, 20*time.Millisecond }
	r.serve(r.lane(mesh.Config{}, sweeping), mesh.Agent{Handler: g})
	client := r.client()
	note := func(task *envelope.Envelope) uint64 {
		t.Helper()
		eventually(t, "a worker takes the command", func() bool { // Command would put one into the queue that is not taken at once
			_, err := client.TryCommand(ctxFor(t), mesh.NewCommand(ada, reviewer, intents.PauseTask{Target: intents.Target{ID: task.ID, Durable: true}}))
			return err == nil
		})
		_, revision := r.life(runOf(task))
		return revision
	}
	later := newTask(reviewer, "code.review", `{}`)
	if _, err := client.Submit(ctxFor(t), later, mesh.SubmitOptions{After: time.Hour}); err != nil {
		t.Fatal(err)
	}
	scheduled := note(later)
	if seconds, _ := r.life(runOf(later)); seconds < 4400 || seconds > 4500 {
		t.Errorf("the note of a task that is due in an hour lives for %d s", seconds)
	}
	nobodys := newTask(reviewer, "code.review", `{}`)
	first := note(nobodys)
	looks := store.looks.Load()
	eventually(t, "some sweeps", func() bool { return store.looks.Load() > looks+3 })
	_, now := r.life(runOf(nobodys))
	equal(t, "revision of the note while the queue is empty", now, first)

	r.submit(client, newTask(reviewer, "code.review", `{}`))
	within(t, "a task", g.entered)
	eventually(t, "the note is written again", func() bool {
		seconds, now := r.life(runOf(nobodys))
		return now > first && seconds == 900
	})
	_, now = r.life(runOf(later))
	equal(t, "revision of the scheduled task's note", now, scheduled)
	g.open()
}

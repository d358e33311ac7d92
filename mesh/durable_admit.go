package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// taskRun is a run as its task sees it: see durableRun.
type taskRun struct{ *Run }

func (r taskRun) checkpoint() *state.Checkpoint { return r.cp.Load() }

func (r taskRun) storedAt() time.Time { return r.hold.Stored }

// triesAgain reports whether the message of an ended run is that of a dead letter which is tried
// again, according to its unsigned header.
func (r taskRun) triesAgain() bool {
	return r.stored != nil && r.stored.Terminal() && r.hold.retryID() != ""
}

func (r taskRun) goesOn() bool { return r.stored != nil && !r.triesAgain() }

func (r taskRun) proves(h *delegated.Handed) (proven, known bool) {
	if r.stored == nil {
		return false, false
	}
	proven, known = h.Proven(r.stored)
	return proven, known && !r.triesAgain() // a retry verifies it again
}

func (r taskRun) until() time.Time { return r.deadline }

func (r taskRun) emit(payload json.RawMessage) error { return r.stream.Emit(payload) }

func (r taskRun) persist(ctx context.Context, f func() error) error {
	return r.lane.records.persist(ctx, f)
}

func (r taskRun) limit() {
	t := r.task
	t.Requires.Timeout = r.lane.deliveries.timeout(t.Requires)
	r.deadline = r.hold.Stored.Add(t.Requires.Timeout)
	if r.stored != nil && !r.stored.Mesh.Deadline.IsZero() && !r.triesAgain() {
		r.deadline = r.stored.Mesh.Deadline
	}
	// A dead letter that is tried again has a deadline of its own, and so have the tasks that are sent
	// for it. Only the message of the retry has the header; the record knows of it once it is claimed.
	again := r.hold.retryID() != "" || r.stored != nil && run.LastRetry(r.stored) != ""
	if h := t.handed; h != nil && r.stored == nil {
		r.stream.Continue(h.Stream) // the next stream envelope has the next number
		if !h.Deadline.IsZero() && !again {
			r.deadline = earlier(r.deadline, h.Deadline)
		}
	}
	if again {
		t.tree.DropDeadline()
	}
	if tree := t.tree.Deadline(); !tree.IsZero() {
		r.deadline = earlier(r.deadline, tree)
	}
	t.Deadline = r.lane.clock.local(r.deadline)
}

// The mesh's replay window (seen.go) about the tasks of the work queue.

// errLater: nak the message and check it again when it is redelivered.
var errLater = errors.New("later")

// firstInMesh records a new, signed durable task in the mesh's replay window. If another
// message of the queue holds the id, the run's record decides. If there is no record yet,
// firstInMesh returns errLater, because the other message may be about to create it.
func (ds *deliveries) firstInMesh(ctx context.Context, r *Run) error {
	n, env := ds.host.node, r.task.Envelope
	if r.task.KeyID == "" || !n.asksSeen(env, true) || intents.IsCommand(env.Intent) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sched.StoreTimeout)
	defer cancel()
	by := seenWork + strconv.FormatUint(r.hold.Seq, 10)
	holder, err := n.cfg.Seen.Claim(ctx, ds.host.Entity, seenKey(env), by)
	switch {
	case err != nil && (n.insistsOnSeen() || errors.Is(err, jetstream.ErrExists) && !errors.Is(err, jetstream.ErrDenied)):
		return errors.Join(errLater, err) // another message may hold the id
	case err != nil:
		ds.host.log.Warn("the mesh's replay window cannot be asked", "id", env.ID, "err", err)
		return nil
	case holder == by:
		return ds.notMoved(ctx, r, by)
	case strings.HasPrefix(holder, seenLater) && !delegated.Claimed(r.task.required(requires.Handoff)):
		return nil
	case strings.HasPrefix(holder, seenWork):
		switch _, err := ds.cfg.States.Get(ctx, r.id); {
		case err == nil:
			return nil
		case !errors.Is(err, state.ErrNotFound):
			return errors.Join(errLater, err)
		case r.hold.Delivered <= seenTries:
			return errLater
		}
		// Both messages may be the same task, submitted twice because the first
		// confirmation was lost. The first message may still wait for a worker.
		seq, _ := strconv.ParseUint(strings.TrimPrefix(holder, seenWork), 10, 64)
		if there, err := ds.records.messageQueued(ctx, ds.clock.now(), seq, env.ID); err != nil || there != run.No {
			return errors.Join(errLater, err)
		}
	}
	return n.replayed()
}

// notMoved refuses a signed task that names no lane, and whose message is the first holder of
// its id: only an asynchronous agent takes such tasks from the queue, and its worker claims the
// id before it moves a live task there. So another user has put the task into the queue.
//
// The claim of the worker that moved the task proves this only while the window keeps it, so a
// message that is older than half the window is accepted, and so is one that was stored before the
// workers used the window (KeepsSince). Where the operator does not insist on the window, its worker
// may have moved a task without a claim.
func (ds *deliveries) notMoved(ctx context.Context, r *Run, by string) error {
	n := ds.host.node
	refusal := requires.ForLane(r.task.required(requires.Lane), true, true, false)
	if refusal == nil || !n.insistsOnSeen() || ds.clock.now().Sub(r.hold.Stored) >= n.cfg.ReplayWindow/2 {
		return nil
	}
	if late, ok := n.cfg.Seen.(interface{ KeepsSince() time.Time }); ok && ds.clock.local(r.hold.Stored).Before(late.KeepsSince()) {
		return nil
	}
	if retried, err := r.retried(ctx); retried || err != nil {
		return err
	}
	// A window that keeps nothing, because the mesh has none, proves nothing either.
	holder, err := n.cfg.Seen.Claim(ctx, ds.host.Entity, seenKey(r.task.Envelope), seenWork+"0")
	switch {
	case err != nil:
		return errors.Join(errLater, err)
	case holder != by:
		return nil
	}
	return refusal
}

// A message whose id another message holds is nakked seenTries times while there is no
// run record. After that the queue is asked whether the other message still exists.
const seenTries = 3

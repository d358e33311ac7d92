package migration

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// Remotes returns a client for the receiver of another platform, by its URL. It fails if
// transfers to that URL are not allowed.
type Remotes func(url string) (*handoff.Client, error)

// moveTimeout bounds one attempt to transfer a run. Meanwhile the run is stopped.
const moveTimeout = 2 * time.Minute

// The points of a transfer that [Owned.Observe] gets.
const (
	PointOffer  = "move-offer"  // the offer is about to be sent to the target
	PointStaged = "move-staged" // the other platform has received the whole run
)

// Mover transfers the runs of one worker. Its methods may be called from many goroutines.
type Mover struct {
	cfg  Config
	host Host
}

// Config configures a [Mover]. Package mesh makes it of the configuration of an agent and
// its node.
type Config struct {
	Entity    string       // of the agent
	AgentID   string       // AAIF agent_id; "": the one that stands for the entity
	Worker    string       // the worker's instance id
	Platform  string       // this mesh's platform name
	Version   string       // of the program, as documents for other platforms state it
	Signer    *sign.Signer // of the agent; nil: it has no key
	Operators []string     // patterns of the entities that may transfer runs to other platforms
	Remotes   Remotes      // nil: no run is transferred to another platform
	States    state.Store
	Codec     state.Codec // of the agent's checkpoints
	Replies   *jetstream.Replies
	Answers   answers.Reader
	Log       *slog.Logger
}

// Host is the worker, as its transfers use it.
type Host interface {
	// Now returns the time by the server's clock.
	Now() time.Time
	// Ask signs a task, sends it to all workers of the agent, and returns the first reply. If none
	// arrives within wait, the error is a context.DeadlineExceeded.
	Ask(ctx context.Context, task *envelope.Envelope, wait time.Duration) (*envelope.Envelope, error)
	// Sendable fails with E_TOO_LARGE if a reply of size bytes does not fit a message.
	Sendable(size int) error
	// Room fails with E_BUSY if the worker has no room for another run.
	Room() error
	// Claim makes this worker the owner of an offered run: c was read from rec, and the run's
	// message is acknowledged on ack. Then it calls claimed with the run's epoch, and goes on with
	// the run. If it fails, it has not called claimed.
	Claim(ctx context.Context, rec state.Record, c *state.Checkpoint, ack string, claimed func(epoch uint64)) error
	// Background runs f on another goroutine. The context of f ends when the worker stops.
	Background(f func(context.Context))
}

// Run is a run that has stopped and that this worker owns.
type Run struct {
	Owned
	Task     *envelope.Envelope
	Ack      string    // the subject on which the run's message is acknowledged
	Deadline time.Time // of the task, by the server's clock; zero: none
}

// Owned is the record of a [Run] and its place in the worker. The last call for a run is one of
// End, Fail, Moved, Park, Resume and Requeue.
type Owned interface {
	// Checkpoint returns the last checkpoint, which must not be changed, and its revision.
	// It must not be called in a change of Advance.
	Checkpoint() (*state.Checkpoint, uint64)
	// Advance writes the next phase of the transfer by compare-and-swap. change, which may
	// be nil, gets a copy of the last checkpoint that has the new phase; it may be called
	// more than once. An error from it is returned, and nothing is written.
	Advance(phase state.Phase, change func(*state.Checkpoint) error) error
	// Observe reports a point of the transfer.
	Observe(point string)
	// StopCalls cancels the open calls of the run in this mesh, in the background.
	StopCalls()

	// End ends the run with the reply of the platform that has it; stream is the number of stream
	// envelopes before the reply.
	End(reply *envelope.Envelope, stream int)
	// Fail ends the run with an error of this worker's; nil: the task's deadline has passed.
	Fail(problem *envelope.Error)
	// Moved drops a run that another worker has claimed, and its message.
	Moved()
	// Park acks the message: the run waits.
	Park()
	// Resume goes on with the run here.
	Resume()
	// Requeue releases the run and naks its message, because this worker stops (err is nil) or
	// because the record was not written (err says why). It does nothing if the run was lost.
	Requeue(err error)
}

// New makes a mover. It does no I/O.
func New(cfg Config, host Host) *Mover { return &Mover{cfg, host} }

// Move brings a stopped run to its target; if it is there already, it relays the replies
// back. ctx ends when the run is lost or the worker drains.
func (m *Mover) Move(ctx context.Context, r *Run) {
	switch run.Next(r.migration()) {
	case run.MoveToFile:
		r.Park()
	case run.MoveDecide:
		m.decide(ctx, r)
	case run.MoveRelay:
		m.relay(ctx, r)
	case run.MoveToRemote:
		m.send(ctx, r)
	case run.MoveToWorker:
		m.offer(ctx, r)
	}
}

// migration returns what the run's record says of its transfer.
func (r *Run) migration() *state.Migration {
	c, _ := r.Checkpoint()
	return c.Mesh.Migration
}

// id returns the run's id.
func (r *Run) id() string {
	c, _ := r.Checkpoint()
	return c.Doc.RunID
}

// abort ends a failed transfer. If this worker still owns the run, the run resumes here.
func (m *Mover) abort(r *Run, why error) {
	reason := reasonOf(why)
	var runs bool
	err := r.Advance(state.PhaseAborted, func(c *state.Checkpoint) error {
		runs = run.Back(c, m.cfg.Worker, m.host.Now(), reason)
		return nil
	})
	if err != nil {
		r.Requeue(err)
		return
	}
	m.cfg.Log.Warn("run did not move", "run", r.id(), "err", why)
	if runs {
		r.Resume()
		return
	}
	r.Park()
}

// maxReason bounds the reason of a failed transfer, in bytes, in the run's record. It holds a
// whole [transfer.Error].
const maxReason = 640

// reasonOf returns why a transfer failed, as text for the run's record: the message of the other
// side, or the part of an error that a peer may read.
func reasonOf(why error) string {
	var peer *envelope.Error
	if errors.As(why, &peer) {
		return clip.Text(peer.Message, maxReason)
	}
	if e := transfer.NewError(why); e.Remote || e.Code != transfer.CodeInternal {
		return clip.Text(e.Error(), maxReason)
	}
	return clip.Text(fault.ForPeer(why).Message, maxReason)
}

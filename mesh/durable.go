package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh/migration"
	"github.com/aeemesh/aeemesh/state"
)

// Defaults of [Durable].
const (
	DefaultLease      = 3 * time.Second
	DefaultMaxClaims  = 5
	DefaultSweep      = 30 * time.Second
	DefaultMaxLag     = time.Minute
	DefaultRunTimeout = 30 * 24 * time.Hour
)

// Durable configures the durable lane of a node. On this lane tasks are stored before they
// begin, and workers write a checkpoint after every step (docs/nats-binding.md, "The durable
// lane"). The package's example "Durable" shows how to make one.
type Durable struct {
	// Queue, Replies and Dead are the lane's streams. States is the store of runs. Clock
	// reads the server's time. All are required.
	Queue   *jetstream.Queue
	Replies *jetstream.Replies
	Dead    *jetstream.Dead
	States  jetstream.RunStore
	Clock   *jetstream.Clock
	// Inbox stores the tasks for people; nil: agents of this node cannot send tasks to
	// people.
	Inbox *jetstream.Inbox
	// Slots enforce [Agent].MeshConcurrency; required for agents that set it.
	Slots *slot.Store

	// Codec writes checkpoints; an [Agent] may have one of its own. The zero
	// value writes clear JSON.
	Codec state.Codec

	// KeepTasks keeps the document of every run, with its task. Without it, a task of one
	// short step that succeeds leaves only its reply in the store. That halves the cost of
	// such a task, and the task itself can be read only as long as the journal has it.
	KeepTasks bool

	// Lease is how long a silent worker keeps a message before the server redelivers it.
	// Default 3 seconds. It applies only to consumers that this worker creates; existing
	// consumers keep their own lease.
	Lease time.Duration
	// Create lets a worker create the missing consumers of its agent. Without it an
	// operator creates them ("aeemesh apply").
	Create bool

	// MaxTimeout caps requires.timeout_ms, counted from the time at which the server
	// stored the task. DefaultTimeout applies to tasks without timeout_ms. Default of
	// both: 30 days, the retention of runs.
	MaxTimeout     time.Duration
	DefaultTimeout time.Duration

	// MaxClaims is how many claims without a completed step a run may have. After that
	// it is dead-lettered, because it probably crashes its workers. A first claim that
	// ended within a quarter of a second may not be counted, because it is written later
	// (claim_late.go). Default 5.
	MaxClaims int
	// Sweep is the interval of the sweep, which requeues runs whose message is gone.
	// Default 30 seconds; below 0: no sweep.
	Sweep time.Duration
	// MaxLag is how long the oldest task may wait before the agent reports that it is
	// degraded. Default 1 minute; below 0: no limit.
	MaxLag time.Duration
	// Operators are patterns of the entities that may cancel, pause, resume, steer and
	// settle the runs of others; see [sign.MatchFrom]. A task whose signature was
	// verified accepts signed commands only. Default "human.>"; an empty list that is not
	// nil: no operators.
	Operators []string

	// Platform is this mesh's platform name in transfers. Default [state.Platform].
	Platform string
	// Remotes finds the receivers of other platforms, and decides to which of them runs
	// may be transferred; nil: to none.
	Remotes Remotes

	// Ready, if set, is closed when the streams exist. Until then the node's agents
	// serve live tasks only, and Async and [Agent].MeshConcurrency have no effect. nil:
	// the streams exist.
	Ready <-chan struct{}
	// NotReady returns why the streams do not exist yet, for health reports. It must return
	// at once.
	NotReady func() error

	// Observe, if set, is called at each point of the commit order, from the goroutine
	// that writes the next point: for tests, which stop or kill the process there, and
	// for tracing. It may be called for many runs at once.
	Observe func(point Point, run state.ID)

	fenced bool // see OwnEntitiesOnly
}

// OwnEntitiesOnly states that the node's NATS user has permissions for its own entities only, as
// DurableWorker of package mesh/perms lists them. Without OwnEntitiesOnly the node finds that out by requests
// that the server refuses and logs.
func (d *Durable) OwnEntitiesOnly() {
	d.fenced = true
	d.States.Fence()
	d.Queue.Fence()
	d.Replies.Fence()
}

// SetStores sets the stores of the lane.
func (d *Durable) SetStores(s *jetstream.Stores) {
	d.Queue, d.Replies, d.Dead, d.Inbox = s.Queue, s.Replies, s.Dead, s.Inbox
	d.States, d.Clock, d.Slots = s.States, s.Clock, s.Slots
}

// Available reports whether the streams exist: Ready is closed or nil.
func (d *Durable) Available() bool {
	if d.Ready == nil {
		return true
	}
	select {
	case <-d.Ready:
		return true
	default:
		return false
	}
}

// Remotes returns a client for the receiver of another platform, by its URL. It fails if
// transfers to that URL are not allowed.
type Remotes = migration.Remotes

// Point is a place in the commit order of a durable task.
type Point string

func (d *Durable) observe(p Point, id state.ID) {
	if d.Observe != nil {
		d.Observe(p, id)
	}
}

// The points at which [Durable].Observe is called, in the order in which a run
// passes them. It passes the two points of a commit for each commit.
const (
	PointDelivered      Point = "delivered"       // the message has arrived, nothing is written
	PointClaimed        Point = "claimed"         // this worker may begin the run; the claim may be written later
	PointBeforeCommit   Point = "before-commit"   // a step is about to be committed
	PointAfterCommit    Point = "after-commit"    // the step is committed
	PointBeforeTerminal Point = "before-terminal" // the handler has returned
	PointAfterTerminal  Point = "after-terminal"  // the outcome is stored, the reply is not
	PointDead           Point = "dead"            // the dead letter is stored, if there is one
	PointAnnounced      Point = "announced"       // the sender was told the outcome, the reply may not be stored yet; only of a run with a record
	PointReplied        Point = "replied"         // the reply is stored, the message is still in the queue
	PointAcked          Point = "acked"           // the message is removed from the queue
	PointRequeue        Point = "requeue"         // the record says that the run goes on, and its message is not queued yet
)

// The points of a transfer. The first two are prefixes: the phase that is written is
// appended, such as "before-move:committed".
const (
	PointBeforeMove Point = "before-move:"
	PointAfterMove  Point = "after-move:"
	PointOffer      Point = migration.PointOffer  // the run is stopped; the offer is about to be sent to the target
	PointVerified   Point = "move-verified"       // at the target worker: the offer is verified, nothing is written
	PointMoved      Point = "move-moved"          // at the target worker: it has claimed the run
	PointStaged     Point = migration.PointStaged // the other platform has received the whole run, and waits for the decision
)

// Errors of a [Run], for errors.Is.
var (
	// ErrLost: another worker owns the run, or it has ended. A handler that gets this
	// returns at once: no later write of it is recorded.
	ErrLost = errors.New("the run belongs to another worker")
	// ErrParked: this worker stops the run, because the run was paused, is to be
	// transferred, or waits for an answer. A handler that gets this returns it unchanged.
	ErrParked = errors.New("the run was parked, or is to be transferred")
)

// normal returns a copy with the defaults filled in.
func (d Durable) normal() (*Durable, error) {
	var bad []error
	missing := func(what string, is bool) {
		if is {
			bad = append(bad, fmt.Errorf("durable lane: %s is needed", what))
		}
	}
	missing("Queue", d.Queue == nil)
	missing("Replies", d.Replies == nil)
	missing("Dead", d.Dead == nil)
	missing("States", d.States == nil)
	missing("Clock", d.Clock == nil)
	d.Platform = cmp.Or(d.Platform, state.Platform)
	d.Lease = cmp.Or(d.Lease, DefaultLease)
	d.Sweep = cmp.Or(d.Sweep, DefaultSweep)
	d.MaxLag = cmp.Or(d.MaxLag, DefaultMaxLag)
	d.MaxTimeout = cmp.Or(d.MaxTimeout, DefaultRunTimeout)
	d.DefaultTimeout = min(cmp.Or(d.DefaultTimeout, d.MaxTimeout), d.MaxTimeout)
	d.MaxClaims = cmp.Or(d.MaxClaims, DefaultMaxClaims)
	if d.Operators == nil {
		d.Operators = defaultOperators
	}
	if d.Lease < 0 || d.MaxTimeout < 0 || d.DefaultTimeout < 0 || d.MaxClaims < 0 {
		bad = append(bad, errors.New("durable lane: Lease, MaxTimeout, DefaultTimeout and MaxClaims cannot be negative"))
	}
	for _, p := range d.Operators {
		if err := sign.CheckPattern(p); err != nil {
			bad = append(bad, fmt.Errorf("durable lane: operator %q: %w", p, err))
		}
	}
	return &d, errors.Join(bad...)
}

// Backoff says how the pauses between the attempts of a task grow.
type Backoff string

// The backoffs of AAIF (Runtime Configuration, retry_backoff).
const (
	BackoffExponential Backoff = "exponential" // doubled each time; the default
	BackoffLinear      Backoff = "linear"      // longer by the first pause each time
	BackoffFixed       Backoff = "fixed"
)

// RetryPolicy says how often a durable task is retried after a retryable error (AAIF
// runtime.max_retries and retry_backoff). The zero value does not retry.
type RetryPolicy struct {
	Max     int           // attempts beyond the first
	Backoff Backoff       // default exponential
	Base    time.Duration // the first pause; default 1 second
	Cap     time.Duration // the longest; default 5 minutes
}

// Pause returns how long to wait before retry number n, counted from 1: the policy's
// pause, shortened by up to a half at random, so that tasks that failed together are
// not retried together; but at least the error's backoff.
func (p RetryPolicy) Pause(n int, advice time.Duration) time.Duration {
	base, limit := cmp.Or(p.Base, time.Second), cmp.Or(p.Cap, 5*time.Minute)
	d := base
	switch p.Backoff {
	case BackoffFixed:
	case BackoffLinear:
		if d = base * time.Duration(n); d/time.Duration(n) != base {
			d = limit
		}
	default:
		if d = base << min(n-1, 62); d>>min(n-1, 62) != base {
			d = limit
		}
	}
	d = min(d, limit)
	return max(d-rand.N(d/2+1), advice)
}

func (p RetryPolicy) check() error {
	switch p.Backoff {
	case "", BackoffExponential, BackoffLinear, BackoffFixed:
	default:
		return fmt.Errorf("retry: backoff %q is not fixed, linear or exponential", p.Backoff)
	}
	if p.Max < 0 || p.Base < 0 || p.Cap < 0 {
		return errors.New("retry: Max, Base and Cap cannot be negative")
	}
	return nil
}

// defaultOperators are those of [Durable.Operators], and of agents that have no
// durable lane.
var defaultOperators = []string{"human.>"}

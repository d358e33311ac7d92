package mesh

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
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

// Durable is what a node needs for the durable lane: tasks that are stored
// before they are worked on, by workers that leave a checkpoint behind after
// every step (docs/nats-binding.md, "The durable lane"). The package's example
// "Durable" puts one together.
type Durable struct {
	// Queue, Replies and Dead are the lane's streams, States where its runs
	// are kept, Clock the time of the server. Required.
	Queue   *jetstream.Queue
	Replies *jetstream.Replies
	Dead    *jetstream.Dead
	States  state.Store
	Clock   *jetstream.Clock
	// Inbox keeps what people are sent, so that agents may ask them; nil: agents
	// of this node cannot.
	Inbox *jetstream.Inbox
	// Slots hold agents to [Agent].MeshConcurrency; required for those that
	// have one.
	Slots *jetstream.Slots

	// Codec writes checkpoints; an [Agent] may have one of its own. The zero
	// value writes clear JSON.
	Codec state.Codec

	// KeepTasks keeps the document of every run, with its task. Without it a task of one
	// short step that succeeds leaves its reply alone: that halves what it costs, and what
	// was asked is known as long as the journal has it.
	KeepTasks bool

	// Lease is for how long a task belongs to a worker that gives no sign of
	// life. Default 3 seconds. It holds where this worker makes the consumers
	// of its agent; those that are there have a lease of their own.
	Lease time.Duration
	// Create lets a worker make the consumers of its agent where they are
	// missing. Without it an operator makes them ("aeemesh apply").
	Create bool

	// MaxTimeout caps requires.timeout_ms, which counts from the time at which
	// the server stored the task, and DefaultTimeout is for tasks that ask for
	// none. Default 30 days, which is for how long runs are kept.
	MaxTimeout     time.Duration
	DefaultTimeout time.Duration

	// MaxClaims is how often a run may be claimed without completing a step,
	// before it is taken for the one that kills its workers. A first try that
	// ended within a quarter of a second does not count: its claim may not have
	// been written yet. Default 5.
	MaxClaims int
	// Sweep is the time between two looks for runs whose message is gone.
	// Default 30 seconds; below 0: never.
	Sweep time.Duration
	// MaxLag is how long the oldest task may wait before the agent calls itself
	// degraded. Default 1 minute; below 0: it does not.
	MaxLag time.Duration
	// Operators are patterns of the entities that may cancel, pause, resume,
	// steer and settle the runs of others; see [sign.MatchFrom]. What came
	// with a signature obeys only them who sign. Default "human.>"; an empty
	// list that is not nil: no operators.
	Operators []string

	// Platform is this mesh's name where runs go to another one. Default
	// [state.Platform].
	Platform string
	// Remotes finds the receivers of other platforms, and says to which of them
	// runs may go; nil: to none.
	Remotes Remotes

	// Ready, if set, says that the streams are not there yet: until it is closed
	// the node's agents take live tasks alone, as on a node without a durable lane
	// (a limit across the mesh and Async wait for it, too), and then join the lane.
	// Lacks says why, for health; it must return at once. Default: they are there.
	Ready <-chan struct{}
	Lacks func() error

	// Observe, if set, is called at each point of the commit order, from the
	// goroutine that is about to go on: for tests, which stop or kill the
	// process there, and for tracing. It may be called for many runs at once.
	Observe func(point Point, run state.ID)

	fenced bool // see Fence
}

// Fence says that the node's NATS user has permissions for its own entities alone, as
// [DurableWorkerPermissions] lists them. Without Fence the node finds that out by
// requests that the server refuses, and logs.
func (d *Durable) Fence() {
	d.fenced = true
	if s, ok := d.States.(interface{ Fence() }); ok {
		s.Fence()
	}
	d.Queue.Fence()
	d.Replies.Fence()
}

// Point is a place in the commit order of a durable task.
type Point string

// The points at which [Durable].Observe is called, in the order in which a run
// passes them. Those of a commit are passed for each one.
const (
	PointDelivered      Point = "delivered"       // the message is here, nothing is written
	PointClaimed        Point = "claimed"         // the run is ours to begin; of a new task the claim may be stored later
	PointBeforeCommit   Point = "before-commit"   // of a step
	PointAfterCommit    Point = "after-commit"    //
	PointBeforeTerminal Point = "before-terminal" // the handler has returned
	PointAfterTerminal  Point = "after-terminal"  // the outcome is stored, the reply is not
	PointDead           Point = "dead"            // the dead letter is stored, where there is one
	PointReplied        Point = "replied"         // the reply is stored, the message still there
	PointAcked          Point = "acked"           // the message is taken off the queue
	PointRequeue        Point = "requeue"         // the record says that the run goes on, and its message is not queued yet
)

// The points of a move; behind the first two stands the phase that is written,
// such as "before-move:committed".
const (
	PointBeforeMove Point = "before-move:"
	PointAfterMove  Point = "after-move:"
	PointOffer      Point = "move-offer"    // the run stands still; the target is about to be asked
	PointVerified   Point = "move-verified" // at a worker that is asked: the offer is good, nothing is written
	PointMoved      Point = "move-moved"    // at that worker: it has claimed the run
	PointStaged     Point = "move-staged"   // the other platform has all of it, and waits
)

// Errors of a [Run], for errors.Is.
var (
	// ErrLost: another worker owns the run, or it has ended. A handler that gets this
	// returns at once: no later write of it is recorded.
	ErrLost = errors.New("the run belongs to another worker")
	// ErrParked: the run stops here: it was paused, is to be transferred, or waits for
	// an answer. A handler that gets this returns it unchanged.
	ErrParked = errors.New("the run stops here for now")
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
	if d.Platform == "" {
		d.Platform = state.Platform
	}
	d.Lease = orDefault(d.Lease, DefaultLease)
	d.Sweep = orDefault(d.Sweep, DefaultSweep)
	d.MaxLag = orDefault(d.MaxLag, DefaultMaxLag)
	d.MaxTimeout = orDefault(d.MaxTimeout, DefaultRunTimeout)
	d.DefaultTimeout = min(orDefault(d.DefaultTimeout, d.MaxTimeout), d.MaxTimeout)
	if d.MaxClaims == 0 {
		d.MaxClaims = DefaultMaxClaims
	}
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

// Backoff is how the pauses between the attempts of a task grow.
type Backoff string

// The three of AAIF (Runtime Configuration, retry_backoff).
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
	base, limit := orDefault(p.Base, time.Second), orDefault(p.Cap, 5*time.Minute)
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
		return fmt.Errorf("retry: backoff %q is none of fixed, linear, exponential", p.Backoff)
	}
	if p.Max < 0 || p.Base < 0 || p.Cap < 0 {
		return errors.New("retry: Max, Base and Cap cannot be negative")
	}
	return nil
}

package mesh

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
	"github.com/aeemesh/aeemesh/mesh/internal/quota"
)

// The stores of package jetstream implement these interfaces.
var (
	_ Journal     = (*jetstream.Journal)(nil)
	_ Seen        = (*seen.Window)(nil)
	_ Refutations = (*jetstream.Refutations)(nil)
)

// Defaults of [Config]. The command's --help text states the same values.
const (
	DefaultReplayWindow = 2 * time.Minute
	DefaultSkew         = 5 * time.Minute
	DefaultMaxTimeout   = 10 * time.Minute
	DefaultTimeout      = 5 * time.Minute
	DefaultDrain        = 30 * time.Second
	DefaultHeartbeat    = 10 * time.Second
)

// TaskEvents says which events about tasks are published to bus.mesh.task, and which events
// about steps to bus.mesh.run.
type TaskEvents int

// The levels of task events. Failures are always published.
const (
	EventsAll      TaskEvents = iota // all
	EventsFailures                   // failures only
)

// Seen is a replay window that all workers of an entity share. Claim records by as the holder
// of an id, unless a holder was recorded within the window, and returns the recorded holder.
// Concurrent callers get the same holder. After an error the holder is unknown; after
// [jetstream.ErrExists] there is one. A window that may come later has the method
// KeepsSince() time.Time: claims before that time may not be recorded.
type Seen interface {
	Claim(ctx context.Context, entity, id, by string) (holder string, err error)
}

// Journal stores envelopes beyond the memory of one process. Post must return at once,
// whether or not the envelope gets stored. Get fails with [jetstream.ErrNotFound] if the
// journal does not have the envelope. A journal that may come later has the method
// Absent() bool; Post is not called while that is true.
type Journal interface {
	Post(entity, id string, raw []byte) error
	Get(ctx context.Context, entity, id string) ([]byte, error)
}

// Refutations stores which contexts were refuted to an entity, beyond the memory of one
// process. List fails with [jetstream.ErrNotFound] if there is no store yet; then the memory of
// the process counts.
type Refutations interface {
	Add(ctx context.Context, entity, id string, record []byte) error
	List(ctx context.Context, entity, id string) ([][]byte, error)
}

// Quotas limit the tasks that one sender may send to one process, per lane. A sender is known
// if its signature was verified, or Known names it. Its fields:
//
//	Rate, UnknownRate   float64           // tasks a second; 0: no limit, and 1,000 for unknown senders; below 0: no limit
//	Burst, UnknownBurst int               // tasks at once; of unknown senders 2,000 by default
//	UrgentRate          float64           // tasks a second with priority high or urgent, then they are normal; default 100
//	Cap, UnknownCap     envelope.Priority // the highest priority; default urgent, and high for unknown senders
//	Known               []string          // senders that count as known though they do not sign
type Quotas = quota.Limits

// Config configures a [Node], for all of its agents and clients. The zero value works: the
// node sends unsigned envelopes, verifies signatures that are present, and stores nothing
// beyond its memory.
type Config struct {
	// Prefix is put before every subject. Default none.
	Prefix string
	// Entity is the from of envelopes that the node itself sends, not one of its
	// agents. Default "service.aeemesh".
	Entity string

	// Signer signs the envelopes that this node sends; nil: they are unsigned. An [Agent]
	// may have a signer of its own. Neither may have the key of the connection's NATS user
	// ([natsconn.ErrKeyServesTwice]).
	Signer *sign.Signer
	// Verifier verifies the envelopes that this node receives. The zero value knows no
	// key, and so refuses every signed envelope (AEE: a present signature must be
	// verified before processing).
	Verifier sign.Verifier

	// ReplayWindow is how long a repeated task id is refused as a replay; see
	// [ReplayWindow] for the default. Below 0 turns the check off.
	ReplayWindow time.Duration
	// Skew is how far an envelope's ts may differ from the clock of this process. Default 5
	// minutes; below 0 turns the check off.
	Skew time.Duration
	// Seen is the mesh's replay window, used in addition to the process's own: for every
	// signed task, on both lanes, so that a captured task runs neither on another
	// replica nor on the other lane. nil: each process has its own window only.
	Seen Seen
	// SeenUnsigned uses Seen for unsigned live tasks, too.
	SeenUnsigned bool

	// Limits bound the envelopes that are decoded. Default: the server's max_payload,
	// depth 64.
	Limits envelope.Limits
	// MaxTimeout caps requires.timeout_ms (AEE, Security Considerations).
	// Default 10 minutes.
	MaxTimeout time.Duration
	// DefaultTimeout applies to tasks without requires.timeout_ms. Default 5 minutes.
	DefaultTimeout time.Duration
	// MaxHandoffs is how often a task may be delegated ([Task.Delegate]); at most
	// 64. Default 8.
	MaxHandoffs int
	// Drain is how long a stopping agent waits for the tasks that have begun. Default
	// 30 seconds.
	Drain time.Duration
	// Heartbeat is the time between two heartbeats of an agent. Default 10
	// seconds; below 0 turns them off.
	Heartbeat time.Duration
	// Quotas limit senders. The zero value has generous limits for unknown
	// senders and none for known ones; see [Quotas].
	Quotas Quotas
	// TaskEvents says which task events are published. Default all.
	TaskEvents TaskEvents

	// Tree bounds the trees of tasks that agents make when they call one another.
	// Counters count the work of these trees for all workers; nil: this process counts
	// alone, and the token and cost budgets of trees are not checked.
	Tree     TreeLimits
	Counters Counters

	// Durable lets the node receive and send durable tasks, which are stored before
	// they begin; nil: live tasks only.
	Durable *Durable

	// Journal and Refutations store what the node's memory forgets; nil: memory only.
	Journal     Journal
	Refutations Refutations

	// Logger gets warnings and errors, one message for each ended task at level info, and
	// one for each received envelope at level debug. Default: a logger that discards all.
	Logger *slog.Logger
	// TracerProvider makes a span for each task; nil: trace contexts are passed on
	// unchanged.
	TracerProvider trace.TracerProvider
	// MeterProvider gets the metrics; nil: none.
	MeterProvider metric.MeterProvider
	// Version is the version of the program, as aee.spec.query and the bus state it.
	Version string
}

// ReplayWindow returns the effective replay window for a configured window and skew. A window
// other than 0 is used unchanged. The default is 2 minutes, or the time for which an
// envelope's ts can stay within the skew bound, if that is longer: an envelope that is not
// stale yet must not be forgotten.
func ReplayWindow(window, skew time.Duration) time.Duration {
	if window != 0 {
		return window
	}
	return max(DefaultReplayWindow, 2*cmp.Or(skew, DefaultSkew))
}

// TreeLimits bound a tree of tasks: a root task and all tasks that agents sent for it. A
// sender may set lower bounds for its own tree (requires.tree), never higher ones. Its fields:
//
//	MaxDepth      int       // hops between the root task and any task; default 16
//	MaxTasks      int64     // tasks that agents send one another in one tree; default 10,000
//	MaxIterations int64     // turns of all agents for one tree; default 10,000
//	Tokens        int64     // of models, for one tree; default: no bound
//	USD           model.USD // price of models, for one tree; default: no bound
type TreeLimits = bounds.Limits

// Defaults of [TreeLimits].
const (
	DefaultMaxDepth      = bounds.DefaultMaxDepth
	DefaultMaxTasks      = bounds.DefaultMaxTasks
	DefaultMaxIterations = bounds.DefaultMaxIterations // 10 turns for each of 1,000 agents
)

// Counters are shared counters. All workers of a mesh share those of package jetstream/counter.
type Counters = bounds.Counters

// A Counter names a counter: by its owner and an id. A kind completes the name.
type Counter = bounds.Counter

// Kinds of counters: the tasks that agents have sent one another, the turns that they
// have taken for them, and the usage of their models, in tokens and in billionths of a
// dollar. Each kind is counted at each of [Task.Counters].
const (
	CountTasks  = bounds.CountTasks
	CountTurns  = bounds.CountTurns // with the id of a team's task: the turns of that team only
	CountTokens = bounds.CountTokens
	CountUSD    = bounds.CountUSD
)

// DefaultMaxHandoffs is how often a task may be delegated.
const DefaultMaxHandoffs = 8

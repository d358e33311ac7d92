package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/chain"
	"github.com/aeemesh/aeemesh/mesh/internal/quota"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// The stores of package jetstream are what these interfaces are for.
var (
	_ Journal     = (*jetstream.Journal)(nil)
	_ Seen        = (*jetstream.Seen)(nil)
	_ Refutations = (*jetstream.Refutations)(nil)
)

// Defaults of [Config]. Each is also the --help text's number.
const (
	DefaultReplayWindow = 2 * time.Minute
	DefaultSkew         = 5 * time.Minute
	DefaultMaxTimeout   = 10 * time.Minute
	DefaultTimeout      = 5 * time.Minute
	DefaultDrain        = 30 * time.Second
	DefaultHeartbeat    = 10 * time.Second
)

// TaskEvents says which events about tasks go to bus.mesh.task, and which about
// steps to bus.mesh.run.
type TaskEvents int

// The levels of task events. Failures are always told.
const (
	EventsAll      TaskEvents = iota // all
	EventsFailures                   // failures only
)

// Seen is a replay window that all workers of an entity share. Claim records that
// the entity has seen an id, and by whom, unless that is recorded within the window;
// it returns who has the id, and of two concurrent callers the same to both. An error
// means that it cannot be known.
type Seen interface {
	Claim(ctx context.Context, entity, id, by string) (holder string, err error)
}

// Journal keeps envelopes beyond the memory of one process. Post must return
// at once, whether or not the envelope gets stored; Get fails with
// [jetstream.ErrNotFound] where there is none.
type Journal interface {
	Post(entity, id string, raw []byte) error
	Get(ctx context.Context, entity, id string) ([]byte, error)
}

// Refutations remembers which contexts were refuted to an entity, beyond one process.
type Refutations interface {
	Add(ctx context.Context, entity, id string, record []byte) error
	List(ctx context.Context, entity, id string) ([][]byte, error)
}

// Quotas are the limits for what one sender may ask of one process, on each lane.
type Quotas = quota.Limits

// Config is what all agents and clients of one [Node] share. The zero value
// works: unsigned, signatures verified where they are present, memory only.
type Config struct {
	// Prefix stands in front of every subject. Default none.
	Prefix string
	// Entity is who the node speaks as where no agent of its own does: the
	// from of its requests. Default "service.aeemesh".
	Entity string

	// Signer signs what this node sends; nil sends unsigned. An [Agent] may
	// have one of its own. Neither may be the key of the connection's NATS user
	// ([ErrKeyServesTwice]).
	Signer *sign.Signer
	// Verifier checks what this node receives. The zero value knows no key,
	// and so refuses every signed envelope (AEE: a present signature must
	// be verified before processing).
	Verifier sign.Verifier

	// ReplayWindow is for how long a task's id may not come again; see
	// [ReplayWindow] for the default. Below 0 turns the check off.
	ReplayWindow time.Duration
	// Skew is how far ts may be from this clock. Default 5 minutes; below
	// 0 turns the check off.
	Skew time.Duration
	// Seen is the mesh's replay window, asked beside the process's own: about every
	// task that comes signed, on both lanes, so that a captured one runs neither on
	// another replica nor on the other lane. Nil: each process remembers for itself.
	Seen Seen
	// SeenUnsigned asks Seen about unsigned live tasks, too.
	SeenUnsigned bool

	// Limits bound what is decoded. Default: the server's max_payload, depth 64.
	Limits envelope.Limits
	// MaxTimeout caps requires.timeout_ms (AEE, Security Considerations).
	// Default 10 minutes.
	MaxTimeout time.Duration
	// DefaultTimeout is for tasks that ask for none. Default 5 minutes.
	DefaultTimeout time.Duration
	// MaxHandoffs is how often a task may be handed on ([Task.HandOff]); at most
	// 64. Default 8.
	MaxHandoffs int
	// Drain is how long a stopping agent may take to finish what it has
	// begun. Default 30 seconds.
	Drain time.Duration
	// Heartbeat is the time between two heartbeats of an agent. Default 10
	// seconds; below 0 turns them off.
	Heartbeat time.Duration
	// Quotas limit senders. The zero value has generous limits for unknown
	// senders and none for known ones; see [Quotas].
	Quotas Quotas
	// TaskEvents says which task events go to the bus. Default all.
	TaskEvents TaskEvents

	// Tree bounds the trees of tasks that agents make when they call one another,
	// and Counters count for them; nil: this process counts for itself, and what
	// models have used is not looked at when tasks come and go.
	Tree     TreeLimits
	Counters Counters

	// Durable lets the node take and send tasks that are stored before they
	// are worked on; nil: live tasks only.
	Durable *Durable

	// Journal and Refutations back the memory's journal; nil: memory only.
	Journal     Journal
	Refutations Refutations

	// Logger gets warnings and errors, and tasks at debug level. Default
	// discards.
	Logger *slog.Logger
	// TracerProvider gives each hop a span; nil: trace contexts pass
	// through unchanged.
	TracerProvider trace.TracerProvider
	// MeterProvider gets the metrics; nil: none.
	MeterProvider metric.MeterProvider
	// Version is the program's, told by aee.spec.query and on the bus.
	Version string
}

// Node is this process's place in the mesh: a NATS connection, an identity,
// the rules for what may come in. It serves agents and sends tasks. Its
// methods may be called from many goroutines.
type Node struct {
	conn     *nats.Conn
	cfg      Config
	subjects subject.Map
	log      *slog.Logger
	replay   *sign.Replay
	quotas   *quota.Table
	alerts   alertLimiter
	tel      *telemetry
	journal  *journal
	limits   envelope.Limits
	refuted  refutations
	replies  *rpc.Exchanger
	holders  holders
	steady   steady
	lanes    laneBook
	heads    headcount
	hosts    hosts
	starting chan struct{} // places for agents that start: their requests have time limits
	services services
	beats    beats
	told     ears // what agents are told beside their tasks
	asked    ears // plain text
	clock    serverClock
	tender   tender
	notifier *jetstream.Notifier // wakes lanes; nil: they do not sleep

	defaultRequires json.RawMessage // says DefaultTimeout; most tasks that are sent say just that
}

// New makes a node on a connection that the caller owns and closes. It does
// no I/O. All faults of the configuration are reported at once.
func New(conn *nats.Conn, cfg Config) (*Node, error) {
	var bad []error
	if conn == nil {
		bad = append(bad, errors.New("a NATS connection is needed"))
	}
	if conn != nil && !IsInbox(conn.NewInbox()) {
		bad = append(bad, fmt.Errorf("the connection's prefix of reply subjects makes %s: begin it with \"_\", such as _INBOX_ada, for workers answer on inboxes only", clip.Text(conn.NewInbox(), 128)))
	}
	if err := natsconn.CheckSigner(conn, cfg.Signer); err != nil {
		bad = append(bad, err)
	}
	subjects, err := subject.New(cfg.Prefix)
	if err != nil {
		bad = append(bad, err)
	}
	if cfg.Entity == "" {
		cfg.Entity = "service.aeemesh"
	} else if err := subject.ValidateEntity(cfg.Entity); err != nil {
		bad = append(bad, err)
	}
	cfg.Skew = orDefault(cfg.Skew, DefaultSkew)
	cfg.ReplayWindow = ReplayWindow(cfg.ReplayWindow, cfg.Skew)
	cfg.MaxTimeout = orDefault(cfg.MaxTimeout, DefaultMaxTimeout)
	cfg.DefaultTimeout = min(orDefault(cfg.DefaultTimeout, DefaultTimeout), cfg.MaxTimeout)
	cfg.Drain = orDefault(cfg.Drain, DefaultDrain)
	cfg.Heartbeat = orDefault(cfg.Heartbeat, DefaultHeartbeat)
	if cfg.Tree, err = cfg.Tree.normal(); err != nil {
		bad = append(bad, err)
	}
	if cfg.MaxHandoffs == 0 {
		cfg.MaxHandoffs = DefaultMaxHandoffs
	}
	if cfg.MaxHandoffs < 0 || cfg.MaxHandoffs > chain.Max {
		bad = append(bad, fmt.Errorf("MaxHandoffs is %d, must be 1 to %d", cfg.MaxHandoffs, chain.Max))
	}
	if cfg.MaxTimeout < 0 || cfg.DefaultTimeout < 0 {
		bad = append(bad, errors.New("MaxTimeout and DefaultTimeout cannot be negative"))
	}
	if cfg.Version == "" {
		cfg.Version = "0.0.0"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Durable != nil {
		if cfg.Durable, err = cfg.Durable.normal(); err != nil {
			bad = append(bad, err)
		}
	}
	tel, err := newTelemetry(cfg.TracerProvider, cfg.MeterProvider)
	if err != nil {
		bad = append(bad, err)
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("mesh node: %w", errors.Join(bad...))
	}
	n := &Node{
		conn: conn, cfg: cfg, subjects: subjects, log: cfg.Logger, tel: tel,
		quotas: quota.New(cfg.Quotas), journal: newJournal(), limits: cfg.Limits, replies: rpc.New(conn),
	}
	n.heads.counters = n.counters
	n.holders.node, n.steady.conn = n, conn
	n.starting = make(chan struct{}, startAtOnce)
	n.services.node, n.beats.node, n.tender.node = n, n, n
	n.told.conn, n.asked.conn = conn, conn
	if d := cfg.Durable; d != nil && d.Create && !d.fenced {
		n.notifier = d.Queue.NewNotifier()
	}
	n.defaultRequires = envelope.Requirements{Timeout: cfg.DefaultTimeout}.AppendJSON(nil)
	if n.limits.MaxBytes <= 0 {
		n.limits.MaxBytes = int(conn.MaxPayload())
	}
	if cfg.ReplayWindow > 0 {
		n.replay = sign.NewReplay(cfg.ReplayWindow)
	}
	return n, nil
}

// startAtOnce bounds the agents that start at the same time.
const startAtOnce = 32

// ReplayWindow is the window that a node keeps which is configured with the
// given window and skew. A window that is set is taken at its word. The default
// is 2 minutes, or as long as an envelope's ts can stay within the skew bound,
// if that is longer: an envelope that is not stale yet must not be forgotten.
func ReplayWindow(window, skew time.Duration) time.Duration {
	if window != 0 {
		return window
	}
	return max(DefaultReplayWindow, 2*orDefault(skew, DefaultSkew))
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// Conn is the node's NATS connection.
func (n *Node) Conn() *nats.Conn { return n.conn }

// Subjects maps entities to this mesh's subjects.
func (n *Node) Subjects() subject.Map { return n.subjects }

// Durable is the node's durable lane with its defaults filled in, nil where it has
// none. Its streams may not be there yet: see [Durable].Ready.
func (n *Node) Durable() *Durable { return n.cfg.Durable }

// Entity is who the node speaks as.
func (n *Node) Entity() string { return n.cfg.Entity }

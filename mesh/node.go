package mesh

import (
	"context"
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
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/beats"
	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
	"github.com/aeemesh/aeemesh/mesh/internal/calls"
	"github.com/aeemesh/aeemesh/mesh/internal/chain"
	"github.com/aeemesh/aeemesh/mesh/internal/holders"
	"github.com/aeemesh/aeemesh/mesh/internal/journal"
	"github.com/aeemesh/aeemesh/mesh/internal/listen"
	"github.com/aeemesh/aeemesh/mesh/internal/probe"
	"github.com/aeemesh/aeemesh/mesh/internal/quota"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/telemetry"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/platform"
)

// The stores of package jetstream implement these interfaces.
var (
	_ Journal     = (*jetstream.Journal)(nil)
	_ Seen        = (*jetstream.Seen)(nil)
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
// Concurrent callers get the same holder. After an error the holder is unknown.
type Seen interface {
	Claim(ctx context.Context, entity, id, by string) (holder string, err error)
}

// Journal stores envelopes beyond the memory of one process. Post must return at once,
// whether or not the envelope gets stored. Get fails with [jetstream.ErrNotFound] if the
// journal does not have the envelope.
type Journal interface {
	Post(entity, id string, raw []byte) error
	Get(ctx context.Context, entity, id string) ([]byte, error)
}

// Refutations stores which contexts were refuted to an entity, beyond the memory of one
// process.
type Refutations interface {
	Add(ctx context.Context, entity, id string, record []byte) error
	List(ctx context.Context, entity, id string) ([][]byte, error)
}

// Quotas limit the tasks that one sender may send to one process, per lane.
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

// Node connects this process to the mesh. It has a NATS connection, an identity and the
// rules for incoming messages. It serves agents and sends tasks. Its methods may be called
// from many goroutines.
type Node struct {
	*client.Client     // sends tasks and commands, and reads results and inboxes
	*platform.Platform // exchanges runs with other platforms, and starts runs from checkpoints

	conn     *nats.Conn
	cfg      Config
	subjects subject.Map
	log      *slog.Logger
	replay   *sign.Replay
	quotas   *quota.Table
	alerts   alertLimiter
	tel      *telemetry.Telemetry
	journal  *journal.Journal
	answers  answers.Reader
	sender   *sender.Sender
	limits   envelope.Limits
	refuted  journal.Refutations
	replies  *rpc.Exchanger
	holders  *holders.Watch
	prober   *probe.Prober
	calls    *calls.Node
	trees    *bounds.Keeper
	hosts    hosts
	starting chan struct{} // bounds the agents that start at once: the requests of a start have time limits
	services services
	beats    *beats.Beats[*host]
	told     *listen.Shared // control and monitoring messages
	asked    *listen.Shared // plain text
	clock    serverClock
	tender   tender
	notifier *jetstream.Notifier // wakes lanes; nil: they do not sleep

}

// New makes a node on a connection that the caller owns and closes. It does
// no I/O. All faults of the configuration are reported at once.
func New(conn *nats.Conn, cfg Config) (*Node, error) {
	var bad []error
	if conn == nil {
		bad = append(bad, errors.New("a NATS connection is needed"))
	}
	if conn != nil && !IsReplyInbox(conn.NewInbox()) {
		bad = append(bad, fmt.Errorf("the connection's reply subjects look like %s: set an inbox prefix that begins with \"_\", such as _INBOX_ada, because workers answer only on inbox subjects", clip.Text(conn.NewInbox(), 128)))
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
	if cfg.Tree, err = cfg.Tree.WithDefaults(); err != nil {
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
	tel, err := telemetry.New(cfg.TracerProvider, cfg.MeterProvider)
	if err != nil {
		bad = append(bad, err)
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("mesh node: %w", errors.Join(bad...))
	}
	n := &Node{
		conn: conn, cfg: cfg, subjects: subjects, log: cfg.Logger, tel: tel,
		quotas: quota.New(cfg.Quotas), journal: journal.New(cfg.Journal, cfg.Logger), limits: cfg.Limits, replies: rpc.New(conn),
	}
	n.trees = bounds.NewKeeper(cfg.Tree, n.counters, n.log)
	n.prober = probe.New(conn)
	n.holders = holders.New(holders.Config{Conn: conn, Prober: n.prober, Fail: n.replies.Fail})
	n.starting = make(chan struct{}, startAtOnce)
	n.services.node, n.tender.node = n, n
	n.beats = beats.New(cfg.Heartbeat, func(h *host) { h.events.announce(intents.AgentHeartbeat) })
	n.told, n.asked = listen.NewShared(conn), listen.NewShared(conn)
	if d := cfg.Durable; d != nil && d.Create && !d.fenced {
		n.notifier = d.Queue.NewNotifier()
	}
	if n.limits.MaxBytes <= 0 {
		n.limits.MaxBytes = int(conn.MaxPayload())
	}
	n.answers = answers.Reader{Limits: n.limits, Verifier: cfg.Verifier, Log: n.log}
	if cfg.Durable != nil {
		n.answers.Operators = cfg.Durable.Operators
	}
	n.sender = &sender.Sender{
		Conn: conn, Subjects: subjects, Prefix: cfg.Prefix, Signer: cfg.Signer,
		Answers: n.answers, Replies: n.replies, Holders: n.holders, Journal: n.journal, Log: n.log,
	}
	sending := client.Config{Sender: n.sender, Entity: cfg.Entity, DefaultTimeout: cfg.DefaultTimeout, Skew: cfg.Skew, Tracer: tel.Tracer}
	if d := cfg.Durable; d != nil {
		sending.Stores = &client.Stores{Queue: d.Queue, Replies: d.Replies, States: d.States, Clock: d.Clock, Inbox: d.Inbox, Codec: d.Codec, Available: d.Available}
	}
	n.Client = client.New(sending)
	n.calls = &calls.Node{Client: n.Client, Sender: n.sender, Answers: n.answers, Stores: sending.Stores, MaxTimeout: cfg.MaxTimeout, Now: n.clock.now, Tracer: tel.Tracer}
	exchange := platform.Config{Client: n.Client, Entity: cfg.Entity, Stores: sending.Stores, Version: cfg.Version, Answers: n.answers}
	if cfg.Durable != nil {
		exchange.Name = cfg.Durable.Platform
	}
	n.Platform = platform.New(exchange)
	if cfg.ReplayWindow > 0 {
		n.replay = sign.NewReplay(cfg.ReplayWindow)
	}
	return n, nil
}

// startAtOnce bounds the agents that start at the same time.
const startAtOnce = 32

// ReplayWindow returns the effective replay window for a configured window and skew. A window
// other than 0 is used unchanged. The default is 2 minutes, or the time for which an
// envelope's ts can stay within the skew bound, if that is longer: an envelope that is not
// stale yet must not be forgotten.
func ReplayWindow(window, skew time.Duration) time.Duration {
	if window != 0 {
		return window
	}
	return max(DefaultReplayWindow, 2*orDefault(skew, DefaultSkew))
}

// Conn returns the node's NATS connection.
func (n *Node) Conn() *nats.Conn { return n.conn }

// Subjects returns the map from entities to the subjects of this mesh.
func (n *Node) Subjects() subject.Map { return n.subjects }

// Durable returns the configuration of the node's durable lane with its defaults filled in,
// nil if the node has no durable lane. The streams may not exist yet: see [Durable].Ready.
func (n *Node) Durable() *Durable { return n.cfg.Durable }

// Entity returns Config.Entity.
func (n *Node) Entity() string { return n.cfg.Entity }

package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"

	"github.com/nats-io/nats.go"

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
	"github.com/aeemesh/aeemesh/mesh/internal/bus"
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
	"github.com/aeemesh/aeemesh/mesh/internal/tender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/platform"
	"github.com/aeemesh/aeemesh/state"
)

// Node connects this process to the mesh. It has a NATS connection, an identity and the
// rules for incoming messages. It serves agents and sends tasks. Its methods may be called
// from many goroutines.
type Node struct {
	*client.Client     // sends tasks and commands, and reads results and inboxes
	*platform.Platform // exchanges runs with other platforms, and starts runs from checkpoints

	conn      *nats.Conn
	cfg       Config
	subjects  subject.Map
	log       *slog.Logger
	replay    *sign.Replay
	quotas    *quota.Table
	bus       *bus.Bus
	tel       *telemetry.Telemetry
	journal   *journal.Journal
	answers   answers.Reader
	sender    *sender.Sender
	limits    envelope.Limits
	refuted   journal.Refutations
	replies   *rpc.Exchanger
	holders   *holders.Watch
	prober    *probe.Prober
	calls     *calls.Node
	trees     *bounds.Keeper
	hosts     hosts
	starting  chan struct{} // bounds the agents that start at once: the requests of a start have time limits
	services  services
	beats     heartbeats
	control   *listen.Shared // control and monitoring messages
	plainText *listen.Shared // plain text
	clock     serverClock
	tender    *tender.Tender      // nil: live only
	notifier  *jetstream.Notifier // wakes lanes; nil: they do not sleep
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
	cfg.Entity = cmp.Or(cfg.Entity, "service.aeemesh")
	if err := subject.ValidateEntity(cfg.Entity); err != nil {
		bad = append(bad, err)
	}
	cfg.Skew = cmp.Or(cfg.Skew, DefaultSkew)
	cfg.ReplayWindow = ReplayWindow(cfg.ReplayWindow, cfg.Skew)
	cfg.MaxTimeout = cmp.Or(cfg.MaxTimeout, DefaultMaxTimeout)
	cfg.DefaultTimeout = min(cmp.Or(cfg.DefaultTimeout, DefaultTimeout), cfg.MaxTimeout)
	cfg.Drain = cmp.Or(cfg.Drain, DefaultDrain)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, DefaultHeartbeat)
	if cfg.Tree, err = cfg.Tree.WithDefaults(); err != nil {
		bad = append(bad, err)
	}
	cfg.MaxHandoffs = cmp.Or(cfg.MaxHandoffs, DefaultMaxHandoffs)
	if cfg.MaxHandoffs < 0 || cfg.MaxHandoffs > chain.Max {
		bad = append(bad, fmt.Errorf("MaxHandoffs is %d, must be 1 to %d", cfg.MaxHandoffs, chain.Max))
	}
	if cfg.MaxTimeout < 0 || cfg.DefaultTimeout < 0 {
		bad = append(bad, errors.New("MaxTimeout and DefaultTimeout cannot be negative"))
	}
	cfg.Version = cmp.Or(cfg.Version, wire.NoVersion)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
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
		quotas: quota.New(cfg.Quotas), journal: journal.New(cfg.Journal, cfg.Logger), limits: cfg.Limits, replies: rpc.Of(conn),
	}
	n.trees = bounds.NewKeeper(cfg.Tree, n.counters, n.log)
	n.prober = probe.Of(conn)
	n.holders = holders.New(holders.Config{Conn: conn, Prober: n.prober, Fail: n.replies.Fail})
	n.starting, n.clock.first = make(chan struct{}, startAtOnce), make(chan struct{}, 1)
	n.services.node = n
	n.beats = beats.New(cfg.Heartbeat, func(h *host) { h.events.announce(intents.AgentHeartbeat) })
	n.control, n.plainText = listen.NewShared(conn), listen.NewShared(conn)
	if n.limits.MaxBytes <= 0 {
		n.limits.MaxBytes = int(conn.MaxPayload())
	}
	n.answers = answers.Reader{Limits: n.limits, Verifier: cfg.Verifier, Log: n.log}
	if d := cfg.Durable; d != nil {
		n.tender, n.answers.Operators = n.newTender(), d.Operators
		if d.Create && !d.fenced {
			n.notifier = d.Queue.NewNotifier()
		}
	}
	n.sender = &sender.Sender{
		Conn: conn, Subjects: subjects, Prefix: cfg.Prefix, Signer: cfg.Signer,
		Answers: n.answers, Replies: n.replies, Holders: n.holders, Journal: n.journal, Log: n.log,
	}
	n.bus = &bus.Bus{Subjects: subjects, Publish: n.sender.Publish}
	sending := client.Config{Sender: n.sender, Entity: cfg.Entity, DefaultTimeout: cfg.DefaultTimeout, Skew: cfg.Skew, Tracer: tel.Tracer}
	exchange := platform.Config{Entity: cfg.Entity, Version: cfg.Version, Answers: n.answers, Sendable: func(size int) error { return n.sendable(size, 0) }}
	if d := cfg.Durable; d != nil {
		exchange.Name = d.Platform
		sending.Stores = &client.Stores{Queue: d.Queue, Replies: d.Replies, Dead: d.Dead, States: d.States, Clock: d.Clock, Inbox: d.Inbox, Codec: d.Codec, Available: d.Available}
	}
	n.Client = client.New(sending)
	n.calls = &calls.Node{Client: n.Client, Sender: n.sender, Answers: n.answers, Stores: sending.Stores, MaxTimeout: cfg.MaxTimeout, Now: n.clock.now, Tracer: tel.Tracer}
	exchange.Client, exchange.Stores = n.Client, sending.Stores
	n.Platform = platform.New(exchange)
	if cfg.ReplayWindow > 0 {
		n.replay = sign.NewReplay(cfg.ReplayWindow)
	}
	return n, nil
}

// startAtOnce bounds the agents that start at the same time.
const startAtOnce = 32

// Conn returns the node's NATS connection.
func (n *Node) Conn() *nats.Conn { return n.conn }

// Subjects returns the map from entities to the subjects of this mesh.
func (n *Node) Subjects() subject.Map { return n.subjects }

// Durable returns the configuration of the node's durable lane with its defaults filled in,
// nil if the node has no durable lane. The streams may not exist yet: see [Durable].Ready.
func (n *Node) Durable() *Durable { return n.cfg.Durable }

// Entity returns Config.Entity.
func (n *Node) Entity() string { return n.cfg.Entity }

// durable returns the node's durable lane, nil if it has none or the streams do not
// exist yet.
func (n *Node) durable() *Durable {
	if d := n.cfg.Durable; d != nil && d.Available() {
		return d
	}
	return nil
}

// counters returns the mesh's shared counters, nil if there are none. They are kept in a
// stream, so there are none before the streams exist; then this process counts alone.
func (n *Node) counters() Counters {
	if d := n.cfg.Durable; d != nil && !d.Available() {
		return nil
	}
	return n.cfg.Counters
}

// newTender returns the tender of the node's lanes.
func (n *Node) newTender() *tender.Tender {
	d := n.cfg.Durable
	cfg := tender.Config{
		Log: n.log, Reconnects: func() uint64 { return n.conn.Stats().Reconnects }, States: d.States, Sweep: d.Sweep, Filled: n.tel.Lane.Filled,
		Beside: func(ctx context.Context) { n.clock.tend(ctx, d.Clock) },
	}
	if !d.fenced {
		cfg.OpenAll = func(ctx context.Context) iter.Seq2[state.Record, error] { return d.States.Open(ctx, "") }
	}
	return tender.New(cfg)
}

package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/orchestrate/directory"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// Worker hosts agents. [New] makes one.
type Worker struct {
	cfg       Config
	log       *slog.Logger
	adapters  *adapters.Set
	agents    []*hosted
	directory *directory.Directory
	counters  lateCounters
	conn      atomic.Pointer[nats.Conn]
	node      atomic.Pointer[mesh.Node]
	refused   chan error // a permission violation that ends the worker
	served    atomic.Bool
	later     sync.WaitGroup // what goes on until the worker stops

	again func(context.Context) bool // waits until the next attempt to publish templates that could not be published
}

// New reads the documents and makes the agents. It connects to nothing.
func New(cfg Config) (*Worker, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Options.Logger = cmp.Or(cfg.Options.Logger, cfg.Logger)
	cfg.Node.Logger = cmp.Or(cfg.Node.Logger, cfg.Logger)
	cfg.Hooks = cfg.Hooks.withLog(cfg.Logger)
	cfg.Wait = cmp.Or(cfg.Wait, defaultWait)
	if cfg.ReadFile == nil {
		cfg.ReadFile = readFile
	}
	w := &Worker{cfg: cfg, log: cfg.Logger, adapters: cfg.Adapters, refused: make(chan error, 1), again: untilPublished}
	if err := w.adapt(); err != nil {
		return nil, err
	}
	w.directory = directory.New(directory.Config{Policy: w.adapters.Policy(), RegisteredSkills: w.adapters.RegisteredSkills(), Logger: w.log})
	err := w.makeAgents()
	if err == nil {
		err = w.sign()
	}
	if err != nil {
		return nil, errors.Join(err, w.release())
	}
	return w, nil
}

// adapt has the agents use the Go tools, and the adapters, which it makes if
// there are none.
func (w *Worker) adapt() error {
	opts := &w.cfg.Options
	if len(w.cfg.Tools) > 0 {
		all := w.cfg.Tools
		if opts.Tools != nil {
			all = append(opts.Tools.Tools(), all...)
		}
		opts.Tools = &tool.Registry{}
		if err := opts.Tools.Add(all...); err != nil {
			return &ConfigError{"Tools", err}
		}
	}
	open := opts.Open
	if w.cfg.Adapters == nil {
		set, err := adapters.New(adapters.Config{Budget: opts.Budget}, adapters.Options{Version: w.cfg.Node.Version, Env: w.cfg.Env, Logger: w.log})
		if err != nil {
			return &ConfigError{"Adapters", err}
		}
		w.adapters = set
	} else {
		w.cfg.Node.Tree, open = w.adapters.Tree(), nil
	}
	w.adapters.Use(opts)
	if open != nil {
		opts.Open = open
	}
	opts.Counters = &w.counters
	if d := w.cfg.Node.Durable; d != nil && opts.StateKeys == nil {
		opts.StateKeys = d.Codec.Seal
	}
	if opts.Telemetry.Tracer == nil {
		opts.Telemetry.Tracer = w.cfg.Node.TracerProvider
	}
	if opts.Telemetry.Meter == nil {
		opts.Telemetry.Meter = w.cfg.Node.MeterProvider
	}
	return nil
}

// sign gives each agent its signing key. If every agent has a key, the node signs its own
// envelopes with the first agent's. If an agent has none, the node gets no key either: the agent
// would sign with it, and the key may not speak for that agent.
func (w *Worker) sign() error {
	w.cfg.Node.Entity = cmp.Or(w.cfg.Node.Entity, w.agents[0].Entity)
	if w.cfg.Signer == nil {
		return nil
	}
	for _, h := range w.agents {
		var err error
		if h.Signer, err = w.cfg.Signer(h.Entity); err != nil {
			return err
		}
	}
	w.cfg.Node.Signer = nil
	if !slices.ContainsFunc(w.agents, func(h *hosted) bool { return h.Signer == nil }) {
		w.cfg.Node.Signer = w.agents[0].Signer
	}
	return nil
}

// release closes the adapters that New has made.
func (w *Worker) release() error {
	if w.cfg.Adapters != nil {
		return nil
	}
	return w.adapters.Close()
}

// Entities returns the entities of the agents, in the order of the Config.
func (w *Worker) Entities() []string {
	out := make([]string, len(w.agents))
	for i, h := range w.agents {
		out[i] = h.Entity
	}
	return out
}

// Documents returns the documents of the agents that have one.
func (w *Worker) Documents() []*aaif.Document {
	var out []*aaif.Document
	for _, h := range w.agents {
		if h.doc != nil {
			out = append(out, h.doc)
		}
	}
	return out
}

// Run connects to [Config].NATS and serves the agents until ctx ends; see
// [Worker.Serve].
func (w *Worker) Run(ctx context.Context) error {
	c := w.cfg.NATS
	c.Name = cmp.Or(c.Name, "aeemesh worker")
	c.InboxPrefix = cmp.Or(c.InboxPrefix, perms.InboxPrefix(w.Entities()[0]))
	c.Logger = cmp.Or(c.Logger, w.log)
	c.SigningKeys = slices.Clip(c.SigningKeys) // another worker may have the same Config
	for _, h := range w.agents {
		if h.Signer != nil {
			c.SigningKeys = append(c.SigningKeys, h.Signer.Key())
		}
	}
	if s := w.cfg.Node.Signer; s != nil {
		c.SigningKeys = append(c.SigningKeys, s.Key())
	}
	conn, err := natsconn.Connect(ctx, c)
	if err != nil {
		return errors.Join(err, w.release())
	}
	defer conn.Close()
	err = w.Serve(ctx, conn)
	if flushed := conn.FlushTimeout(flushTime); flushed != nil && conn.IsConnected() {
		w.log.Warn("what was sent last may be lost", "err", flushed)
	}
	return err
}

// flushTime is how long the server may take to receive what was sent last.
const flushTime = 2 * time.Second

// Serve serves the agents on a connection, which the caller closes, until ctx ends. Then it
// drains, for at most Config.Node.Drain, and returns nil if nothing was lost. It fails if an agent
// cannot be served, or if it finds out later that a schema_id is taken; then it stops the other
// agents. A worker serves once.
func (w *Worker) Serve(ctx context.Context, conn *nats.Conn) (err error) {
	if conn == nil {
		return errors.New("serve: a NATS connection is needed")
	}
	if w.served.Swap(true) {
		return errors.New("a worker serves once")
	}
	defer func() { err = errors.Join(err, w.release()) }()
	ctx, end := context.WithCancelCause(ctx)
	defer func() { end(nil); w.later.Wait() }() // nothing waits for the durable lane any more
	w.conn.Store(conn)
	defer denial.Listen(conn, w.denied)()
	node, js, err := w.newNode(ctx, conn)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	w.node.Store(node)
	var waiting atomic.Int32 // agents that are not served yet
	waiting.Store(int32(len(w.agents)))
	for _, h := range w.agents {
		w.identify(h.Agent)
		accepted := h.Accept(node)
		w.cfg.Hooks.Notices(h.Entity, h.Notices)
		if accepted != nil {
			return accepted
		}
		serving, err := w.serving(node, h.Agent)
		if err != nil {
			return err
		}
		h.Ready = func() {
			w.cfg.Hooks.Serving(serving())
			if waiting.Add(-1) == 0 {
				w.cfg.Hooks.Ready(w.Entities())
			}
		}
	}
	endTeams, err := w.connectTeams(ctx, node, js)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer endTeams()
	endTemplates, err := w.learnTemplates(ctx, end, node, js)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer endTemplates()
	told := make(chan struct{})
	undrained := context.AfterFunc(ctx, func() { defer close(told); w.cfg.Hooks.Draining() })
	defer func() {
		if !undrained() {
			<-told
		}
	}()
	err = w.serve(ctx, node)
	if why := (*ConfigError)(nil); errors.As(context.Cause(ctx), &why) {
		err = errors.Join(why, err)
	}
	return err
}

// unlessStopped returns the error of a step that asks the server before the agents are served, or nil
// if the worker was stopped meanwhile: then the step has found out nothing.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

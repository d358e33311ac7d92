package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nuid"

	"github.com/aeemesh/aeemesh/envelope/pattern"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/calls"
	"github.com/aeemesh/aeemesh/mesh/internal/deadlines"
	"github.com/aeemesh/aeemesh/mesh/internal/payloads"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/telemetry"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

var semver = pattern.Of(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// Serve serves the agent until ctx ends. Then it drains: it accepts no more tasks, refuses
// live tasks that have not begun (E_DRAINING, retryable) and returns durable ones to the
// queue, waits up to Config.Drain for the tasks that have begun, and returns. It owns every
// goroutine that it starts.
func (n *Node) Serve(ctx context.Context, agent Agent) error {
	h, err := n.newHost(agent)
	if err != nil {
		return err
	}
	select {
	case n.starting <- struct{}{}:
		if err = ctx.Err(); err == nil {
			err = h.start(ctx)
		}
		<-n.starting
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // it was stopped before its turn came, or before the server answered
	case err != nil:
		return fmt.Errorf("serve %s: %w", agent.Entity, err)
	}
	defer n.hosts.add(h)()
	h.events.announce(intents.AgentJoined)
	h.quieten = n.beats.Add(h) // a heartbeat comes after it
	if h.Ready != nil {
		h.Ready()
	}
	<-ctx.Done()
	return h.stop()
}

func (n *Node) newHost(a Agent) (*host, error) {
	var bad []error
	h := &host{node: n, id: nuid.Next(), started: time.Now()}
	h.intake, h.controls, h.reserved = intake{h}, controls{h}, reservedIntents{h}
	err := subject.ValidateServed(a.Entity)
	if err == nil {
		h.live, h.ask, h.ctl, err = n.subjects.Lanes(a.Entity)
	}
	bad = append(bad, err)
	if f, isFunc := a.Handler.(HandlerFunc); a.Handler == nil || isFunc && f == nil {
		bad = append(bad, errors.New("a handler is needed"))
	}
	a.Concurrency, a.Queue = cmp.Or(a.Concurrency, DefaultConcurrency), cmp.Or(a.Queue, DefaultQueue)
	if a.Concurrency < 0 {
		bad = append(bad, fmt.Errorf("concurrency %d: must be at least 1", a.Concurrency))
	}
	if a.Intents == nil {
		a.Intents = intents.NewRegistry()
	}
	if err := natsconn.CheckSigner(n.conn, a.Signer); err != nil {
		bad = append(bad, err)
	}
	a.Signer, a.TraceHeader, a.Version = cmp.Or(a.Signer, n.cfg.Signer), cmp.Or(a.TraceHeader, wire.HeaderTraceParent), cmp.Or(a.Version, wire.NoVersion)
	bad = append(bad, CheckTraceHeader(a.TraceHeader))
	if !semver.RE().MatchString(a.Version) {
		bad = append(bad, fmt.Errorf("version %q is not a semantic version (example: 1.0.0)", a.Version))
	}
	if err := a.Retry.check(); err != nil {
		bad = append(bad, err)
	}
	if a.MeshConcurrency < 0 {
		bad = append(bad, fmt.Errorf("concurrency in the mesh %d: cannot be negative", a.MeshConcurrency))
	}
	if (a.Async || a.MeshConcurrency > 0) && (n.cfg.Durable == nil || a.LiveOnly) {
		bad = append(bad, errors.New("Async and MeshConcurrency need the durable lane"))
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	h.Agent = a
	h.payloads = payloads.Agent{Intents: a.Intents, Default: a.DefaultIntent, RefuseUnknown: a.RefuseUnknown, Formats: a.Formats}
	h.log = cmp.Or(a.Logger, n.log).With("entity", a.Entity)
	h.calls = calls.Agent{Node: n.calls, Entity: a.Entity, Signer: a.Signer, Log: h.log}
	h.tracer = n.tel.Tracer
	if a.Tracer != nil {
		h.tracer = a.Tracer.Tracer(telemetry.Scope)
	}
	h.queue = sched.NewQueue[*Task](max(0, a.Queue) + a.Concurrency)
	h.running = &deadlines.List[*Task]{Overdue: h.overdue, Held: h.nameHolder}
	if n.cfg.ReplayWindow > 0 {
		h.controlReplay = sign.NewReplay(n.cfg.ReplayWindow)
	}
	h.verify = sched.NewCrew(verifiers(n.cfg.Seen != nil), max(64, a.Queue))
	h.control = sched.NewCrew(1, 256)
	h.lookups = sched.NewCrew(lookers, 256)
	h.beside = sched.NewCrew(atOnceMost, 256)
	h.contexts, h.documents = h.newContexts(), h.newDocuments()
	h.taskScope, h.stopTasks = context.WithCancel(context.Background())
	if n.cfg.Durable != nil && !a.LiveOnly {
		l, err := h.newLane()
		if err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
		h.durable = l
	}
	h.service, h.events = h.newService(), h.newEvents()
	return h, nil
}

package mesh

import (
	"time"

	"github.com/aeemesh/aeemesh/mesh/internal/service"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// endpoint is the endpoint of the agent's service that the task came to.
func (t *Task) endpoint() int {
	switch {
	case t.run != nil:
		return service.Work
	case t.ask:
		return service.Ask
	}
	return service.Task
}

// ran returns for how long the task has run; 0: it did not begin.
func (t *Task) ran() time.Duration {
	if waited := t.waited.Load(); waited > 0 {
		return time.Since(t.queued) - time.Duration(waited)
	}
	return 0
}

// newService returns the agent as a NATS micro service (internal/service).
func (h *host) newService() *service.Service {
	n := h.node
	cfg := service.Config{
		Entity: h.Entity, ID: h.id, Version: h.Version, Description: h.Description, AgentID: h.AgentID, Prefix: n.cfg.Prefix, MeshVersion: n.cfg.Version,
		Concurrency: h.Concurrency, Queue: max(0, h.Queue), Signatures: n.cfg.Verifier.Mode.String(), Scenarios: h.Scenarios, Metadata: h.Metadata,
		Started: h.started.UTC(), QueueGroup: QueueGroup, Live: h.live, Ask: h.ask,
		Intents: func() []string { return h.Intents.List("") }, Durable: h.takesDurable, Counters: h.counters,
		Send: func(to string, body []byte) { n.sender.Publish(to, body, nil) },
		Lane: func() any {
			if l := h.joined(); l != nil {
				status, _, _ := l.report()
				return status
			}
			return nil
		},
	}
	if h.durable != nil {
		cfg.Work, _ = n.subjects.WorkOf(h.Entity) // the entity is valid: see newHost
		if seal := h.documents.Codec.Seal; seal != nil {
			cfg.SealKeys = seal.IDs()
		}
	}
	return service.New(cfg)
}

// Keys of an agent's NATS micro metadata.
const (
	MetaEntity    = wire.MetaEntity
	MetaAgentID   = wire.MetaAgentID
	MetaIntents   = service.MetaIntents // comma-separated, cut after 4096 characters
	MetaPrefix    = wire.MetaPrefix
	MetaScenarios = service.MetaScenarios // comma-separated: the scenarios of the agent's schema templates
	MetaHandoff   = service.MetaHandoff   // "1": the agent accepts delegated tasks
	MetaDurable   = service.MetaDurable   // whether this worker takes durable tasks: see [DurableOn]
	// The worker's signature mode, a [sign.Mode]. A client that requests its health must
	// sign only if the mode is "required".
	MetaSignatures = service.MetaSignatures
	MetaSealed     = wire.MetaSealed   // "1": the checkpoints of its runs are encrypted where they are stored
	MetaSealKeys   = wire.MetaSealKeys // comma-separated: the ids of the keys that this worker reads them with
)

// counters returns the figures for which micro has no field, and the agent's status, for
// clients that have no permission to request aee.status.health.
func (h *host) counters() any {
	c := &h.counts
	var early int64
	if h.node.replay != nil {
		early = h.node.replay.Early()
	}
	return map[string]any{
		"status": h.health().Status, "replay_early": early,
		"running": h.active.Load(), "queued": int64(h.queue.Len()),
		"malformed": c.malformed.Load(), "refused": c.refused.Load(), "busy": c.busy.Load(),
		"replayed": c.replayed.Load(), "unexpected": c.unexpected.Load(), "dropped": c.dropped.Load(),
		"reply_failed": c.replyFailed.Load(), "panics": c.panics.Load(),
	}
}

// Values of [MetaDurable].
const (
	DurableOn      = "on"      // this worker takes durable tasks
	DurableOff     = "off"     // it takes live tasks only
	DurableWaiting = "waiting" // it will take them as soon as the streams exist
	DurableLeft    = "left"    // it submits durable tasks and draws none; see [Agent].SubmitOnly
)

func (h *host) takesDurable() string {
	switch {
	case h.durable == nil:
		return DurableOff
	case h.joined() == nil:
		return DurableWaiting
	case h.SubmitOnly:
		return DurableLeft
	}
	return DurableOn
}

package mesh

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/internal/bus"
	"github.com/aeemesh/aeemesh/state"
)

// The topics of the mesh's own events: bus.mesh.agent, bus.mesh.task,
// bus.mesh.run and bus.mesh.alert.
const (
	BusAgent = bus.TopicAgent
	BusTask  = bus.TopicTask
	BusRun   = bus.TopicRun
	BusAlert = bus.TopicAlert
)

// events publishes what happens to an agent and its tasks (internal/bus).
type events struct {
	bus.Agent
	host *host
}

func (h *host) newEvents() events {
	return events{bus.Agent{Bus: h.node.bus, Entity: h.Entity, Instance: h.id, Signer: h.Signer, FailuresOnly: h.node.cfg.TaskEvents == EventsFailures, Log: h.log}, h}
}

// Broadcast sends an event to bus.<topic>. Payload is a JSON object; corr may be empty.
// Each subscriber gets the event at most once. Stream AEE_BUS stores it if the mesh has
// that stream.
func (n *Node) Broadcast(topic, intent, corr string, payload json.RawMessage) error {
	return n.bus.Broadcast(n.cfg.Entity, n.cfg.Signer, topic, intent, corr, payload, nil, nil)
}

// BroadcastFrom is [Node.Broadcast] in the name of an entity; signer nil: the node's.
func (n *Node) BroadcastFrom(entity string, signer *sign.Signer, topic, intent string, payload json.RawMessage) error {
	if signer == nil {
		signer = n.cfg.Signer
	}
	return n.bus.Broadcast(entity, signer, topic, intent, "", payload, nil, nil)
}

// taskEvent publishes on bus.mesh.task what happens to a task.
func (ev *events) taskEvent(intent string, t *Task, problem *envelope.Error) {
	out := bus.Task{Envelope: t.Envelope, Queued: t.queued}
	if usage := t.usage.Load(); usage != nil {
		out.Usage = *usage
	}
	if r := t.run; r != nil {
		out.Run = r.ID()
		if c := r.checkpoint(); c != nil {
			out.Claimed, out.Epoch, out.Attempt = true, c.Mesh.Epoch, c.Mesh.Attempt+1
			if state.Parked(c.Doc.Status) {
				out.Parked = string(c.Doc.Status)
			}
		}
	}
	if o := t.delegatedTo; o != nil {
		out.To, out.Child = o.To, o.id
	}
	ev.Task(intent, out, problem)
}

// announce publishes an event about the agent on bus.mesh.agent.
func (ev *events) announce(intent string) {
	health := ev.host.health()
	p := bus.Presence{
		AgentID: ev.host.AgentID, Version: ev.host.Version, Status: health.Status,
		Running: ev.host.active.Load(), Queued: ev.host.queue.Len(), Concurrency: ev.host.Concurrency,
		Started: ev.host.started.UTC().Format(envelope.TimeLayout), HeartbeatMS: ev.host.node.beats.Every().Milliseconds(),
	}
	if ev.host.durable != nil {
		p.Details = map[string]any{"durable": health.Details["durable"]}
	}
	for i := range ev.host.service.Stats {
		all, failed := ev.host.service.Stats[i].Answers()
		p.Requests, p.Errors = p.Requests+all, p.Errors+failed
	}
	ev.Announce(intent, p)
}

package bus

import (
	"encoding/json"
	"log/slog"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// The topics of the mesh's own events, see package mesh.
const (
	TopicAgent = "mesh.agent"
	TopicTask  = "mesh.task"
	TopicRun   = "mesh.run"
	TopicAlert = "mesh.alert"
)

// A Bus is the bus as one node publishes on it. It must not be copied.
type Bus struct {
	Subjects subject.Map
	// Publish sends a message. It keeps neither body nor header.
	Publish func(to string, body []byte, header nats.Header) error

	alerts limiter
}

// Broadcast sends an event to bus.<topic>. Payload is a JSON object; corr may be empty, and signer,
// trace and header nil.
func (b *Bus) Broadcast(from string, signer *sign.Signer, topic, intent, corr string, payload, trace json.RawMessage, header nats.Header) error {
	to, err := b.Subjects.Bus(topic)
	if err != nil {
		return err
	}
	e := envelope.New(envelope.TypeEvent, from, "bus."+topic, intent, payload)
	if corr != "" {
		e.Corr = corr
	}
	e.Trace = trace
	if err := wire.CheckIntent(e); err != nil {
		return err
	}
	if signer != nil {
		if err := signer.Sign(e); err != nil {
			return err
		}
	}
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	if *buf, err = e.AppendJSON((*buf)[:0]); err != nil {
		return err
	}
	return b.Publish(to, *buf, header)
}

// An Agent publishes in the name of one agent.
type Agent struct {
	Bus              *Bus
	Entity, Instance string
	Signer           *sign.Signer // nil: unsigned
	FailuresOnly     bool         // of tasks and steps
	Log              *slog.Logger
}

// publish broadcasts an event of the agent, and logs a failure.
func (a *Agent) publish(header nats.Header, topic, intent, corr string, payload, trace json.RawMessage) {
	if err := a.Bus.Broadcast(a.Entity, a.Signer, topic, intent, corr, payload, trace, header); err != nil {
		a.Log.Warn("event not sent", "intent", intent, "corr", corr, "err", err)
	}
}

// shortLived is the header of heartbeats: the stream of broadcasts deletes them after a
// minute. Heartbeats would fill that stream, with some 6 MB a day for each agent and
// worker: with a few hundred workers it would hold hardly an hour of the other events.
// Heartbeats still go to bus.mesh.agent, so that subscribers of the bus get them.
var shortLived = nats.Header{natsjs.MsgTTLHeader: {"60s"}}

// A Presence is the payload of the events on bus.mesh.agent.
type Presence struct {
	Entity      string         `json:"entity"`
	Instance    string         `json:"instance"`
	AgentID     string         `json:"agent_id,omitempty"`
	Version     string         `json:"version"`
	Status      string         `json:"status"`
	Running     int64          `json:"running"`
	Queued      int            `json:"queued"`
	Concurrency int            `json:"concurrency"`
	Requests    int64          `json:"requests"`
	Errors      int64          `json:"errors"`
	Started     string         `json:"started"`
	HeartbeatMS int64          `json:"heartbeat_ms"` // 0: no heartbeats
	Details     map[string]any `json:"details,omitempty"`
}

// Announce publishes an event about the agent on bus.mesh.agent. All announcements of one instance
// share a corr. Announce sets Entity and Instance.
func (a *Agent) Announce(intent string, p Presence) {
	p.Entity, p.Instance = a.Entity, a.Instance
	var header nats.Header
	if intent == intents.AgentHeartbeat {
		header = shortLived
	}
	a.publish(header, TopicAgent, intent, a.Instance, wire.MustJSON(p), nil)
}

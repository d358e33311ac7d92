package mesh

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// The topics of the mesh's own events: bus.mesh.agent, bus.mesh.task,
// bus.mesh.run and bus.mesh.alert.
const (
	BusAgent = "mesh.agent"
	BusTask  = "mesh.task"
	BusRun   = "mesh.run"
	BusAlert = "mesh.alert"
)

// events publishes what happens to an agent and its tasks on the bus.
type events struct{ host *host }

// Broadcast sends an event to bus.<topic>. Payload is a JSON object; corr may be empty.
// Each subscriber gets the event at most once. Stream AEE_BUS stores it if the mesh has
// that stream.
func (n *Node) Broadcast(topic, intent, corr string, payload json.RawMessage) error {
	return n.broadcast(n.cfg.Entity, n.cfg.Signer, topic, intent, corr, payload, nil, nil)
}

// BroadcastFrom is [Node.Broadcast] in the name of an entity; signer nil: the node's.
func (n *Node) BroadcastFrom(entity string, signer *sign.Signer, topic, intent string, payload json.RawMessage) error {
	if signer == nil {
		signer = n.cfg.Signer
	}
	return n.broadcast(entity, signer, topic, intent, "", payload, nil, nil)
}

func (n *Node) broadcast(from string, signer *sign.Signer, topic, intent, corr string, payload, trace json.RawMessage, header nats.Header) error {
	to, err := n.subjects.Bus(topic)
	if err != nil {
		return err
	}
	e := envelope.New(envelope.TypeEvent, from, "bus."+topic, intent, payload)
	if corr != "" {
		e.Corr = corr
	}
	e.Trace = trace
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
	return n.sender.Publish(to, *buf, header)
}

// publishEvent broadcasts an event of the agent, and logs a failure.
func (ev *events) publishEvent(topic, intent, corr string, payload, trace json.RawMessage) {
	ev.publishEventWith(nil, topic, intent, corr, payload, trace)
}

// shortLived is the header of heartbeats: the stream of broadcasts deletes them after a
// minute. Heartbeats would fill that stream, with some 6 MB a day for each agent and
// worker: with a few hundred workers it would hold hardly an hour of the other events.
// Heartbeats still go to bus.mesh.agent, so that subscribers of the bus get them.
var shortLived = nats.Header{natsjs.MsgTTLHeader: {"60s"}}

func (ev *events) publishEventWith(header nats.Header, topic, intent, corr string, payload, trace json.RawMessage) {
	if err := ev.host.node.broadcast(ev.host.Entity, ev.host.Signer, topic, intent, corr, payload, trace, header); err != nil {
		ev.host.log.Warn("event not sent", "intent", intent, "corr", corr, "err", err)
	}
}

// taskEvent publishes on bus.mesh.task what happens to a task. The event never contains
// the task's payload, which is confidential between sender and receiver.
func (ev *events) taskEvent(intent string, t *Task, problem *envelope.Error) {
	if ev.host.node.cfg.TaskEvents == EventsFailures && problem == nil {
		return
	}
	e := t.Envelope
	b := append(make([]byte, 0, 256), `{"task":`...)
	b = envelope.AppendString(b, e.ID)
	b = append(b, `,"intent":`...)
	b = envelope.AppendString(b, e.Intent)
	b = append(b, `,"sender":`...)
	b = envelope.AppendString(b, e.From)
	b = append(b, `,"instance":`...)
	b = envelope.AppendString(b, ev.host.id)
	if e.ReplyTo != "" {
		b = append(b, `,"parent":`...)
		b = envelope.AppendString(b, clip.Text(e.ReplyTo, 128))
	}
	if t.run != nil {
		b = t.run.appendEvent(b)
	}
	if intent != intents.TaskStarted {
		b = append(b, `,"duration_ms":`...)
		b = appendMillis(b, time.Since(t.queued))
	}
	if usage := t.usage.Load(); usage != nil {
		b = append(append(b, `,"usage":`...), *usage...)
	}
	if t.delegatedTo != nil {
		b = t.delegatedTo.appendEvent(b)
	}
	if problem != nil {
		b = append(b, `,"error":`...)
		b = append(b, fault.Public(problem).Payload()...)
	}
	ev.publishEvent(BusTask, intent, e.Corr, append(b, '}'), e.Trace)
}

// appendMillis writes a duration as milliseconds with three decimals.
func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d.Microseconds())/1000, 'f', -1, 64)
}

// presence is the payload of the events on bus.mesh.agent.
type presence struct {
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

// announce publishes an event about the agent on bus.mesh.agent. All announcements of
// one instance share a corr.
func (ev *events) announce(intent string) {
	health := ev.host.health()
	p := presence{
		Entity: ev.host.Entity, Instance: ev.host.id, AgentID: ev.host.AgentID, Version: ev.host.Version, Status: health.Status,
		Running: ev.host.active.Load(), Queued: ev.host.queue.Len(), Concurrency: ev.host.Concurrency,
		Started: ev.host.started.Format(envelope.TimeLayout), HeartbeatMS: ev.host.node.beats.Every().Milliseconds(),
	}
	if ev.host.durable != nil {
		p.Details = map[string]any{"durable": health.Details["durable"]}
	}
	for i := range ev.host.service.Stats {
		all, failed := ev.host.service.Stats[i].Answers()
		p.Requests, p.Errors = p.Requests+all, p.Errors+failed
	}
	var header nats.Header
	if intent == intents.AgentHeartbeat {
		header = shortLived
	}
	ev.publishEventWith(header, BusAgent, intent, ev.host.id, wire.MustJSON(p), nil)
}

// alertLimiter allows one alert a second for each agent and error code and counts the
// rest, so that a flood of bad messages does not flood the bus.
type alertLimiter struct {
	mu   sync.Mutex
	seen map[string]*alertCount
}

type alertCount struct {
	last       time.Time
	suppressed int
}

const maxAlertKinds = 1024

func (l *alertLimiter) allow(kind string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.seen[kind]
	if c == nil {
		if len(l.seen) >= maxAlertKinds || l.seen == nil {
			l.seen = map[string]*alertCount{}
		}
		c = &alertCount{}
		l.seen[kind] = c
	}
	if now.Sub(c.last) < time.Second {
		c.suppressed++
		return 0, false
	}
	suppressed, c.last, c.suppressed = c.suppressed, now, 0
	return suppressed, true
}

// alert publishes on bus.mesh.alert that an envelope was refused for a reason that may
// be an attack or a wrong configuration of keys.
func (ev *events) alert(env *envelope.Envelope, problem *envelope.Error) {
	suppressed, ok := ev.host.node.alerts.allow(ev.host.Entity+" "+string(problem.Code), time.Now())
	if !ok {
		return
	}
	ev.host.log.Warn("envelope refused", "id", env.ID, "corr", env.Corr, "intent", env.Intent, "from", env.From, "to", env.To, "type", string(env.Type), "priority", string(env.Priority), "code", string(problem.Code))
	ev.publishEvent(BusAlert, intents.AlertRaised, env.Corr, wire.MustJSON(struct {
		Code       envelope.Code `json:"code"`
		Message    string        `json:"message"`
		ID         string        `json:"id"`
		From       string        `json:"sender"`
		Intent     string        `json:"intent"`
		Instance   string        `json:"instance"`
		Suppressed int           `json:"suppressed,omitempty"`
	}{problem.Code, problem.Message, clip.Text(env.ID, 128), clip.Text(env.From, 128), clip.Text(env.Intent, 128), ev.host.id, suppressed}), nil)
}

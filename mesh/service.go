package mesh

import (
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// The endpoints of an agent's NATS service.
const (
	endpointTask = iota // the live lane
	endpointAsk         // plain text
	endpointWork        // the durable lane
	numEndpoints
)

func (t *Task) endpoint() int {
	switch {
	case t.run != nil:
		return endpointWork
	case t.ask:
		return endpointAsk
	}
	return endpointTask
}

// endpointStats are the stats of an endpoint in the sense of NATS micro. The library's own
// service runs handlers one after the other and measures only them. An agent's tasks run
// concurrently, so the agent keeps its own counters.
type endpointStats struct {
	requests, errors atomic.Int64
	busyFor          atomic.Int64 // nanoseconds from begun to answered
	lastError        atomic.Pointer[string]
}

func (s *endpointStats) record(t *Task, problem *envelope.Error) {
	if waited := t.waited.Load(); waited > 0 { // 0: the task did not begin
		s.busyFor.Add(int64(time.Since(t.queued)) - waited)
	}
	s.count(problem)
}

// count counts one answer. Refusals count, too, so that NATS tools show all errors that
// senders got.
func (s *endpointStats) count(problem *envelope.Error) {
	s.requests.Add(1)
	if problem != nil {
		s.errors.Add(1)
		text := string(problem.Code) + ":" + headerText(problem.Message)
		s.lastError.Store(&text)
	}
}

// probeBody is the body of a ping that only asks whether the worker is connected. It is
// answered without a body, which costs much less.
const probeBody = "probe"

// microVerbs are the verbs of the NATS service protocol (ADR-32).
var microVerbs = [...]micro.Verb{micro.PingVerb, micro.InfoVerb, micro.StatsVerb}

// monitor answers one of microVerbs.
func (h *host) monitor(verb int) nats.MsgHandler {
	return func(msg *nats.Msg) {
		if msg.Reply == "" {
			return
		}
		var answer any
		switch microVerbs[verb] {
		case micro.PingVerb:
			if string(msg.Data) == probeBody {
				h.node.publish(msg.Reply, nil, nil)
				return
			}
			answer = micro.Ping{ServiceIdentity: h.identity(), Type: micro.PingResponseType}
		case micro.InfoVerb:
			answer = h.serviceInfo()
		default:
			answer = h.serviceStats()
		}
		h.node.publish(msg.Reply, mustJSON(answer), nil)
	}
}

// monitored calls each with the subjects on which "nats micro" requests data about the
// agent: for each verb the subject of services with the agent's name, and the subject of
// this instance. See [services] for requests to all services.
func (h *host) monitored(each func(subject string, handle nats.MsgHandler)) {
	name := subject.ServiceName(h.Entity)
	for i, verb := range microVerbs {
		for _, id := range []string{"", h.id} {
			if s, err := micro.ControlSubject(verb, name, id); err == nil {
				each(s, h.monitor(i))
			}
		}
	}
}

func (h *host) identity() micro.ServiceIdentity {
	meta := map[string]string{
		MetaEntity: h.Entity, "aee_version": envelope.Version, "aeemesh_version": h.node.cfg.Version,
		"concurrency": strconv.Itoa(h.Concurrency), "queue": strconv.Itoa(max(0, h.Queue)),
	}
	meta[MetaHandoff], meta[MetaDurable], meta[MetaSignatures] = "1", h.takesDurable(), h.node.cfg.Verifier.Mode.String()
	if h.durable != nil && h.durable.records.codec.Seal != nil {
		meta[MetaSealed] = "1"
	}
	if h.AgentID != "" {
		meta[MetaAgentID] = h.AgentID
	}
	if h.node.cfg.Prefix != "" {
		meta[MetaPrefix] = h.node.cfg.Prefix
	}
	meta[MetaIntents] = joinIntents(h.Intents.List(""))
	if len(h.Scenarios) > 0 {
		meta[MetaScenarios] = joinIntents(h.Scenarios)
	}
	for k, v := range h.Metadata {
		if _, taken := meta[k]; !taken {
			meta[k] = v
		}
	}
	return micro.ServiceIdentity{Name: subject.ServiceName(h.Entity), ID: h.id, Version: h.Version, Metadata: meta}
}

// Keys of an agent's NATS micro metadata.
const (
	MetaEntity    = "entity"
	MetaAgentID   = "agent_id"
	MetaIntents   = "intents" // comma-separated, cut after 4096 characters
	MetaPrefix    = "prefix"
	MetaScenarios = "sdsi.scenarios" // comma-separated: the scenarios of the agent's schema templates
	MetaHandoff   = "handoff"        // "1": the agent accepts delegated tasks
	MetaDurable   = "durable"        // whether this worker takes durable tasks: see [DurableOn]
	// The worker's signature mode, a [sign.Mode]. A client that requests its health must
	// sign only if the mode is "required".
	MetaSignatures = "signatures"
	MetaSealed     = "sealed" // "1": the checkpoints of its runs are encrypted where they are stored
)

func joinIntents(names []string) string {
	const limit = 4096
	var b []byte
	for i, name := range names {
		if len(b)+len(name) > limit {
			return string(append(b, ",…"...))
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, name...)
	}
	return string(b)
}

func (h *host) serviceInfo() micro.Info {
	description := h.Description
	if description == "" {
		description = "AEE agent " + h.Entity
	}
	formats := envelope.ContentJSON + "," + envelope.ContentCBOR
	info := micro.Info{
		ServiceIdentity: h.identity(), Type: micro.InfoResponseType, Description: description,
		Endpoints: []micro.EndpointInfo{
			{Name: "task", Subject: h.live, QueueGroup: QueueGroup, Metadata: map[string]string{"format": formats}},
			{Name: "ask", Subject: h.ask, QueueGroup: QueueGroup, Metadata: map[string]string{"format": "text/plain"}},
		},
	}
	if h.joined() != nil {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{Name: "work", Subject: h.durable.subject, Metadata: map[string]string{"format": formats, "lane": "jetstream"}})
	}
	return info
}

func (h *host) serviceStats() micro.Stats {
	out := micro.Stats{ServiceIdentity: h.identity(), Type: micro.StatsResponseType, Started: h.started}
	for i, name := range [numEndpoints]string{"task", "ask", "work"} {
		if i == endpointWork && h.joined() == nil {
			continue
		}
		s := &h.stats[i]
		e := &micro.EndpointStats{
			Name: name, Subject: h.live, QueueGroup: QueueGroup,
			NumRequests: int(s.requests.Load()), NumErrors: int(s.errors.Load()),
			ProcessingTime: time.Duration(s.busyFor.Load()),
		}
		switch i {
		case endpointAsk:
			e.Subject = h.ask
		case endpointWork:
			e.Subject, e.QueueGroup, e.Data = h.durable.subject, "", mustJSON(h.durable.status())
		default:
			e.Data = h.counters()
		}
		if e.NumRequests > 0 {
			e.AverageProcessingTime = e.ProcessingTime / time.Duration(e.NumRequests)
		}
		if last := s.lastError.Load(); last != nil {
			e.LastError = *last
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out
}

// counters returns the figures for which micro has no field, and the agent's status, for
// clients that have no permission to request aee.status.health.
func (h *host) counters() json.RawMessage {
	c := &h.counts
	var early int64
	if h.node.replay != nil {
		early = h.node.replay.Early()
	}
	return mustJSON(map[string]any{
		"status": h.health().Status, "replay_early": early,
		"running": h.active.Load(), "queued": int64(h.queue.Len()),
		"malformed": c.malformed.Load(), "refused": c.refused.Load(), "busy": c.busy.Load(),
		"replayed": c.replayed.Load(), "unexpected": c.unexpected.Load(), "dropped": c.dropped.Load(),
		"reply_failed": c.replyFailed.Load(), "panics": c.panics.Load(),
	})
}

// appendMillis writes a duration as milliseconds with three decimals.
func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d.Microseconds())/1000, 'f', -1, 64)
}

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
	"github.com/aeemesh/aeemesh/mesh/internal/probe"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
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
		text := string(problem.Code) + ":" + wire.HeaderText(problem.Message)
		s.lastError.Store(&text)
	}
}

// microVerbs are the verbs of the NATS service protocol (ADR-32).
var microVerbs = [...]micro.Verb{micro.PingVerb, micro.InfoVerb, micro.StatsVerb}

// service answers for an agent as a NATS micro service.
type service struct{ host *host }

// monitor answers one of microVerbs.
func (ms *service) monitor(verb int) nats.MsgHandler {
	return func(msg *nats.Msg) {
		if msg.Reply == "" {
			return
		}
		var answer any
		switch microVerbs[verb] {
		case micro.PingVerb:
			switch string(msg.Data) {
			case probe.WatchBody:
				return
			case probe.PingBody:
				ms.host.node.sender.Publish(msg.Reply, nil, nil)
				return
			}
			answer = micro.Ping{ServiceIdentity: ms.identity(), Type: micro.PingResponseType}
		case micro.InfoVerb:
			answer = ms.serviceInfo()
		default:
			answer = ms.serviceStats()
		}
		ms.host.node.sender.Publish(msg.Reply, wire.MustJSON(answer), nil)
	}
}

// monitored calls each with the subjects on which "nats micro" requests data about the
// agent: for each verb the subject of services with the agent's name, and the subject of
// this instance. See [services] for requests to all services.
func (ms *service) monitored(each func(subject string, handle nats.MsgHandler)) {
	name := subject.ServiceName(ms.host.Entity)
	for i, verb := range microVerbs {
		for _, id := range []string{"", ms.host.id} {
			if s, err := micro.ControlSubject(verb, name, id); err == nil {
				each(s, ms.monitor(i))
			}
		}
	}
}

func (ms *service) identity() micro.ServiceIdentity {
	meta := map[string]string{
		MetaEntity: ms.host.Entity, "aee_version": envelope.Version, "aeemesh_version": ms.host.node.cfg.Version,
		"concurrency": strconv.Itoa(ms.host.Concurrency), "queue": strconv.Itoa(max(0, ms.host.Queue)),
	}
	meta[MetaHandoff], meta[MetaDurable], meta[MetaSignatures] = "1", ms.host.takesDurable(), ms.host.node.cfg.Verifier.Mode.String()
	if ms.host.durable != nil && ms.host.durable.records.codec.Seal != nil {
		meta[MetaSealed] = "1"
	}
	if ms.host.AgentID != "" {
		meta[MetaAgentID] = ms.host.AgentID
	}
	if ms.host.node.cfg.Prefix != "" {
		meta[MetaPrefix] = ms.host.node.cfg.Prefix
	}
	meta[MetaIntents] = joinIntents(ms.host.Intents.List(""))
	if len(ms.host.Scenarios) > 0 {
		meta[MetaScenarios] = joinIntents(ms.host.Scenarios)
	}
	for k, v := range ms.host.Metadata {
		if _, taken := meta[k]; !taken {
			meta[k] = v
		}
	}
	return micro.ServiceIdentity{Name: subject.ServiceName(ms.host.Entity), ID: ms.host.id, Version: ms.host.Version, Metadata: meta}
}

// Keys of an agent's NATS micro metadata.
const (
	MetaEntity    = wire.MetaEntity
	MetaAgentID   = wire.MetaAgentID
	MetaIntents   = "intents" // comma-separated, cut after 4096 characters
	MetaPrefix    = wire.MetaPrefix
	MetaScenarios = "sdsi.scenarios" // comma-separated: the scenarios of the agent's schema templates
	MetaHandoff   = "handoff"        // "1": the agent accepts delegated tasks
	MetaDurable   = "durable"        // whether this worker takes durable tasks: see [DurableOn]
	// The worker's signature mode, a [sign.Mode]. A client that requests its health must
	// sign only if the mode is "required".
	MetaSignatures = "signatures"
	MetaSealed     = wire.MetaSealed // "1": the checkpoints of its runs are encrypted where they are stored
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

func (ms *service) serviceInfo() micro.Info {
	description := ms.host.Description
	if description == "" {
		description = "AEE agent " + ms.host.Entity
	}
	formats := envelope.ContentJSON + "," + envelope.ContentCBOR
	info := micro.Info{
		ServiceIdentity: ms.identity(), Type: micro.InfoResponseType, Description: description,
		Endpoints: []micro.EndpointInfo{
			{Name: "task", Subject: ms.host.live, QueueGroup: QueueGroup, Metadata: map[string]string{"format": formats}},
			{Name: "ask", Subject: ms.host.ask, QueueGroup: QueueGroup, Metadata: map[string]string{"format": "text/plain"}},
		},
	}
	if ms.host.joined() != nil {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{Name: "work", Subject: ms.host.durable.subject, Metadata: map[string]string{"format": formats, "lane": "jetstream"}})
	}
	return info
}

func (ms *service) serviceStats() micro.Stats {
	out := micro.Stats{ServiceIdentity: ms.identity(), Type: micro.StatsResponseType, Started: ms.host.started}
	for i, name := range [numEndpoints]string{"task", "ask", "work"} {
		if i == endpointWork && ms.host.joined() == nil {
			continue
		}
		s := &ms.host.stats[i]
		e := &micro.EndpointStats{
			Name: name, Subject: ms.host.live, QueueGroup: QueueGroup,
			NumRequests: int(s.requests.Load()), NumErrors: int(s.errors.Load()),
			ProcessingTime: time.Duration(s.busyFor.Load()),
		}
		switch i {
		case endpointAsk:
			e.Subject = ms.host.ask
		case endpointWork:
			e.Subject, e.QueueGroup, e.Data = ms.host.durable.subject, "", wire.MustJSON(ms.host.durable.status())
		default:
			e.Data = ms.counters()
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
func (ms *service) counters() json.RawMessage {
	c := &ms.host.counts
	var early int64
	if ms.host.node.replay != nil {
		early = ms.host.node.replay.Early()
	}
	return wire.MustJSON(map[string]any{
		"status": ms.host.health().Status, "replay_early": early,
		"running": ms.host.active.Load(), "queued": int64(ms.host.queue.Len()),
		"malformed": c.malformed.Load(), "refused": c.refused.Load(), "busy": c.busy.Load(),
		"replayed": c.replayed.Load(), "unexpected": c.unexpected.Load(), "dropped": c.dropped.Load(),
		"reply_failed": c.replyFailed.Load(), "panics": c.panics.Load(),
	})
}

// appendMillis writes a duration as milliseconds with three decimals.
func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d.Microseconds())/1000, 'f', -1, 64)
}

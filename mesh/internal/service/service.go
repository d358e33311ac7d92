package service

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/internal/probe"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Verbs are the verbs of the NATS service protocol (ADR-32).
var Verbs = [...]micro.Verb{micro.PingVerb, micro.InfoVerb, micro.StatsVerb}

// Config says what a [Service] answers.
type Config struct {
	Entity, ID, Version, Description string
	AgentID, Prefix, MeshVersion     string // "": not named
	Concurrency, Queue               int
	Signatures                       string   // the worker's signature mode
	SealKeys                         []string // ids of the keys that encrypt the checkpoints of the agent's runs; none: they are not encrypted
	Scenarios                        []string
	Metadata                         map[string]string // more metadata
	Started                          time.Time
	QueueGroup                       string
	Live, Ask, Work                  string // the subjects of the endpoints

	Intents  func() []string // those that the agent knows
	Durable  func() string   // the value of [MetaDurable]
	Lane     func() any      // the status of the durable lane, nil while the agent is not on it
	Counters func() any      // figures for which micro has no field
	Send     func(to string, body []byte)
}

// A Service answers for one agent. Its methods may be called from many goroutines.
type Service struct {
	Stats [NumEndpoints]Stats

	cfg Config
}

// New returns a service. It subscribes to nothing.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// Monitor returns the handler that answers one of Verbs.
func (s *Service) Monitor(verb int) nats.MsgHandler {
	return func(msg *nats.Msg) {
		if msg.Reply == "" {
			return
		}
		var answer any
		switch Verbs[verb] {
		case micro.PingVerb:
			switch string(msg.Data) {
			case probe.WatchBody:
				return
			case probe.PingBody:
				s.cfg.Send(msg.Reply, nil)
				return
			}
			answer = micro.Ping{ServiceIdentity: s.identity(), Type: micro.PingResponseType}
		case micro.InfoVerb:
			answer = s.info()
		default:
			answer = s.stats()
		}
		s.cfg.Send(msg.Reply, wire.MustJSON(answer))
	}
}

// Subjects calls each with the subjects on which "nats micro" requests data about the
// agent: for each verb the subject of services with the agent's name, and the subject of
// this instance.
func (s *Service) Subjects(each func(subject string, handle nats.MsgHandler)) {
	name := subject.ServiceName(s.cfg.Entity)
	for i, verb := range Verbs {
		for _, id := range []string{"", s.cfg.ID} {
			if to, err := micro.ControlSubject(verb, name, id); err == nil {
				each(to, s.Monitor(i))
			}
		}
	}
}

func (s *Service) identity() micro.ServiceIdentity {
	meta := map[string]string{
		wire.MetaEntity: s.cfg.Entity, "aee_version": envelope.Version, "aeemesh_version": s.cfg.MeshVersion,
		"concurrency": strconv.Itoa(s.cfg.Concurrency), "queue": strconv.Itoa(max(0, s.cfg.Queue)),
	}
	meta[MetaHandoff], meta[MetaDurable], meta[MetaSignatures] = "1", s.cfg.Durable(), s.cfg.Signatures
	if len(s.cfg.SealKeys) > 0 {
		meta[wire.MetaSealed], meta[wire.MetaSealKeys] = "1", strings.Join(s.cfg.SealKeys, ",")
	}
	if s.cfg.AgentID != "" {
		meta[wire.MetaAgentID] = s.cfg.AgentID
	}
	if s.cfg.Prefix != "" {
		meta[wire.MetaPrefix] = s.cfg.Prefix
	}
	meta[MetaIntents] = joinIntents(s.cfg.Intents())
	if len(s.cfg.Scenarios) > 0 {
		meta[MetaScenarios] = joinIntents(s.cfg.Scenarios)
	}
	for k, v := range s.cfg.Metadata {
		if _, taken := meta[k]; !taken {
			meta[k] = v
		}
	}
	return micro.ServiceIdentity{Name: subject.ServiceName(s.cfg.Entity), ID: s.cfg.ID, Version: plain(s.cfg.Version), Metadata: meta}
}

// plain returns a version without the zeros before its numbers, which AAIF allows and SemVer forbids.
func plain(version string) string {
	end := len(version)
	if i := strings.IndexAny(version, "-+"); i >= 0 {
		end = i
	}
	numbers := strings.Split(version[:end], ".")
	for i, n := range numbers {
		numbers[i] = cmp.Or(strings.TrimLeft(n, "0"), "0")
	}
	return strings.Join(numbers, ".") + version[end:]
}

// Keys of an agent's NATS micro metadata, see package mesh.
const (
	MetaIntents    = "intents"
	MetaScenarios  = "sdsi.scenarios"
	MetaHandoff    = "handoff"
	MetaDurable    = "durable"
	MetaSignatures = "signatures"
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

func (s *Service) info() micro.Info {
	description := s.cfg.Description
	if description == "" {
		description = "AEE agent " + s.cfg.Entity
	}
	formats := envelope.ContentJSON + "," + envelope.ContentCBOR
	info := micro.Info{
		ServiceIdentity: s.identity(), Type: micro.InfoResponseType, Description: description,
		Endpoints: []micro.EndpointInfo{
			{Name: "task", Subject: s.cfg.Live, QueueGroup: s.cfg.QueueGroup, Metadata: map[string]string{"format": formats}},
			{Name: "ask", Subject: s.cfg.Ask, QueueGroup: s.cfg.QueueGroup, Metadata: map[string]string{"format": "text/plain"}},
		},
	}
	if s.cfg.Lane() != nil {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{Name: "work", Subject: s.cfg.Work, Metadata: map[string]string{"format": formats, "lane": "jetstream"}})
	}
	return info
}

func (s *Service) stats() micro.Stats {
	out := micro.Stats{ServiceIdentity: s.identity(), Type: micro.StatsResponseType, Started: s.cfg.Started}
	for i, name := range endpointNames {
		n := &s.Stats[i]
		e := &micro.EndpointStats{
			Name: name, Subject: s.cfg.Live, QueueGroup: s.cfg.QueueGroup,
			NumRequests: int(n.requests.Load()), NumErrors: int(n.errors.Load()),
			ProcessingTime: time.Duration(n.busyFor.Load()),
		}
		switch i {
		case Ask:
			e.Subject = s.cfg.Ask
		case Work:
			lane := s.cfg.Lane()
			if lane == nil {
				continue
			}
			e.Subject, e.QueueGroup, e.Data = s.cfg.Work, "", wire.MustJSON(lane)
		default:
			e.Data = wire.MustJSON(s.cfg.Counters())
		}
		if e.NumRequests > 0 {
			e.AverageProcessingTime = e.ProcessingTime / time.Duration(e.NumRequests)
		}
		if last := n.lastError.Load(); last != nil {
			e.LastError = *last
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out
}

package main

import (
	"cmp"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// identify says in an agent's metadata which process serves it. Everybody who may
// list agents sees that.
func (f *workerFlags) identify(agent *agents.Agent) {
	if agent.Metadata == nil {
		agent.Metadata = map[string]string{}
	}
	if f.machine != "none" {
		agent.Metadata[metaHost], agent.Metadata[metaPID] = cmp.Or(f.machine, session.Hostname()), strconv.Itoa(os.Getpid())
	}
	agent.Metadata[metaProcessStarted] = processStarted.Format(time.RFC3339)
}

// Keys of an agent's metadata that say which process serves it.
const (
	metaHost           = "host"
	metaPID            = "pid"
	metaProcessStarted = "process_started"
	metaProgram        = "aeemesh_version" // by the mesh
)

// instanceOf is the id of this process's worker of an agent.
func instanceOf(node *mesh.Node, entity string) string {
	for _, s := range node.Serving() {
		if s.Entity == entity {
			return s.Instance
		}
	}
	return ""
}

// announceAgent makes the function that says what is served, once it is.
func (a *app) announceAgent(s *session.Session, agent *agents.Agent) (func(), error) {
	live, err := s.Node.Subjects().Live(agent.Entity)
	if err != nil {
		return nil, err
	}
	ask, err := s.Node.Subjects().Ask(agent.Entity)
	if err != nil {
		return nil, err
	}
	durable, err := s.Node.Subjects().Work(string(envelope.PriorityNormal), agent.Entity)
	if err != nil {
		return nil, err
	}
	at := max(agent.Concurrency, mesh.DefaultConcurrency)
	return func() {
		work := ""
		if d := s.Node.Durable(); d != nil && d.There() && !agent.LiveOnly {
			work = durable
		}
		a.Term.Logs.Store(term.LogServing)
		instance := instanceOf(s.Node, agent.Entity)
		if !a.Term.JSON || a.Term.Records != nil {
			durably := ""
			if work != "" {
				durably = ", durable tasks on " + work
			}
			a.Term.Tell(term.Event{Level: slog.LevelInfo, Style: term.StyleGood, Msg: "serving", Attrs: []any{"entity", agent.Entity, "instance", instance, "subject", live,
				"ask_subject", ask, "work_subject", work, "agent_version", agent.Version, "concurrency", at}},
				"serving %s on %s and %s%s, %d at once, as instance %s", agent.Entity, live, ask, durably, at, instance)
		}
		if !a.Term.JSON {
			return
		}
		// A terminal that is gone must not end a worker.
		if err := a.Term.Object(map[string]any{"entity": agent.Entity, "instance": instance, "subject": live, "ask_subject": ask, "work_subject": work, "agent_id": agent.AgentID,
			"version": agent.Version, "concurrency": at, "server": s.Conn.ConnectedUrlRedacted()}); err != nil {
			a.Log.Warn("not told", "entity", agent.Entity, "err", err)
		}
	}, nil
}

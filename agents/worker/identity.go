package worker

import (
	"cmp"
	"os"
	"strconv"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// Keys of an agent's metadata that say which process serves it.
const (
	MetaHost           = "host"
	MetaPID            = "pid"
	MetaProcessStarted = "process_started"
)

// processStarted is when this process started.
var processStarted = time.Now().UTC()

// identify adds to an agent's metadata which process serves it. All who may
// list agents see that.
func (w *Worker) identify(agent *agents.Agent) {
	if agent.Metadata == nil {
		agent.Metadata = map[string]string{}
	}
	if w.cfg.Machine != NoMachine {
		host := w.cfg.Machine
		if host == "" {
			host = hostname()
		}
		agent.Metadata[MetaHost], agent.Metadata[MetaPID] = host, strconv.Itoa(os.Getpid())
	}
	agent.Metadata[MetaProcessStarted] = processStarted.Format(time.RFC3339)
}

// serving returns a function that describes an agent, once it is served.
func (w *Worker) serving(node *mesh.Node, agent *agents.Agent) (func() Serving, error) {
	s := Serving{Entity: agent.Entity, AgentID: agent.AgentID, Version: agent.Version, Concurrency: max(agent.Concurrency, mesh.DefaultConcurrency)}
	var err error
	if s.Subject, err = node.Subjects().Live(agent.Entity); err != nil {
		return nil, err
	}
	if s.AskSubject, err = node.Subjects().Ask(agent.Entity); err != nil {
		return nil, err
	}
	work, err := node.Subjects().Work(string(envelope.PriorityNormal), agent.Entity)
	if err != nil {
		return nil, err
	}
	return func() Serving {
		if d := node.Durable(); d != nil && d.Available() && !agent.LiveOnly {
			s.WorkSubject = work
		}
		for _, served := range node.Serving() {
			if served.Entity == agent.Entity {
				s.Instance = served.Instance
			}
		}
		s.Server = node.Conn().ConnectedUrlRedacted()
		return s
	}, nil
}

func hostname() string {
	name, _ := os.Hostname()
	return cmp.Or(name, "unknown")
}

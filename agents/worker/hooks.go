package worker

import (
	"log/slog"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Hooks receive what an operator should see. A nil hook logs it instead. Serve returns
// after the last of them.
type Hooks struct {
	// Notices receives what a document says that this worker does not do, and
	// other problems of one agent, before it is served.
	Notices func(entity string, problems []aaif.Problem)
	// Unneeded receives a pointer of Options.AcceptUnhonoured that made no
	// difference to any agent.
	Unneeded func(pointer string)
	// References receives how many references of an agent's document to
	// subagents are answered by a running agent, once all agents are served. It is not
	// called for a document without references.
	References func(entity string, answered, of int, missing []aaif.Problem)
	// NoLane receives why the durable lane is not there, if the worker, whose
	// first agent is entity, serves live tasks until it is.
	NoLane func(entity string, err error)
	// Serving is called when an agent is served.
	Serving func(Serving)
	// Ready is called once, when all agents are served.
	Ready func(entities []string)
	// Draining is called when ctx has ended and the agents stop.
	Draining func()
}

// Serving is an agent that is served.
type Serving struct {
	Entity, Instance string
	Subject          string // of live tasks
	AskSubject       string // of plain text
	WorkSubject      string // of durable tasks; "" if none are taken
	AgentID, Version string // of the document
	Concurrency      int    // tasks at once
	Server           string // the server's URL, without credentials
}

// withLog returns the hooks, with logging ones where none is set.
func (h Hooks) withLog(log *slog.Logger) Hooks {
	notices := func(entity string, problems []aaif.Problem) {
		for _, p := range problems {
			log.Warn("not as the document says", "entity", entity, "pointer", p.Pointer, "why", p.Message, "hint", p.Hint)
		}
	}
	if h.Notices == nil {
		h.Notices = notices
	}
	if h.Unneeded == nil {
		h.Unneeded = func(pointer string) {
			log.Warn("accepted as unhonoured, which makes no difference", "pointer", pointer)
		}
	}
	if h.References == nil {
		h.References = func(entity string, answered, of int, missing []aaif.Problem) {
			log.Info("references to subagents", "entity", entity, "answered", answered, "of", of)
			notices(entity, missing)
		}
	}
	if h.NoLane == nil {
		h.NoLane = func(_ string, err error) { log.Warn("live tasks only, until the durable lane is there", "err", err) }
	}
	if h.Serving == nil {
		h.Serving = func(s Serving) {
			log.Info("serving", "entity", s.Entity, "instance", s.Instance, "subject", s.Subject, "durable", s.WorkSubject != "", "concurrency", s.Concurrency)
		}
	}
	if h.Ready == nil {
		h.Ready = func([]string) {}
	}
	if h.Draining == nil {
		h.Draining = func() { log.Info("draining") }
	}
	return h
}

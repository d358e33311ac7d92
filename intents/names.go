package intents

import (
	"fmt"
	"strings"
)

// The reserved protocol intents (AEE, "Reserved Namespace: aee.*"). Every agent of the mesh answers all seven.
const (
	StatusPing      = "aee.status.ping"
	StatusHealth    = "aee.status.health"
	SpecQuery       = "aee.spec.query"
	CapabilityList  = "aee.capability.list"
	ContextFetch    = "aee.context.fetch"
	ContextRefute   = "aee.context.refute"
	ValidatePayload = "aee.validate.payload"
)

// ExtDecisionEvidence names the decision evidence extension in the extensions
// of an [SpecQueryResult]. It is no intent: nobody sends a task with it.
const ExtDecisionEvidence = "aee.ext.decision_evidence"

// ExtHandoff, in the extensions of an [SpecQueryResult], says that the agent can
// take a task over from another one and answer its sender in that one's place
// (docs/nats-binding.md, "Handed-over tasks").
const ExtHandoff = "mesh.ext.handoff"

// ExtDurable, in the extensions of an [SpecQueryResult], says that the agent
// takes tasks over the durable lane as well (docs/nats-binding.md, "Handed-over
// tasks"). A worker says so from its first moment on, when it may still be
// making its consumers.
const ExtDurable = "mesh.ext.durable"

// AgentAsk is the intent of a task that was made from plain text, where nobody
// named an intent. It belongs to applications: an agent may publish schemas for it.
const AgentAsk = "agent.ask"

// HumanAsk is the intent of a task for a person where nobody named one. It
// belongs to applications.
const HumanAsk = "human.ask"

// The commands of the mesh: tasks about tasks, with schemas of their own.
const (
	TaskCancel  = "mesh.task.cancel"
	TaskPause   = "mesh.task.pause"
	TaskResume  = "mesh.task.resume"
	TaskSteer   = "mesh.task.steer"
	TaskSettle  = "mesh.task.settle"
	TaskMigrate = "mesh.task.migrate"
)

// The intents of the mesh's events on the bus, whose payloads are not validated.
const (
	AgentJoined    = "mesh.agent.joined"
	AgentLeft      = "mesh.agent.left"
	AgentHeartbeat = "mesh.agent.heartbeat"
	TaskStarted    = "mesh.task.started"
	TaskFinished   = "mesh.task.finished"
	TaskFailed     = "mesh.task.failed"
	TaskRetrying   = "mesh.task.retrying" // a durable task has failed and will be tried again
	TaskParked     = "mesh.task.parked"   // a run waits to be resumed
	TaskHanded     = "mesh.task.handed"   // a link of the chain of a task that was handed on; it goes along with the task, not over the bus
	AlertRaised    = "mesh.alert.raised"
	TaskWithdrawn  = "mesh.task.withdrawn" // into a person's inbox: a task is no longer theirs
)

// Variant says which of an intent's three schemas a payload is held against.
// Its values are the envelope types that have a schema.
type Variant string

// The three variants (AEE, "Intent Schema Publishing").
const (
	Task   Variant = "task"
	Result Variant = "result"
	Error  Variant = "error"
)

// VariantOf gives the variant for an envelope's type, and false for event and
// stream envelopes and unknown types, whose payloads have no schema.
func VariantOf(envelopeType string) (Variant, bool) {
	v := Variant(envelopeType)
	return v, v.index() >= 0
}

func (v Variant) index() int {
	switch v {
	case Task:
		return 0
	case Result:
		return 1
	case Error:
		return 2
	}
	return -1
}

// Bounds of an intent's name. The draft asks for at least three characters;
// the upper bound leaves room for it in a NATS header and a log line.
const (
	MinNameLength = 3
	MaxNameLength = 128
)

// CheckName reports what is wrong with an intent's name, or nil. A name is
// dotted tokens ("ops.backup.status.check"), each of letters, digits, "_" and
// "-", 3 to 128 characters in all. One token is enough: the draft recommends
// <domain>.<subdomain>.<noun>.<verb> but requires only the length.
// The error is an [*NameError].
func CheckName(intent string) error {
	if len(intent) < MinNameLength || len(intent) > MaxNameLength {
		return &NameError{Intent: intent, Reason: fmt.Sprintf("has %d characters, 3 to 128 are allowed", len(intent))}
	}
	start := 0
	for i := 0; i <= len(intent); i++ {
		if i == len(intent) || intent[i] == '.' {
			if i == start {
				return &NameError{Intent: intent, Reason: "has an empty token between dots"}
			}
			start = i + 1
			continue
		}
		c := intent[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return &NameError{Intent: intent, Reason: "may hold letters, digits, dots, _ and - only"}
		}
	}
	return nil
}

// Reserved reports whether applications are refused this name: it lies under
// "aee." (the protocol's) or "mesh." (the mesh's own traffic). Letter case
// does not get around it.
func Reserved(intent string) bool { return reservedFor(intent) != "" }

// reservedFor gives the reason why a name is reserved, "" when it is not.
func reservedFor(intent string) string {
	domain, _, _ := strings.Cut(intent, ".")
	switch strings.ToLower(domain) {
	case "aee":
		return "names under aee. are the protocol's own (AEE, Reserved Namespace)"
	case "mesh":
		return "names under mesh. are the mesh's own traffic"
	}
	return ""
}

// RunIntent is the intent under which an agent takes work where nobody named
// another one: the entity id and ".run", as in agent.invoice_chaser.run.
// Characters that an intent may not have became "_".
func RunIntent(entity string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '_'
	}, entity)
	const suffix = ".run"
	if most := MaxNameLength - len(suffix); len(name) > most {
		name = strings.TrimRight(name[:most], ".")
	}
	return name + suffix
}

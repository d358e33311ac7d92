package intents

import (
	"fmt"
	"slices"
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

// ExtDecisionEvidence is the name of the decision evidence extension in the extensions of
// an [SpecQueryResult]. It is not an intent: no task has it.
const ExtDecisionEvidence = "aee.ext.decision_evidence"

// ExtHandoff, in the extensions of an [SpecQueryResult], says that the agent accepts
// tasks that another agent delegates to it, and replies to the original sender
// (docs/nats-binding.md, "Delegated tasks").
const ExtHandoff = "mesh.ext.handoff"

// ExtDurable, in the extensions of an [SpecQueryResult], says that the agent also accepts
// tasks over the durable lane (docs/nats-binding.md, "Delegated tasks"). A worker says
// so from its start, even while it still creates its consumers.
const ExtDurable = "mesh.ext.durable"

// ExtSDSI, in the extensions of an [SpecQueryResult], says that the agent publishes schema
// templates, and answers the intents of Structured Data Schema Interaction.
const ExtSDSI = "mesh.ext.sdsi"

// The intents of Structured Data Schema Interaction (docs/nats-binding.md, "Schema
// templates"). Agents that publish templates register them.
const (
	SchemaGet  = "sdsi.schema.get"
	SchemaList = "sdsi.schema.list"
	Exchange   = "sdsi.exchange"
)

// Inner reports whether an intent is one under [Exchange]: the name by which an agent's handler
// knows the exchanges of one template. A payload has been checked by the template when the
// handler sees that name, so no task may come with it.
func Inner(intent string) bool { return strings.HasPrefix(intent, Exchange+".") }

// SchemaPublished is the intent of the event on bus.sdsi.<entity> about a new version of a
// template.
const SchemaPublished = "sdsi.schema.published"

// SchemaUpdate is the intent of the event on bus.sdsi.<entity> about a key that was learned:
// it is proposed, on trial, stable, deprecated, withdrawn.
const SchemaUpdate = "sdsi.schema.update"

// AgentAsk is the intent of a task made from plain text without an intent. It belongs to
// applications: an agent may publish schemas for it.
const AgentAsk = "agent.ask"

// HumanAsk is the intent of a task for a person if none is given. It belongs to
// applications.
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

// Tasks that the workers of one agent send each other on its control subject: to offer a
// run, and to ask for a guardian. They have no schemas.
const (
	TaskOffer = "mesh.task.offer"
	TaskGuard = "mesh.task.guard"
)

// The intents of the mesh's events on the bus, whose payloads are not validated.
const (
	AgentJoined    = "mesh.agent.joined"
	AgentLeft      = "mesh.agent.left"
	AgentHeartbeat = "mesh.agent.heartbeat"
	TaskStarted    = "mesh.task.started"
	TaskFinished   = "mesh.task.finished"
	TaskFailed     = "mesh.task.failed"
	TaskRetrying   = "mesh.task.retrying" // a durable task has failed and will be retried
	TaskParked     = "mesh.task.parked"   // a run is parked
	TaskHanded     = "mesh.task.handed"   // a link in the chain of a delegated task; it is sent with the task, not over the bus
	AlertRaised    = "mesh.alert.raised"
	TaskWithdrawn  = "mesh.task.withdrawn" // to a person's inbox: a task was withdrawn from this person
)

// Variant says against which of an intent's three schemas a payload is validated. Its
// values are the envelope types that have a schema.
type Variant string

// The three variants (AEE, "Intent Schema Publishing").
const (
	Task   Variant = "task"
	Result Variant = "result"
	Error  Variant = "error"
)

// variants lists them, in the order of [Variant.index].
var variants = [...]Variant{Task, Result, Error}

// index returns the place of a variant, or -1.
func (v Variant) index() int { return slices.Index(variants[:], v) }

// Limits of an intent's name. The draft requires at least three characters; the upper
// limit keeps a name short enough for a NATS header and a log line.
const (
	MinNameLength = 3
	MaxNameLength = 128
)

// CheckName returns what is wrong with an intent's name, or nil. A name is tokens with
// dots between them ("ops.backup.status.check"), each of letters, digits, "_" and "-", 3
// to 128 characters in all. One token is enough: the draft recommends
// <domain>.<subdomain>.<noun>.<verb> but requires only the length. The error is an
// [*NameError].
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

// Reserved reports whether applications may not register this name: it is under "aee."
// (the protocol's) or "mesh." (the mesh's own), in upper or lower case.
func Reserved(intent string) bool { return reservedFor(intent) != "" }

// reservedFor returns the reason why a name is reserved, "" if it is not.
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

// RunIntent is the default intent of an agent's tasks: the entity id and ".run", as in
// agent.invoice_chaser.run. Characters that an intent may not contain become "_".
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

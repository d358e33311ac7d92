package orchestrate

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
)

// scoreSchema is what a person's score must fit.
//
//go:embed schema/score.result.schema.json
var scoreSchema json.RawMessage

// post is the current receiver of a member's part: the member itself, or the
// one to which the part was escalated.
type post struct {
	participant Participant
	member      Member
	key         string   // the key of the calls
	before      []string // entities that did not answer in time
}

// escalate passes a member's part to the receiver that the document names for a timeout
// (escalate_to). It reports false if there is none. An error means that the receiver was not found.
func (w *work) escalate(ctx context.Context, at *post, a memberCall, problem *envelope.Error) (bool, error) {
	name := at.participant.Extras.EscalateTo
	if problem.Code != envelope.CodeTimeout || name == "" || w.left() <= 0 || len(at.before) >= maxEscalations {
		return false, nil
	}
	next := w.named(name)
	was := at.participant.Extras
	next.Extras.TimeoutSeconds = cmp.Or(next.Extras.TimeoutSeconds, was.TimeoutSeconds)
	next.Extras.Intent = cmp.Or(next.Extras.Intent, was.Intent)
	if next.Extras.ResultSchema == nil {
		next.Extras.ResultSchema = was.ResultSchema
	}
	before := append(slices.Clone(at.before), at.member.Entity)
	root := at.key
	if n := len(at.before); n > 0 {
		root = root[:len(root)-len(fmt.Sprintf("/to/%d", n))]
	}
	key := fmt.Sprintf("%s/to/%d", root, len(before))
	member, err := w.receiver(ctx, key, &next, a)
	if err != nil {
		return false, err
	}
	if slices.Contains(before, member.Entity) {
		return false, nil // it had the part before
	}
	*at = post{next, member, key, before}
	return true, nil
}

// maxEscalations bounds the escalations of one part.
const maxEscalations = 16

// named returns a member by its alias or ref. A name that is none of the
// document's subagents is taken as a reference.
func (w *work) named(name string) Participant {
	if i := w.plan.member(name); i >= 0 {
		return w.plan.Members[i]
	}
	return Participant{Alias: name, Ref: name}
}

// escalated publishes an escalation on the bus.
func (w *work) escalated(at *post, o *Outcome, a memberCall, taskID string) {
	w.task.PublishStep(intents.RunEscalated, intents.StepEvent{
		Pattern: string(w.plan.Pattern), Step: at.key, Alias: o.Alias, To: at.member.Entity, Child: taskID, Durable: o.Durable, Slot: &a.slot,
		Detail: at.before[len(at.before)-1] + " did not answer in time",
	})
}

// ofPerson adds the members for a person to requires: the schema that the answer must fit, and the
// next receiver of an escalation.
func (w *work) ofPerson(at *post, a memberCall, requires map[string]json.RawMessage) map[string]json.RawMessage {
	if subject.EntityType(at.member.Entity) != subject.TypeHuman {
		return requires
	}
	add := func(name string, value json.RawMessage) {
		if requires == nil {
			requires = map[string]json.RawMessage{}
		}
		requires[name] = value
	}
	delete(requires, "decision_evidence") // this is for models only
	schema := at.participant.Extras.ResultSchema
	if schema == nil {
		schema = a.schema
	}
	if schema != nil {
		add("result_schema", schema)
	}
	if next := at.participant.Extras.EscalateTo; next != "" {
		if ref := w.named(next).Ref; IsEntity(ref) {
			next = ref
		}
		add("escalate_to", envelope.AppendString(nil, next))
	}
	return requires
}

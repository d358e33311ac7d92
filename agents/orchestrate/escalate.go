package orchestrate

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// scoreSchema is what a person's score must fit.
//
//go:embed schema/score.result.schema.json
var scoreSchema json.RawMessage

// post is who has a member's part now: the member itself, or to whom it was
// escalated.
type post struct {
	who    Participant
	member Member
	key    string   // of the calls
	before []string // entities that did not do it in time
}

// escalate gives a member's part to whom the document names for the case that it
// is not done in time (escalate_to), and reports whether there is somebody. An
// error says that he cannot be found.
func (w *work) escalate(ctx context.Context, at *post, problem *envelope.Error) (bool, error) {
	name := at.who.Extras.EscalateTo
	if problem.Code != envelope.CodeTimeout || name == "" || w.left() <= 0 || len(at.before) >= maxEscalations {
		return false, nil
	}
	next := w.named(name)
	was := at.who.Extras
	if next.Extras.TimeoutSeconds == 0 {
		next.Extras.TimeoutSeconds = was.TimeoutSeconds
	}
	if next.Extras.Intent == "" {
		next.Extras.Intent = was.Intent
	}
	if next.Extras.ResultSchema == nil {
		next.Extras.ResultSchema = was.ResultSchema
	}
	before := append(slices.Clone(at.before), at.member.Entity)
	root := at.key
	if n := len(at.before); n > 0 {
		root = root[:len(root)-len(fmt.Sprintf("/to/%d", n))]
	}
	key := fmt.Sprintf("%s/to/%d", root, len(before))
	member, err := w.who(ctx, key, &next)
	if err != nil {
		return false, err
	}
	if slices.Contains(before, member.Entity) {
		return false, nil // it comes round again
	}
	*at = post{next, member, key, before}
	return true, nil
}

// maxEscalations bounds how often one part is given on.
const maxEscalations = 16

// named is a member by its alias or ref; somebody else is none of the document's
// subagents.
func (w *work) named(name string) Participant {
	for i := range w.plan.Members {
		if p := &w.plan.Members[i]; p.Alias == name || p.Ref == name {
			return *p
		}
	}
	return Participant{Alias: name, Ref: name}
}

// escalated tells the bus that a part is with somebody else.
func (w *work) escalated(at *post, o *Outcome, a ask, taskID string) {
	w.task.TellRun(intents.RunEscalated, intents.StepEvent{
		Pattern: string(w.plan.Pattern), Step: at.key, Alias: o.Alias, To: at.member.Entity, Child: taskID, Durable: o.Durable, Slot: &a.slot,
		Detail: at.before[len(at.before)-1] + " did not answer in time",
	})
}

// ofPerson are the members of requires that a person is told with a task: what
// the answer must fit, and who is asked next.
func (w *work) ofPerson(at *post, a ask, requires map[string]json.RawMessage) map[string]json.RawMessage {
	if subject.EntityType(at.member.Entity) != subject.TypeHuman {
		return requires
	}
	add := func(name string, value json.RawMessage) {
		if requires == nil {
			requires = map[string]json.RawMessage{}
		}
		requires[name] = value
	}
	delete(requires, "decision_evidence") // of a model
	schema := at.who.Extras.ResultSchema
	if schema == nil {
		schema = a.schema
	}
	if schema != nil {
		add("result_schema", schema)
	}
	if next := at.who.Extras.EscalateTo; next != "" {
		if ref := w.named(next).Ref; IsEntity(ref) {
			next = ref
		}
		add("escalate_to", envelope.AppendString(nil, next))
	}
	return requires
}

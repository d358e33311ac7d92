package aaif

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// rootFields are the members of a definition beside agent.
var rootFields = []string{"sc_standard", "sc_version", "agent_id", "status", "tags", "provenance"}

// FieldPointer parses the name of one place in an agent definition: a JSON
// pointer (/agent/compliance/audit_log), or the field's path with dots, from
// the root or from the agent block (compliance.audit_log). It names exactly one
// place: there are no wildcards.
func FieldPointer(text string) (string, error) {
	switch {
	case text == "" || text == "/":
		return "", errors.New("it is empty: name one field, such as compliance.audit_log")
	case strings.ContainsAny(text, "*?[]"):
		return "", fmt.Errorf("%q: each field is named by itself, without wildcards", clip.Text(text, 60))
	case text[0] == '/':
		return text, nil
	}
	fields := strings.Split(text, ".")
	if slices.Contains(fields, "") {
		return "", fmt.Errorf("%q: a field has no name", clip.Text(text, 60))
	}
	if fields[0] != "agent" && !slices.Contains(rootFields, fields[0]) {
		fields = append([]string{"agent"}, fields...)
	}
	pointer := ""
	for _, f := range fields {
		pointer = child(pointer, f)
	}
	return pointer, nil
}

// FieldPath converts a pointer to the dotted path that [FieldPointer] reads,
// where possible.
func FieldPath(pointer string) string {
	path := strings.TrimPrefix(strings.TrimPrefix(pointer, "/agent/"), "/")
	path = strings.ReplaceAll(path, "/", ".")
	if back, err := FieldPointer(path); err != nil || back != pointer {
		return pointer
	}
	return path
}

// HintAccepted is the hint of a [Problem] that an operator has accepted.
const HintAccepted = "accepted by the operator"

// HoldHints returns a document in which some conditions in words always hold:
// those of subagents that are steps of a pipeline and that pointers names. The
// pipeline gives their order, and an operator who has read the words decides
// that they hold, because no runtime evaluates words. It reports each of them
// as a warning. The receiver is not changed; if no condition is affected,
// HoldHints returns the receiver.
func (d *Document) HoldHints(pointers []string) (*Document, []Problem) {
	if d.definition == nil || d.definition.Agent.Orchestration == nil || len(d.definition.Agent.Orchestration.Pipeline) == 0 {
		return d, nil
	}
	var held []Problem
	out := d
	for i, s := range d.definition.Agent.Orchestration.Subagents {
		pointer := child("/agent/orchestration/subagents", i) + "/when"
		if s.When == nil || !s.When.IsString() || !slices.Contains(pointers, pointer) {
			continue
		}
		if out == d {
			copied := *d
			copied.definition, out = d.definition.Clone(), &copied
		}
		out.definition.Agent.Orchestration.Subagents[i].When = &Condition{Lang: LangAlways, NL: s.When.Hint}
		held = append(held, warnf(pointer, RuleStringCondition, "the condition in words counts as satisfied: %s", show(s.When.Hint)).hint(HintAccepted))
	}
	return out, d.locate(held)
}

package topology

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
)

// errors counts the problems that are more than warnings.
func (t *team) errors() (n int) {
	for i := range t.problems {
		if t.problems[i].Severity == aaif.SeverityError {
			n++
		}
	}
	return n
}

// lastName returns the last token of a pointer, a member's name.
func lastName(pointer string) string { return pointer[strings.LastIndexByte(pointer, '/')+1:] }

// most are the upper limits of the extension's numbers, with their description.
var most = map[string]struct {
	value float64
	words string
}{
	"timeout_seconds": {orchestrate.MaxTimeoutSeconds, "ten years"},
	"max_retries":     {orchestrate.MaxStepRetries, "1000"},
}

// bounds reports numbers that cannot be intended. A 0 has the same effect as no value, which its
// author probably did not intend.
func (t *team) bounds(pointer string, raw json.RawMessage) {
	var n float64
	if json.Unmarshal(raw, &n) != nil {
		return
	}
	name := lastName(pointer)
	limit, limited := most[name]
	switch {
	case n < 0:
		t.fail(pointer, RuleExtension, "", "it cannot be negative")
	case limited && n > limit.value:
		t.fail(pointer, RuleExtension, "write a smaller number", "it is more than %s", limit.words)
	case n == 0 && name != "max_retries":
		t.warn(pointer, aaif.RuleIgnoredField, "write a number above 0, or delete it", "0 has no effect: the default holds")
	}
}

// escalations reports escalations that return to a member that had the task
// before: they end there, as if no member were named.
func (t *team) escalations() {
	reported := make(map[string]bool)
	for _, start := range slices.Sorted(maps.Keys(t.extras.Steps)) {
		first := t.lookup(start)
		if first == nil {
			continue
		}
		names, identities := []string{first.alias}, []string{first.identity()}
		for m := t.next(first); m != nil; m = t.next(m) {
			names = append(names, m.alias)
			if m.identity() == first.identity() {
				slices.Sort(identities)
				if round := strings.Join(identities, "\n"); !reported[round] {
					reported[round] = true
					t.fail(extension("steps", start, "escalate_to"), RuleLoop, "name another one", "the task comes back to the one that did not do it in time: %s", strings.Join(names, " → "))
				}
				break
			}
			if slices.Contains(identities, m.identity()) {
				break // this member only leads to a circle
			}
			identities = append(identities, m.identity())
		}
	}
}

// next returns the member to which a member's task is escalated; nil if there
// is none or it is not known.
func (t *team) next(m *member) *member {
	to := t.extras.Steps[m.alias].EscalateTo
	if to == "" {
		return nil
	}
	return t.lookup(to)
}

// identity identifies the entity behind a member, so that two names of one entity
// are equal.
func (m *member) identity() string {
	if orchestrate.IsEntity(m.ref) {
		return m.ref
	}
	return "\n" + m.alias
}

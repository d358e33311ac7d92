package topology

import (
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// Rules of the problems that this package reports, beside those of package
// aaif.
const (
	RuleUnreachable aaif.Rule = "unreachable" // a member or a rule is never used
	RuleLoop        aaif.Rule = "loop"        // agents call themselves, directly or through others
	RuleTeam        aaif.Rule = "team"        // a team lacks a member that its pattern needs
	RuleExtension   aaif.Rule = "extension"   // the extension x-aeemesh has a form that is not understood
	RuleContract    aaif.Rule = "contract"    // an output does not fit the next input
	RuleName        aaif.Rule = "name"        // references can be resolved only in a mesh
	RuleLanguage    aaif.Rule = aaif.RuleConditionLanguage
)

// Check reports what is wrong with the team of an agent definition, and which
// parts of it have no effect, sorted and with their places. It returns nil for
// documents of other kinds.
func Check(doc *aaif.Document) []aaif.Problem {
	return Together([]Source{{Doc: doc}})[0]
}

func (t *team) check() {
	t.extension()
	if t.o == nil {
		return
	}
	t.refs()
	t.handoffs()
	t.named()
	switch t.pattern {
	case pipeline:
		t.pipeline()
	case router:
		t.router()
	case swarm, inTurn:
		t.swarm()
	case modelLed:
		t.modelLed()
	case noTeam:
		t.reportNoTeam()
	}
	t.consensus()
	t.conditions()
	t.idle()
}

// reportNoTeam reports blocks that declare no team.
func (t *team) reportNoTeam() {
	switch t.o.Role {
	case aaif.RoleOrchestrator, aaif.RoleRouter:
		if len(t.o.Handoff) == 0 {
			t.warn(at+"/role", RuleTeam, "name its agents in subagents", "the %s has no subagents: it does the task by itself", t.o.Role)
		}
	}
	if t.o.ParallelExecution != nil && *t.o.ParallelExecution {
		t.warn(at+"/parallel_execution", aaif.RuleIgnoredField, "name its agents in subagents", "there are no subagents to work in parallel")
	}
}

func (t *team) warn(pointer string, rule aaif.Rule, hint, format string, args ...any) {
	t.add(aaif.SeverityWarning, pointer, rule, hint, format, args...)
}

func (t *team) fail(pointer string, rule aaif.Rule, hint, format string, args ...any) {
	t.add(aaif.SeverityError, pointer, rule, hint, format, args...)
}

// maxProblems bounds the problems of one document.
const maxProblems = 1000

func (t *team) add(severity aaif.Severity, pointer string, rule aaif.Rule, hint, format string, args ...any) {
	if len(t.problems) < maxProblems {
		t.problems = append(t.problems, aaif.Problem{Pointer: pointer, Rule: rule, Severity: severity, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
}

// instead is the hint for an unknown name: the nearest known name, else
// otherwise.
func instead(name string, candidates []string, otherwise string) string {
	if near := aaif.Nearest(name, candidates); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}

// quote quotes a text of the document, truncated if it is long.
func quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

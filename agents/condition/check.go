package condition

import (
	"errors"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// RuleCondition is the rule of the problems of [Check]: a condition that does
// not compile.
const RuleCondition aaif.Rule = "condition"

// Check compiles the conditions of a definition, and reports those that do not
// compile, as errors with the pointers of their expressions: such a condition
// is never satisfied. Package aaif reports hints and unknown languages. It
// returns nil for documents of another kind.
func Check(doc *aaif.Document) []aaif.Problem {
	d := doc.Definition()
	if d == nil {
		return nil
	}
	var problems []aaif.Problem
	for pointer, c := range d.Conditions() {
		_, err := Compile(*c, Options{})
		if err == nil || errors.Is(err, ErrLanguage) {
			continue
		}
		if len(c.Expr) > 0 {
			pointer += "/expr"
		}
		problems = append(problems, aaif.Problem{
			Pointer: pointer, Rule: RuleCondition, Severity: aaif.SeverityError,
			Message: err.Error(), Hint: "until it compiles, the condition is never satisfied",
		})
	}
	return doc.Locate(problems)
}

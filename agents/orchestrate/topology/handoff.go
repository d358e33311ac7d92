package topology

import (
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// handoffs checks the rules by which a run is delegated. A target that the
// block does not list is only a warning: the host may know it, and documents of
// other platforms rely on that.
func (t *team) handoffs() {
	sure := 0 // the number, from 1, of the first rule that always delegates; later rules are never used
	for i := range t.o.Handoff {
		h := &t.o.Handoff[i]
		pointer := fmt.Sprintf("%s/handoff/%d", at, i)
		m := t.find(pointer+"/target_agent", h.TargetAgent, aaif.SeverityWarning)
		if m != nil {
			m.use(receiving)
		}
		when := momentOf(&h.Condition)
		self := m != nil && t.isSelf(m.ref)
		switch {
		case when == never && h.Condition.IsString():
			t.warn(pointer+"/condition", RuleUnreachable, `write {"lang": …, "expr": …}; the words can stay as "nl"`, "words are never satisfied here: nothing is delegated to %s", quote(h.TargetAgent))
		case when == never:
			t.warn(pointer+"/condition", RuleUnreachable, "delete the rule, or correct its condition", "the condition never holds: nothing is delegated to %s", quote(h.TargetAgent))
		case sure > 0:
			t.warn(pointer, RuleUnreachable, fmt.Sprintf("put it before rule %d, or give that one a condition", sure), "the rule is never used: rule %d before it delegates every run", sure)
		case self && when == always:
			t.fail(pointer+"/target_agent", RuleLoop, "name another agent", "the agent delegates every run to itself: it would never end")
		}
		if when == always && sure == 0 {
			sure = i + 1
		}
	}
}

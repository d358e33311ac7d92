package definitions

import (
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
)

// uncallable reports calls in the offline model's script that must fail,
// because the document does not declare the tool. Only a worker knows the tools
// of MCP servers and OpenAPI descriptions, and the names of a team's members as
// tools; documents with these are not checked.
func uncallable(d *aaif.Definition) (out []aaif.Problem) {
	m, o := d.Agent.Model, d.Agent.Orchestration
	if m == nil || m.Provider != aaif.ProviderCustom || m.ProviderID != builtin.ProviderID || m.Preferred != builtin.Script || m.Params == nil || o != nil && len(o.Subagents) > 0 {
		return nil
	}
	var declared []string
	for i := range d.Agent.Tools {
		t := &d.Agent.Tools[i]
		if p := t.EffectiveProtocol(); p != aaif.ProtocolFunction && p != aaif.ProtocolHTTP {
			return nil
		}
		declared = append(declared, t.Name)
	}
	for turn, names := range builtin.Calls(m.Params.Extended) {
		for i, name := range names {
			if slices.Contains(declared, name) {
				continue
			}
			p := aaif.Problem{Pointer: fmt.Sprintf("/agent/model/params/extended/script/%d/call/%d/name", turn, i), Rule: aaif.RuleReference, Severity: aaif.SeverityWarning,
				Message: fmt.Sprintf("script turn %d calls %q, and the document declares no such tool: the call fails", turn+1, name), Hint: "declare it in tools"}
			if near := aaif.Nearest(name, declared); near != "" {
				p.Hint = fmt.Sprintf("did you mean %q?", near)
			}
			out = append(out, p)
		}
	}
	return out
}

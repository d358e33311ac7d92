package agents

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/mesh"
)

// absence is a tool that a document declares and its agent does not have. The
// reason is published on the mesh; details for the operator only are in notices
// and the log.
type absence struct{ tool, why string }

func (a absence) String() string { return fmt.Sprintf("tool %s is not offered: %s", a.tool, a.why) }

// missing returns the tools that the document declares and that are currently
// not offered, whatever their protocol.
func (s *toolset) missing() []absence {
	out := append([]absence(nil), s.absent...)
	for _, e := range s.entries {
		e.mu.Lock()
		if e.lacks != "" {
			out = append(out, absence{e.Name, e.lacks})
		}
		e.mu.Unlock()
	}
	return out
}

// lacking records why an entry offers no tool, given its listed tools, the
// number of those that are offered, and the error of listing.
func (e *toolEntry) lacking(offered int, listed []listedTool, failed error) {
	why := ""
	var u *tool.Error
	switch {
	case offered > 0 || e.team: // the directory reports missing members of a team
	case errors.Is(failed, outbound.ErrRefused), errors.Is(failed, outbound.ErrCredential), errors.Is(failed, tool.ErrRefused):
		why = "its operator has not allowed it, or its credential cannot be read"
	case errors.Is(failed, tool.ErrNotFound):
		why = "its server has no such tool"
	case failed != nil && mayPass(failed):
		why = "its server cannot be reached now"
	case errors.As(failed, &u), failed != nil:
		why = "its server or its description cannot be used"
	case len(listed) == 0:
		why = "its server lists no tool for it"
	default:
		why = "its schemas are refused, or another tool has its name"
		for _, t := range listed {
			if t.guarded != nil {
				why = "another tool has its name, or there are too many"
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lacks = why
}

// demand returns an error that lists the tools which are not offered, if
// Options.RequireTools is set.
func (s *toolset) demand() error {
	if !s.required {
		return nil
	}
	var bad []error
	for _, m := range s.missing() {
		bad = append(bad, errors.New(m.String()))
	}
	return errors.Join(bad...)
}

// maxMissing bounds how many tools are named in the agent's health.
const maxMissing = 16

// health is degraded while a tool that the document declares is not offered:
// the agent answers, but not as its author intended.
func (s *toolset) health() mesh.Health {
	missing := s.missing()
	if len(missing) == 0 {
		return mesh.Health{Status: "healthy"}
	}
	reason := missing[0].String()
	if n := len(missing) - 1; n > 0 {
		reason += fmt.Sprintf("; and %d more", n)
	}
	var all []string
	for _, m := range missing[:min(len(missing), maxMissing)] {
		all = append(all, m.String())
	}
	return mesh.Health{Status: "degraded", Details: map[string]any{"reason": reason, "tools_missing": all}}
}

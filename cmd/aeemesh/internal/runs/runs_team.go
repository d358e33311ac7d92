package runs

import (
	"fmt"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate/progress"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/state"
)

// teamView is the progress of a team's run.
type teamView struct {
	Pattern  progress.Pattern       `json:"pattern"`
	Position *aaif.PipelinePosition `json:"position,omitempty"`
	Members  []progress.Outcome     `json:"members,omitempty"` // members that have ended, without their outputs
}

// teamOf returns the team of a run; nil if it has none.
func teamOf(c *state.Checkpoint) *teamView {
	standing, err := progress.Of(c.Mesh.Plan)
	if err != nil || standing == nil {
		return nil
	}
	return &teamView{standing.Pattern, c.Doc.PipelinePosition, standing.Outcomes}
}

// showTeam prints which members of a team have ended, are working, or have not
// begun.
func showTeam(a *session.App, v runView) {
	if v.Team != nil {
		a.Term.Line("%s", term.OneLine(v.Team.words()))
	}
	if state.Terminal(aaif.RunStatus(v.Status)) {
		return
	}
	for i, c := range v.Calls {
		if i == maxShownCalls {
			a.Term.Line("and %d more", len(v.Calls)-i)
			break
		}
		a.Term.Line("waits for %s, task %s, for %s", term.OneLine(c.To), term.OneLine(c.ID), term.Span(time.Since(c.At)))
	}
}

// maxShownCalls is how many open calls are shown.
const maxShownCalls = 12

func (t *teamView) words() string {
	failed := 0
	for i := range t.Members {
		if t.Members[i].Err != nil {
			failed++
		}
	}
	words := fmt.Sprintf("%s: %s ended", strings.ReplaceAll(string(t.Pattern), "_", " "), term.Counted(len(t.Members), "member has", "members have"))
	if failed > 0 {
		words += fmt.Sprintf(", %d of them failed", failed)
	}
	p := t.Position
	if p == nil || t.Pattern != progress.Pipeline {
		return words
	}
	if len(p.CompletedSteps) > 0 {
		words += "; done: " + strings.Join(p.CompletedSteps, ", ")
	}
	if len(p.RemainingSteps) > 0 {
		words += "; to come: " + strings.Join(p.RemainingSteps, ", ")
	}
	return words
}

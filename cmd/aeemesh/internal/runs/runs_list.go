package runs

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/state"
)

// Statuses are the values of --status, from the specification.
var Statuses = []string{string(aaif.RunRunning), string(aaif.RunPaused), string(aaif.RunAwaitingApproval), string(aaif.RunAwaitingToolResult),
	string(aaif.RunCompleted), string(aaif.RunFailed), string(aaif.RunMigrating)}

// summary is a run in a line.
type summary struct {
	Run       string    `json:"run"`
	Task      string    `json:"task,omitempty"`
	Entity    string    `json:"entity"`
	Status    string    `json:"status"`
	Step      string    `json:"step,omitempty"`
	Iteration int64     `json:"iteration"`
	Epoch     uint64    `json:"epoch"`
	Owner     string    `json:"owner,omitempty"`
	At        time.Time `json:"checkpoint_at"`
	Revision  uint64    `json:"revision"`
	WaitsFor  []string  `json:"waits_for,omitempty"` // people, if the run is awaiting_approval
	Sealed    string    `json:"sealed,omitempty"`    // the key's id
	Problem   string    `json:"problem,omitempty"`
}

func summarize(rec state.Record) summary {
	s := summary{Run: rec.ID.Run, Entity: rec.ID.Entity, At: rec.Time, Revision: rec.Revision}
	h, err := rec.Header()
	if err != nil {
		s.Status, s.Problem = "unreadable", err.Error()
		return s
	}
	s.Task, s.Status, s.Step, s.Iteration = h.TaskID, string(h.Status), string(h.Step), h.Iteration
	s.Epoch, s.Owner, s.Sealed = h.Epoch, h.Owner, h.Sealed
	for _, w := range h.Waits {
		if h.Status == aaif.RunAwaitingApproval && w.Wakes() && !slices.Contains(s.WaitsFor, w.Entity) {
			s.WaitsFor = append(s.WaitsFor, w.Entity)
		}
	}
	return s
}

// ListCommand is "aeemesh runs list".
func ListCommand(a *session.App) *cobra.Command {
	var entity, status string
	var limit int
	c := session.Connects(&cobra.Command{
		Use:   "list",
		Short: "List runs, the latest first",
		Example: `  aeemesh runs list
  aeemesh runs list --entity agent.reviewer --status running,awaiting_approval
  aeemesh runs list --limit 0 --json | jq -r 'select(.status == "failed") | .run'

  # with the nats CLI:
  nats kv ls aee_state`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			wanted, err := statusesOf(cmd, status)
			if err != nil {
				return err
			}
			if limit < 0 {
				return outcome.Usagef(cmd, "--limit %d: give a number of runs, or 0 for all", limit)
			}
			if err := CheckEntity(cmd, entity); err != nil {
				return err
			}
			s, err := a.Open(ctx, cmd, session.Options{})
			if err != nil {
				return err
			}
			defer s.Close()
			runs, err := Open(a, cmd, s)
			if err != nil {
				return err
			}
			var list []summary
			seen, more := map[string]bool{}, false
			for rec, err := range runs.states.Latest(ctx, entity, func(s aaif.RunStatus) bool {
				return wanted == nil || slices.Contains(wanted, string(s)) || s == aaif.RunAwaitingToolResult && slices.Contains(wanted, string(aaif.RunRunning))
			}) {
				if err != nil {
					return err
				}
				l := summarize(rec)
				if l.Step == string(state.StepHandoff) && l.Task == "" || wanted != nil && l.Problem != "" || seen[l.Entity+" "+l.Run] {
					continue // the first is not a run: the state that came with a delegated task
				}
				if more = limit > 0 && len(list) == limit; more {
					break
				}
				seen[l.Entity+" "+l.Run] = true
				list = append(list, l)
			}
			sorted.By(list, latestFirst)
			return printRuns(a, list, more)
		}),
	})
	EntityFlag(c, &entity)
	c.Flags().StringVar(&status, "status", "", "in one of these `states` only, comma-separated: "+strings.Join(Statuses, ", ")+"; running is awaiting_tool_result, too")
	c.Flags().IntVar(&limit, "limit", 50, "at most so many; 0 for all")
	return c
}

func latestFirst(a, b summary) int {
	return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Run, b.Run))
}

func statusesOf(cmd *cobra.Command, list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	var out []string
	for s := range strings.SplitSeq(list, ",") {
		s = strings.TrimSpace(s)
		if err := outcome.OneOf(cmd, "status", s, Statuses...); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func printRuns(a *session.App, list []summary, more bool) error {
	if len(list) == 0 && !a.Term.JSON {
		a.Term.Say("no runs")
		a.Term.Hint("\"aeemesh send --durable ENTITY …\" begins one; \"aeemesh queues\" shows tasks that no worker has begun.")
		return nil
	}
	header := []string{"run", "task", "agent", "status", "step", "turns", "epoch", "last step"}
	err := term.List(a.Term, header, list, func(l summary) []string {
		step, status := l.Step, l.Status
		if l.Epoch == 0 && status == string(aaif.RunPaused) {
			status = "not begun" // a command is stored for a run that has not begun
		}
		if len(l.WaitsFor) > 0 {
			step = "for " + term.OneLine(strings.Join(l.WaitsFor, ", "))
		}
		if l.Problem != "" {
			step = l.Problem
		}
		return []string{ShortRun(l.Run), l.Task, l.Entity, status, step, strconv.FormatInt(l.Iteration, 10),
			strconv.FormatUint(l.Epoch, 10), term.Ago(l.At)}
	})
	if more {
		a.Term.Say("there are more: --limit 0 shows all")
	}
	return err
}

package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

func runsShowCommand(a *session.App) *cobra.Command {
	var entity string
	var document bool
	var at uint64
	c := session.Connects(&cobra.Command{
		Use:   "show RUN",
		Short: "Show a run's timeline, and what it waits for",
		Long: `Shows what a run has done, checkpoint by checkpoint, as far as they are kept,
and its state. A lost tool call is shown as unknown, with the commands that
settle it.`,
		Example: `  aeemesh runs show 0f4c
  aeemesh runs show 01JD3YZ... --entity agent.reviewer     # by the task's id
  aeemesh runs show 0f4c --document > state.json           # the AAIF Agent State document
  aeemesh runs show 0f4c --document --at 17

  # with the nats CLI:
  nats kv get aee_state agent.reviewer.RUN_ID`,
		Args:              outcome.Arguments("RUN"),
		ValidArgsFunction: session.Completing(a, CompleteRuns),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return aboutRun(a, ctx, cmd, (*Store).Look, args[0], entity, session.Options{}, func(_ *session.Session, runs *Store, rec state.Record) error {
				if document {
					if at != 0 {
						var err error
						if rec, err = runs.At(ctx, rec.ID, at); err != nil {
							return notKept(err, at)
						}
					}
					return showDocument(a, runs, rec)
				}
				history, err := runs.History(ctx, rec.ID)
				if err != nil {
					return err
				}
				return showRun(a, runs, rec, state.Timeline(runs.Codec, history))
			})
		}),
	})
	EntityFlag(c, &entity)
	a.AddStateKeyFlag(c.Flags())
	c.Flags().BoolVar(&document, "document", false, "print the Agent State document instead")
	c.Flags().Uint64Var(&at, "at", 0, "with --document: the checkpoint of this `revision`, not the latest")
	return c
}

// A finder is [Store.Find] or [Store.Look].
type finder = func(r *Store, ctx context.Context, name, entity string) (state.Record, state.Header, error)

// aboutRun connects, finds the run, and calls do.
func aboutRun(a *session.App, ctx context.Context, cmd *cobra.Command, find finder, name, entity string, o session.Options, do func(*session.Session, *Store, state.Record) error) error {
	if err := CheckEntity(cmd, entity); err != nil {
		return err
	}
	if o.Config == nil {
		o.Config = a.LaneClient(cmd) // it looks for tasks in the queue
	}
	s, err := a.Open(ctx, cmd, o)
	if err != nil {
		return err
	}
	defer s.Close()
	runs, err := Open(a, cmd, s)
	if err != nil {
		return err
	}
	rec, _, err := find(runs, ctx, name, entity)
	if err != nil {
		return notBegun(ctx, s, name, entity, err)
	}
	return do(s, runs, rec)
}

func notKept(err error, revision uint64) error {
	if errors.Is(err, state.ErrNotFound) {
		return outcome.Hinted(outcome.NotFound("the checkpoint at revision %d is not kept", revision), "\"aeemesh runs show RUN\" lists those that are.")
	}
	return err
}

// showDocument prints the document as JSON, decrypted if the key is given.
func showDocument(a *session.App, runs *Store, rec state.Record) error {
	c, err := runs.decode(rec)
	if err != nil {
		return err
	}
	text, err := state.Codec{}.Marshal(c)
	if err != nil {
		return err
	}
	if a.Term.JSON {
		a.Term.Raw(text)
		return nil
	}
	a.Term.Line("%s", term.Indented(text))
	return nil
}

// runView is the output of "runs show --json".
type runView struct {
	summary
	Usage    state.Usage           `json:"usage,omitzero"`
	Attempt  int                   `json:"attempt,omitempty"`
	Error    *aaif.RunError        `json:"error,omitempty"`
	Approval *aaif.ApprovalRequest `json:"approval_request,omitempty"`
	Effects  []state.Effect        `json:"effects,omitempty"`
	Waits    []state.Wait          `json:"waits,omitempty"`
	Calls    []state.Call          `json:"calls,omitempty"` // tasks that it has sent and that have not ended
	Team     *teamView             `json:"team,omitempty"`
	Reply    json.RawMessage       `json:"reply,omitempty"`
	Handed   *state.Handed         `json:"handed,omitempty"`     // the agent to which the task was delegated
	Vouched  string                `json:"vouched_by,omitempty"` // the platform that vouches for the task's sender
	Noted    []state.Noted         `json:"noted,omitempty"`      // commands for a run that has not begun
	Timeline []state.Moment        `json:"timeline"`
}

func showRun(a *session.App, runs *Store, rec state.Record, timeline []state.Moment) error {
	v := runView{summary: summarize(rec), Timeline: timeline}
	c, err := runs.Codec.DecodeRecord(rec)
	if err == nil {
		v.Usage, v.Attempt, v.Error, v.Approval = c.Mesh.Usage, c.Mesh.Attempt, c.Doc.Error, c.Doc.ApprovalRequest
		v.Effects, v.Reply, v.Handed = c.Mesh.Effects, c.Mesh.Reply, c.Mesh.Handed
		v.Calls, v.Team, v.Vouched = c.Mesh.Calls, teamOf(c), c.Mesh.Vouched()
		if v.Epoch == 0 {
			v.Noted = c.Mesh.Noted
		}
		if c.Doc.Status == aaif.RunAwaitingApproval {
			v.Waits = slices.DeleteFunc(c.Mesh.Waits, func(w state.Wait) bool { return !w.Wakes() })
		}
	} else {
		v.Problem = err.Error()
	}
	if a.Term.JSON {
		return a.Term.Object(v)
	}
	status := v.Status
	if len(v.Noted) > 0 {
		status = "not begun"
	}
	a.Term.Line("run %s of %s, task %s: %s", v.Run, v.Entity, v.Task, status)
	for _, n := range v.Noted {
		a.Term.Line("noted for when its task comes: %s by %s, %s", term.OneLine(strings.TrimPrefix(n.Intent, "mesh.task.")), term.OneLine(n.From), term.Ago(n.At))
	}
	if v.Owner != "" && !state.Terminal(aaif.RunStatus(v.Status)) {
		a.Term.Line("owner %s, epoch %d, last step %s", v.Owner, v.Epoch, term.Ago(v.At))
	}
	if v.Vouched != "" {
		from := "?"
		if task, err := envelope.ParseStored(c.Mesh.Task); err == nil {
			from = task.From
		}
		a.Term.Line("sent by %s, by the word of %s: no key that is trusted here proves it", term.OneLine(from), term.OneLine(v.Vouched))
	}
	if v.Problem != "" {
		a.Term.Warn("only its header can be read: %s", term.Printable(v.Problem))
	}
	if u := v.Usage; u != (state.Usage{}) {
		a.Term.Line("%s of the model, %s, %d tokens in, %d out", term.Counted(int(u.ModelCalls), "turn", "turns"), term.Counted(int(u.ToolCalls), "tool call", "tool calls"), u.InputTokens, u.OutputTokens)
		if cost := costLine(u); cost != "" {
			a.Term.Line("%s", cost)
		}
	}
	showTeam(a, v)
	a.Term.Line("")
	printTimeline(a, timeline)
	showWaiting(a, v)
	return nil
}

// costLine formats the cost of a run; "" if nothing is known of it.
func costLine(u state.Usage) string {
	var parts []string
	if u.CostNanoUSD > 0 {
		parts = append(parts, "$"+model.USD(u.CostNanoUSD).String())
	}
	if u.UnpricedCalls > 0 {
		parts = append(parts, term.Counted(int(u.UnpricedCalls), "turn", "turns")+" of a model without a known price")
	}
	if u.EstimatedTokens > 0 {
		parts = append(parts, fmt.Sprintf("the provider did not count: about %d tokens, $%s", u.EstimatedTokens, model.USD(u.EstimatedNanoUSD)))
	}
	if u.TreeTokens > u.InputTokens+u.OutputTokens {
		parts = append(parts, fmt.Sprintf("all runs of its corr: %d tokens, $%s", u.TreeTokens, model.USD(u.TreeCostNanoUSD)))
	}
	return strings.Join(parts, "; ")
}

func printTimeline(a *session.App, timeline []state.Moment) {
	var rows [][]string
	for _, m := range timeline {
		rows = append(rows, []string{strconv.FormatUint(m.Revision, 10), m.At.Local().Format("15:04:05.000"), string(m.Status), stepName(m), joinEvents(m)})
	}
	a.Term.Table([]string{"revision", "time", "status", "step", "what"}, rows)
}

// stepName formats a step: "receipt lint (1.2s)".
func stepName(m state.Moment) string {
	name := string(m.Step.Kind)
	if m.Step.Name != "" {
		name += " " + m.Step.Name
	}
	if m.Step.MS > 0 {
		name += " (" + (time.Duration(m.Step.MS) * time.Millisecond).String() + ")"
	}
	return name
}

// joinEvents joins the events of a step on one line.
func joinEvents(m state.Moment) string {
	if m.Problem != "" {
		return m.Problem
	}
	return strings.Join(m.Events, "; ")
}

// showWaiting prints what ended the run, or what a person has to do.
func showWaiting(a *session.App, v runView) {
	if v.Error != nil {
		what := "failed"
		if !state.Terminal(aaif.RunStatus(v.Status)) {
			what = "its last try failed"
		}
		a.Term.Line("\n%s: %s: %s", what, term.OneLine(v.Error.Code), term.OneLine(v.Error.Message))
	}
	if v.Status == string(aaif.RunCompleted) {
		a.Term.Say("\nits result: aeemesh result %s %s", v.Task, v.Entity)
	}
	for _, w := range v.Waits {
		until := ""
		if !w.Until.IsZero() {
			until = ", until " + w.Until.Local().Format(time.DateTime)
		}
		a.Term.Steps(fmt.Sprintf("\nIt waits for %s%s:", term.OneLine(w.Entity), until), "aeemesh inbox "+w.TaskID, fmt.Sprintf("aeemesh answer %s --from %s \"…\"", w.TaskID, w.Entity))
	}
	for _, e := range v.Effects {
		if e.Status == state.EffectUnknown {
			begun := strings.TrimSpace("begun " + term.Ago(e.At)) // another platform may not say when
			a.Term.Say("\nThe outcome of %s (%s) is unknown: it was %s and no receipt was written.", term.OneLine(e.ID), term.OneLine(e.Tool), begun)
			a.Term.Steps("Find out, then state the outcome:",
				fmt.Sprintf("aeemesh runs settle %s %s --done '{…}'        # it happened, and this is what it returned", ShortRun(v.Run), e.ID),
				fmt.Sprintf("aeemesh runs settle %s %s --failed 'reason'   # it did not happen, and shall not", ShortRun(v.Run), e.ID),
				fmt.Sprintf("aeemesh runs settle %s %s --repeat            # call it again, under the same idempotency key", ShortRun(v.Run), e.ID))
		}
	}
	pauses := func(n state.Noted) bool { return n.Intent == intents.TaskPause }
	if v.Status == string(aaif.RunPaused) && (len(v.Noted) == 0 || slices.ContainsFunc(v.Noted, pauses)) {
		a.Term.Steps("\nIt is paused:", "aeemesh runs resume "+ShortRun(v.Run))
	}
}

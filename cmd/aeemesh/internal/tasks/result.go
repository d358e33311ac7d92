package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/await"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/envelopes"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/traffic"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// ResultCommand returns "aeemesh result".
func ResultCommand(a *session.App) *cobra.Command {
	var follow bool
	var entity string
	c := session.Connects(&cobra.Command{
		Use:   "result ID [ENTITY]",
		Short: "Print the result of a durable task",
		Long: `Prints the payload of a durable task's result, by the id of the task or of its
run (or the beginning of that): later, from anywhere, as often as you like, for
as long as the run is kept (30 days).
An error envelope is printed as an error, and the exit status is that of "send";
where there is no result yet it is 3, unless --follow waits for it. The result
of a dead letter's task is its error, until its retry has ended: "dead retry
--wait" waits for that.

ENTITY is the agent that the task was sent to. Without it all agents' replies
and runs are searched: --follow then waits for a task that a worker has begun.`,
		Example: `  aeemesh result 01JD3YZ8M4...
  aeemesh result 01JD3YZ8M4... agent.writer --follow     # with the stream, from its beginning

  # with the nats CLI:
  nats sub aee.reply.agent.writer.01JD3YZ8M4...          # as it comes
  nats stream get KV_aee_state --last-for '$KV.aee_reply.agent.writer.RUN'`,
		Args:              outcome.Arguments("ID", "[ENTITY]"),
		ValidArgsFunction: session.Completing(a, runs.CompleteTasks),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			switch {
			case entity != "" && len(args) == 2 && args[1] != entity:
				return outcome.Usagef(cmd, "ENTITY is %s, and --entity %s: give one", args[1], entity)
			case entity != "" && len(args) == 1:
				if err := runs.CheckEntity(cmd, entity); err != nil {
					return err
				}
				args = append(args, entity)
			}
			return awaitResult(a, ctx, cmd, args, follow)
		}),
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "show the stream, and wait for the result")
	c.Flags().StringVarP(&entity, "entity", "e", "", "the `agent`, as \"runs show\" takes it; the same as ENTITY")
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

func awaitResult(a *session.App, ctx context.Context, cmd *cobra.Command, args []string, follow bool) error {
	if len(args) == 2 {
		if err := subject.ValidateEntity(args[1]); err != nil {
			return outcome.Usagef(cmd, "%w", err)
		}
	}
	s, err := a.Open(ctx, cmd, session.Options{Signed: true, Config: a.LaneClient(cmd)})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	id, entity := args[0], ""
	if len(args) == 2 {
		entity = args[1]
	}
	store, err := runs.Open(a, cmd, s)
	if err != nil {
		return err
	}
	if id, entity, err = named(s, ctx, store, id, entity); err != nil {
		return err
	}
	opts, view := mesh.ResultOptions{Follow: follow}, traffic.StreamView{Term: a.Term, Out: a.Term.Data}
	if follow {
		opts.OnStream = view.Show
	}
	mind := func() {}
	if follow {
		a.Term.Progress("waiting for task %s of %s; \"aeemesh runs show %s -e %s\" shows whether it has begun", term.Printable(id), entity, term.Printable(id), entity)
		mind = await.WarnUntaken(ctx, s, entity)
	}
	reply, err := s.Node.Result(ctx, entity, id, opts)
	mind()
	view.End()
	if follow && await.Over(err) { // it is not known whether the task exists at all
		if why, hint := await.StillUntaken(ctx, s, entity); why != "" {
			return outcome.Hinted(outcome.Stopped(err, "stopped waiting: task %s of %s has no result yet: %s", term.Printable(id), entity, why), "%s", hint)
		}
		return outcome.Hinted(outcome.Stopped(err, "stopped waiting: task %s of %s has no result yet", term.Printable(id), entity),
			"\"aeemesh runs show %s -e %s\" shows how far it is, \"aeemesh queues %s\" what waits.", term.Printable(id), entity, entity)
	}
	return printResult(s, ctx, id, entity, reply, &view, err)
}

// Retry retries a dead letter, waits for the reply to that, and prints it. retried reports
// whether the task was submitted again.
func Retry(s *session.Session, ctx context.Context, seq uint64) (retried bool, err error) {
	a := s.App
	letter, err := s.Node.Durable().Dead.Get(ctx, seq)
	if err != nil {
		return false, err
	}
	view := traffic.StreamView{Term: a.Term, Out: a.Term.Data}
	a.Term.Progress("retrying task %s of %s", term.Printable(letter.TaskID), letter.Entity)
	mind := await.WarnUntaken(ctx, s, letter.Entity)
	receipt, reply, err := s.Node.Retry(ctx, seq, mesh.ResultOptions{OnStream: view.Show})
	mind()
	view.End()
	switch {
	case receipt.Seq == 0 && errors.Is(err, mesh.ErrNoReply):
		return true, outcome.Hinted(err, "Nothing is retried. Retry it without --wait.")
	case receipt.Seq == 0:
		return false, err
	case await.Over(err):
		return true, outcome.Hinted(outcome.Stopped(err, "stopped waiting; the retry of task %s goes on", term.Printable(letter.TaskID)),
			"\"aeemesh runs follow %s -e %s\" shows it; \"aeemesh result\" prints the old error until it has ended.", term.Printable(letter.TaskID), letter.Entity)
	}
	return true, printResult(s, ctx, letter.TaskID, letter.Entity, reply, &view, err)
}

// named returns the task and the agent that a name means; entity is the agent that was given, or "".
// It looks for a run only if no task of that name has a result: a user who may read results may lack
// the permission to read runs.
func named(s *session.Session, ctx context.Context, store *runs.Store, name, entity string) (task, agent string, err error) {
	var unfound error
	if entity == "" {
		agent, err = findEntity(s, ctx, store, name)
		if err == nil || outcome.Of(err).Exit != outcome.NotThere {
			return name, agent, err
		}
		unfound = err
	} else if runs.LikeRun(name) {
		if _, err := s.Node.Result(ctx, entity, name, mesh.ResultOptions{}); !errors.Is(err, mesh.ErrNoResult) {
			return name, entity, nil
		}
	}
	task, agent, err = store.TaskOf(ctx, s, name, entity)
	switch {
	case err != nil:
		return "", "", session.LaneError(err)
	case agent == "":
		return "", "", unfound
	}
	return task, agent, nil
}

// findEntity returns the entity that has replies to a task, or a run of it.
func findEntity(s *session.Session, ctx context.Context, store *runs.Store, id string) (string, error) {
	d, err := s.Lane()
	if err != nil {
		return "", err
	}
	found, err := d.Replies.Find(ctx, id)
	if err != nil && !errors.Is(err, jetstream.ErrNotFound) {
		return "", session.LaneError(err)
	}
	if len(found) == 0 {
		if found, err = store.Entities(ctx, id); err != nil {
			return "", session.LaneError(err)
		}
	}
	switch len(found) {
	case 0:
		return "", outcome.Hinted(outcome.NotFound("task %s has no reply yet, or there is none of this id", term.Printable(id)),
			"With \"aeemesh result %s ENTITY --follow\" you can wait for it; \"aeemesh runs list\" shows what goes on.", term.Printable(id))
	case 1:
		return found[0], nil
	}
	return "", outcome.Hinted(fmt.Errorf("%d entities have a task %s", len(found), term.Printable(id)), "Name the one you mean: %s.", strings.Join(found, ", "))
}

// printResult prints the end of a durable task.
func printResult(s *session.Session, ctx context.Context, id, entity string, reply *envelope.Envelope, view *traffic.StreamView, err error) error {
	if err != nil {
		return await.ResultFailed(ctx, s, id, entity, reply, err)
	}
	return printReply(s.App, reply, view)
}

// printReply prints a result, except text that was streamed already, and warns if the answer is
// incomplete.
func printReply(a *session.App, reply *envelope.Envelope, view *traffic.StreamView) error {
	if truncated(reply.Payload) {
		a.Term.Warn("the answer of %s ends early: it was cut off at the model's token limit (model.params.max_tokens)", reply.From)
	}
	if a.Term.JSON {
		return envelopes.Print(a, reply)
	}
	if text, ok := term.TextOf(reply.Payload); !ok || !view.Said(text) {
		a.Term.Payload(reply.Payload)
	}
	return nil
}

// truncated reports whether a result says that the answer was cut off at the model's token limit.
func truncated(payload json.RawMessage) bool {
	var said struct {
		Usage struct {
			Truncated bool `json:"truncated"`
		} `json:"usage"`
	}
	return json.Unmarshal(payload, &said) == nil && said.Usage.Truncated
}

// submitTask stores a task in the durable lane, and waits for its result unless
// flags say otherwise.
func submitTask(s *session.Session, ctx context.Context, task *envelope.Envelope, f *sendFlags) error {
	a := s.App
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	if !f.due.IsZero() && !f.due.After(serverTime(s, ctx)) {
		a.Term.Warn("%s has passed: the task begins now", f.due.Format(time.RFC3339))
	}
	if err := knowsKey(s, ctx, task); err != nil {
		return err
	}
	if err := warnOfExpiry(a, task, f); err != nil {
		return err
	}
	opts := mesh.SubmitOptions{At: f.due, After: f.after, CBOR: f.cbor, OnRetry: await.WarnRetry(a.Term)}
	if f.detach {
		receipt, err := s.Node.Submit(ctx, task, opts)
		if err != nil {
			return await.SubmitFailed(task, err)
		}
		return submitted(s, ctx, task, receipt)
	}
	result, view := mesh.ResultOptions{Follow: true}, traffic.StreamView{Term: a.Term, Out: a.Term.Data}
	if requires, _ := task.Requirements(); requires.Stream {
		result.OnStream = view.Show
	}
	a.Term.Progress("submitting %s to %s, corr %s", task.ID, task.To, task.Corr)
	mind := await.WarnUntaken(ctx, s, task.To)
	receipt, reply, err := s.Node.Perform(ctx, task, opts, result)
	mind()
	view.End()
	if err != nil && receipt.Seq == 0 {
		return await.SubmitFailed(task, err)
	}
	if receipt.Duplicate {
		a.Term.Note("the task was there already")
	}
	if await.Over(err) && !receipt.Due.IsZero() {
		if err := notBegun(s, ctx, task, receipt.Due, err); err != nil {
			return err
		}
	}
	return printResult(s, ctx, task.ID, task.To, reply, &view, err)
}

// notBegun says what becomes of a delayed task whose wait is over before its time has come, or
// whose stream is gone; nil if it has been handed to the agent's workers.
func notBegun(s *session.Session, ctx context.Context, task *envelope.Envelope, due time.Time, over error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	at := due.Local().Format(dueTime)
	switch {
	case s.Node.Durable().Queue.ScheduleMissing(ctx):
		return outcome.Hinted(outcome.Stopped(over, "stopped waiting; the stream %s, which kept the task until %s, is gone: the task is lost, unless it was due before", jetstream.StreamSchedule, at),
			"\"aeemesh apply\" makes the stream again. \"aeemesh runs show %s -e %s\" shows whether the task has begun; if not, send it again.", task.ID, task.To)
	case due.After(serverTime(s, ctx)):
		return outcome.Hinted(outcome.Stopped(over, "stopped waiting; the task begins at %s", at), await.Again, task.ID, task.To, task.ID, task.To)
	}
	return nil
}

// serverTime returns the server's time, or this machine's if the server does not say it.
func serverTime(s *session.Session, ctx context.Context) time.Time {
	if now, err := s.Node.Durable().Clock.Now(ctx); err == nil {
		return now
	}
	return time.Now()
}

// dueTime is how the time is printed at which a task is due.
const dueTime = "2006-01-02 15:04:05 MST"

// warnOfExpiry warns of a delayed task whose key expires before its time: its agent will refuse it.
func warnOfExpiry(a *session.App, task *envelope.Envelope, f *sendFlags) error {
	due := f.due
	if f.after > 0 {
		due = time.Now().Add(f.after)
	}
	if due.IsZero() || task.Sig != nil {
		return nil
	}
	signer, err := a.Signer(task.From)
	if err != nil || signer == nil {
		return err
	}
	keys, err := a.Keys()
	if err != nil {
		return err
	}
	for _, key := range keys.Trusted {
		if kid := signer.KID(); key.KID == kid && !key.Expires.IsZero() && !key.Expires.After(due) {
			a.Term.Warn("key %q expires at %s, before the task is due: a worker that checks signatures will refuse the task", kid, key.Expires.Local().Format(dueTime))
		}
	}
	return nil
}

// knowsKey checks, before a durable task is stored, whether a running worker
// knows the key that was chosen automatically: if not, the task would become a
// dead letter. If no worker answers soon, the task is stored.
func knowsKey(s *session.Session, ctx context.Context, task *envelope.Envelope) error {
	if s.App.Sign.Kid != session.SignAuto || task.Sig != nil {
		return nil
	}
	signer, err := s.App.Signer(task.From)
	if err != nil || signer == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	var refused *envelope.Error
	_, err = s.Node.Query(ctx, task.To, intents.StatusPing, struct{}{}, nil)
	if !errors.As(err, &refused) || !refused.FromPeer() || refused.Code != envelope.CodeKeyUnknown && refused.Code != envelope.CodeKeyInvalid && refused.Code != envelope.CodeFromDenied {
		return nil
	}
	return outcome.Hinted(&outcome.SaidError{Text: string(refused.Code) + ": nothing is stored: a worker of " + task.To + " would not take the task: " + refused.Message, Cause: refused}, "%s", outcome.HintForCode(refused))
}

// submitted prints how to follow a detached task.
func submitted(s *session.Session, ctx context.Context, task *envelope.Envelope, r mesh.Submitted) error {
	if why, hint := await.Untaken(ctx, s, task.To); why != "" && r.Due.IsZero() {
		defer func() {
			s.App.Term.Warn("%s", why)
			s.App.Term.Hint(hint)
		}()
	}
	if s.App.Term.JSON {
		return s.App.Term.Object(r)
	}
	s.App.Term.Line("%s", r.TaskID)
	verb := "stored"
	switch {
	case r.Duplicate:
		verb = "was stored already"
	case !r.Due.IsZero():
		verb = "stored for " + r.Due.Local().Format(dueTime)
	}
	s.App.Term.Good("task %s %s for %s, run %s", r.TaskID, verb, task.To, runs.ShortRun(r.Run))
	s.App.Term.Hint(fmt.Sprintf("\"aeemesh result %s %s --follow\" waits for its result.", r.TaskID, task.To))
	return nil
}

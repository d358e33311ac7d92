package inbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/await"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/envelopes"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/schema"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// AnswerCommand returns "aeemesh answer".
func AnswerCommand(a *session.App) *cobra.Command {
	var decline, sender string
	c := session.Connects(&cobra.Command{
		Use:   "answer TASK [PAYLOAD|-|@FILE]",
		Short: "Answer what an agent has asked a person",
		Long: `Stores the answer to a task of "aeemesh inbox", in your name, signed if you
have a key. TASK is its id, or the beginning of it. PAYLOAD is a JSON object,
or text, which becomes {"text": …}; "-" reads it from standard input, @FILE
from a file. Where the asker wants an answer of a certain form
(requires.result_schema) it is held to that, and a text may stand for an object
with one required member, or for a choice between such objects.

The first answer counts. One that comes too late, or after the task was
withdrawn, is refused. --decline refuses the task: the asker gets the error
E_DECLINED with your reason.

The exit status is 3 if the answer is stored and nothing waits for it: a live
task has asked, and its worker is gone. To find that out, your NATS user must be
allowed to read runs and to ask workers.`,
		Example: `  aeemesh answer 01M7YES "Yes, ship it."
  aeemesh answer 01M7YES '{"verdict":"approve"}'
  aeemesh answer 01M7YES @review.md --from human.ada
  aeemesh answer 01M7YES --decline "not my department"

  # with the nats CLI, for a task of human.ada's with this id, from agent.lead, with this corr:
  nats pub aee.reply.human.ada.01M7YES9VX2D7Z0H4T1Q8RB3CF '{"v":"1","id":"{{ID}}","ts":"{{TimeStamp}}","type":"result",
    "from":"human.ada","to":"agent.lead","intent":"human.ask","corr":"workflow-1","reply_to":"01M7YES9VX2D7Z0H4T1Q8RB3CF",
    "priority":"normal","payload":{"text":"Yes, ship it."}}'`,
		Args:              outcome.Arguments("TASK", "[PAYLOAD]"),
		ValidArgsFunction: completeAsks(a, false),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return answerOne(a, ctx, cmd, args, decline, sender)
		}),
	})
	c.Flags().StringVar(&decline, "decline", "", "do not do it, for this `reason`")
	addSender(c.Flags(), &sender)
	c.Flags().StringVar(&a.As, "from", "", "who answers: an `entity` (default the key's, where it has one, else human.<your login>)")
	session.BindEnv(c.Flags(), "from", "AEEMESH_FROM")
	a.AddSignFlags(c.Flags(), session.SignAll)
	return c
}

func answerOne(a *session.App, ctx context.Context, cmd *cobra.Command, args []string, decline, sender string) error {
	declines := cmd.Flags().Changed("decline")
	switch {
	case declines == (len(args) == 2):
		return outcome.Usagef(cmd, "give an answer, or --decline with a reason")
	case declines && decline == "":
		return outcome.Usagef(cmd, "--decline needs a reason: the asker is told")
	case args[0] == "":
		return outcome.Usagef(cmd, "TASK is empty")
	}
	person := cmp.Or(a.As, a.DefaultFrom())
	if err := checkPerson(cmd, "--from", person); err != nil {
		return err
	}
	var payload json.RawMessage
	if !declines {
		var err error
		if payload, err = envelopes.ParsePayload(a, cmd, args[1]); err != nil {
			return err
		}
	}
	// A person may read the last reply to a task only, and earlier ones are asked for first.
	status := session.QuietAboutPermissions(session.ConnectionStatus(a.Term, false))
	s, err := a.Open(ctx, cmd, session.Options{Entity: person, Signed: true, Status: status, Config: a.LaneClient(cmd)})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	ask, err := findAsk(ctx, s.Node, person, sender, args[0])
	if err != nil {
		return noAsk(err, args[0])
	}
	if ask.Task.To != person {
		return outcome.Hinted(outcome.Refused("task %s is for %s, and you are %s", ask.Task.ID, ask.Task.To, person), "\"--from %s\" answers in that name, if you may.", ask.Task.To)
	}
	if err := refusedAnswer(ask); err != nil {
		return err
	}
	asker, err := askerOf(ctx, s, ask)
	if err != nil {
		return err
	}
	var reply *envelope.Envelope
	if declines {
		reply = ask.Task.ReplyError(envelope.Errorf(envelope.CodeDeclined, "%s", decline))
	} else {
		if payload, err = fitAnswer(ask.Schema, payload); err != nil {
			return outcome.Hinted(err, "\"aeemesh inbox %s\" shows what it must fit.", ask.Task.ID)
		}
		reply = ask.Task.Reply(envelope.TypeResult, payload)
	}
	if err := s.Node.AnswerPersonTask(ctx, ask, reply); err != nil {
		if refused := refusedAnswer(ask); refused != nil && (errors.Is(err, mesh.ErrAnswered) || errors.Is(err, mesh.ErrTooLate)) {
			return refused
		}
		return session.LaneError(err)
	}
	if asker == liveTask && await.LiveTaskGone(ctx, s, ask.Task.From, ask.Stored) {
		return outcome.WithReply(noAsker(ask), reply)
	}
	if a.Term.JSON {
		return envelopes.Print(a, reply)
	}
	word := "answered"
	if declines {
		word = "declined"
	}
	sees := term.OneLine(ask.Task.From)
	if asker == parkedRun {
		sees = "run " + runs.ShortRun(state.RunID(ask.Task.From, ask.Task.ReplyTo)) + " of " + sees
	}
	a.Term.Good("task %s %s as %s; %s will see it", ask.Task.ID, word, ask.Task.To, sees)
	return nil
}

// An asker is what the store of runs says of the task that asked a person.
type asker int

const (
	unknownAsker asker = iota // the envelope names no task of a worker, or the user may not read runs
	liveTask                  // a worker's, which has no run
	parkedRun                 // it has a run, which has not ended
)

// askerOf looks for the run of the task that asked. It returns an error if the run has ended: an
// answer has no effect then, and the event that withdraws the task was lost.
func askerOf(ctx context.Context, s *session.Session, ask *mesh.PersonTask) (asker, error) {
	if ask.Task.ReplyTo == "" {
		return unknownAsker, nil
	}
	id := state.ID{Entity: ask.Task.From, Run: state.RunID(ask.Task.From, ask.Task.ReplyTo)}
	rec, err := s.Node.Durable().States.Get(ctx, id)
	if errors.Is(err, state.ErrNotFound) && waitsFor(ask.Task) {
		return liveTask, nil
	}
	if err != nil {
		return unknownAsker, nil
	}
	h, err := rec.Header()
	switch {
	case err != nil:
		return unknownAsker, nil
	case state.Terminal(h.Status):
		return unknownAsker, outcome.Hinted(outcome.Conflict("it is too late: run %s of %s, which asked, has ended: it is %s", runs.ShortRun(id.Run), term.OneLine(id.Entity), h.Status),
			"\"aeemesh runs show %s\" shows it.", runs.ShortRun(id.Run))
	}
	return parkedRun, nil
}

// waitsFor reports whether the task that e is part of waits for e. Workers write that into
// requires.tree. Any other program may ask for a task of its own, and needs no worker to wait.
func waitsFor(e *envelope.Envelope) bool {
	_, others, err := e.ReadRequires()
	type task struct{ Entity, Task string }
	var tree struct{ Waiting []task }
	return err == nil && json.Unmarshal(others.Get("tree"), &tree) == nil && slices.Contains(tree.Waiting, task{e.From, e.ReplyTo})
}

// noAsker is the error of an answer that was stored, and that nothing reads.
func noAsker(ask *mesh.PersonTask) error {
	from := term.OneLine(ask.Task.From)
	e := envelope.Errorf(envelope.CodeNoResponders, "the answer is stored, but no worker of %s is left that ran when it asked: its task was live, and has ended with its worker", from)
	return outcome.Hinted(outcome.Remote(e), "If the task is still needed, its sender sends it again, and it asks again. A durable task would go on: \"aeemesh send --durable\".")
}

// refusedAnswer returns why an answer to the task would be refused; nil if it
// would be accepted.
func refusedAnswer(k *mesh.PersonTask) error {
	const lookHint = "\"aeemesh inbox %s\" shows it."
	switch k.State {
	case mesh.AskAnswered:
		return outcome.Hinted(outcome.Conflict("task %s was answered %s", k.Task.ID, term.Ago(k.AnsweredAt)), lookHint, k.Task.ID)
	case mesh.AskOverdue:
		return outcome.Hinted(outcome.Conflict("it is too late: the time for an answer to task %s was over %s", k.Task.ID, term.Ago(k.Until)), lookHint, k.Task.ID)
	case mesh.AskWithdrawn:
		return outcome.Hinted(outcome.Conflict("it is too late: task %s was withdrawn: %s", k.Task.ID, cmp.Or(term.OneLine(k.Reason), "no reason was given")), lookHint, k.Task.ID)
	}
	return nil
}

// fitAnswer validates an answer against the asker's schema. A plain text may
// stand for the only member that an object needs.
func fitAnswer(due, payload json.RawMessage) (json.RawMessage, error) {
	if due == nil {
		return payload, nil
	}
	s, err := schema.Compile(due)
	if err != nil {
		return payload, nil // the schema is the asker's mistake; the answer is sent unchanged
	}
	bad := s.Validate(payload)
	if bad == nil {
		return payload, nil
	}
	if text, isText := term.TextOf(payload); isText {
		values := []json.RawMessage{envelope.AppendString(nil, text)}
		if literal := bytes.TrimSpace([]byte(text)); json.Valid(literal) {
			values = append(values, literal)
		}
		names := plainTextMembers(due)
		for _, name := range names {
			for _, value := range values {
				one := append(append(append(envelope.AppendString([]byte{'{'}, name), ':'), value...), '}')
				misfit := s.Validate(one)
				if misfit == nil {
					return one, nil
				}
				if len(names) == 1 { // the text was meant for this member
					bad = misfit
				}
			}
		}
	}
	return nil, fmt.Errorf("the answer does not fit what is asked for: %w", bad)
}

// plainTextMembers returns the members for which a plain text may stand: the only one
// that a schema requires or has, or the only one that an alternative of it
// requires.
func plainTextMembers(schema json.RawMessage) []string {
	var form struct {
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
		OneOf      []struct {
			Required []string `json:"required"`
		} `json:"oneOf"`
	}
	if json.Unmarshal(schema, &form) != nil {
		return nil
	}
	if len(form.Required) == 1 {
		return form.Required
	}
	if len(form.Required) == 0 && len(form.Properties) == 1 {
		return slices.Collect(maps.Keys(form.Properties))
	}
	var names []string
	for _, alternative := range form.OneOf {
		if len(alternative.Required) == 1 {
			names = append(names, alternative.Required[0])
		}
	}
	return names
}

package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/traffic"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

var askStates = []string{string(mesh.AskOpen), string(mesh.AskAnswered), string(mesh.AskOverdue), string(mesh.AskWithdrawn)}

// inboxFlags are the flags of "inbox".
type inboxFlags struct {
	all, follow bool
	states      string
	sender      string
	limit       int
}

// Command returns "aeemesh inbox".
func Command(a *session.App) *cobra.Command {
	f := &inboxFlags{}
	c := session.Connects(&cobra.Command{
		Use:   "inbox [PERSON|TASK]",
		Short: "Show what agents ask of you, or of another person",
		Long: `Agents may ask people: a task for human.ada waits in ada's inbox until she
answers it, or its time is over. Without an argument these are your own tasks;
PERSON is an entity such as human.ada; with TASK, an id or the beginning of
one, it is shown whole.

With --follow and --timeout the exit status is 5 if nothing has come by then.

A task is open, answered, overdue (its time is over, and no answer counts any
more) or withdrawn (the asker no longer needs an answer).`,
		Example: `  aeemesh inbox
  aeemesh inbox human.ada --state open
  aeemesh inbox 01M7YES --json
  aeemesh inbox --all --follow

  # with the nats CLI:
  nats stream view AEE_HUMAN --subject human.ada
  nats sub human.ada`,
		Args:              outcome.Arguments("[PERSON|TASK]"),
		ValidArgsFunction: completeAsks(a, true),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return showInbox(a, ctx, cmd, f, args)
		}),
	})
	flags := c.Flags()
	flags.BoolVarP(&f.all, "all", "a", false, "what all people are asked")
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with what comes, until Ctrl-C or --timeout")
	flags.StringVar(&f.states, "state", "", "in one of these `states` only, comma-separated: "+strings.Join(askStates, ", "))
	flags.IntVar(&f.limit, "limit", 50, "at most so many; 0 for all")
	addSender(flags, &f.sender)
	flags.StringVar(&a.As, "from", "", "who looks, where no PERSON is given: an `entity` (default the key's, where it has one, else human.<your login>)")
	session.BindEnv(flags, "from", "AEEMESH_FROM")
	a.AddSignFlags(flags, session.SignAll)
	return c
}

func showInbox(a *session.App, ctx context.Context, cmd *cobra.Command, f *inboxFlags, args []string) error {
	wanted, err := askStatesOf(cmd, f.states)
	if err != nil {
		return err
	}
	person, task, where := "", "", "--from"
	switch {
	case f.limit < 0:
		return outcome.Usagef(cmd, "--limit %d: give a number of tasks, or 0 for all", f.limit)
	case len(args) == 1 && args[0] == "":
		return outcome.Usagef(cmd, "PERSON or TASK is empty: give one, or leave it out for your own tasks")
	case f.sender != "" && (len(args) == 0 || isEntity(args[0])):
		return outcome.Usagef(cmd, "--sender goes with TASK")
	case len(args) == 1 && f.all:
		return outcome.Usagef(cmd, "give PERSON, TASK or --all")
	case len(args) == 1 && isEntity(args[0]):
		person, where = args[0], "PERSON"
	case len(args) == 1:
		task = args[0]
	case !f.all:
		if person = cmp.Or(a.As, a.DefaultFrom()); a.As == "" && subject.EntityType(person) != subject.TypeHuman {
			return outcome.Usagef(cmd, "PERSON is missing, and %s is no person: name one, such as human.ada", person)
		}
	}
	if person != "" {
		if err := checkPerson(cmd, where, person); err != nil {
			return err
		}
	}
	// A person may read the last reply to a task only, and earlier ones are asked for first.
	status := session.QuietAboutPermissions(session.ConnectionStatus(a.Term, f.follow))
	s, err := a.Open(ctx, cmd, session.Options{Signed: true, Status: status, Config: a.LaneClient(cmd)})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	switch {
	case task != "":
		own := cmp.Or(a.As, a.DefaultFrom())
		if subject.EntityType(own) != subject.TypeHuman {
			own = ""
		}
		ask, err := findAsk(ctx, s.Node, own, f.sender, task)
		if err != nil {
			return noAsk(err, task)
		}
		return showAsk(a, ask, traffic.Vouch(s.Verifier.Ring, ask.Task, ask.Stored))
	case f.follow:
		came := false
		err := s.Node.FollowInbox(ctx, person, func(ask *mesh.PersonTask) error {
			if wanted != nil && !slices.Contains(wanted, ask.State) {
				return nil
			}
			came = true
			if a.Term.JSON {
				return a.Term.Object(viewAsk(ask))
			}
			a.Term.Line("%s  %-9s  %s for %s: %s%s", ask.Task.ID, ask.State, term.OneLine(ask.Task.From), term.OneLine(ask.Task.To), about(ask), untilWords(ask))
			return nil
		})
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded) && !came:
			return outcome.Stopped(ctx.Err(), "stopped waiting: nothing has come for %s", cmp.Or(person, "anybody"))
		case ctx.Err() != nil:
			return nil
		}
		return session.LaneError(err)
	}
	asks, err := s.Node.PersonTasks(ctx, person)
	if err != nil {
		return session.LaneError(err)
	}
	return printAsks(a, asks, wanted, person, f.limit)
}

// isEntity reports whether an argument is an entity and not the id of a task, which may also
// contain dots.
func isEntity(arg string) bool {
	return slices.Contains([]string{subject.TypeHuman, subject.TypeAgent, subject.TypeService, subject.TypeBus}, subject.EntityType(arg))
}

// checkPerson refuses what is no person's entity. where is the flag or the argument that names it.
func checkPerson(cmd *cobra.Command, where, person string) error {
	if err := subject.ValidateEntity(person); err != nil {
		return outcome.Usagef(cmd, "%s: %w", where, err)
	}
	if subject.EntityType(person) != subject.TypeHuman {
		return outcome.Usagef(cmd, "%s: %s is no person: their entities begin with human.", where, person)
	}
	return nil
}

func askStatesOf(cmd *cobra.Command, list string) (out []mesh.PersonTaskState, err error) {
	if list == "" {
		return nil, nil
	}
	for s := range strings.SplitSeq(list, ",") {
		s = strings.TrimSpace(s)
		if err := outcome.OneOf(cmd, "state", s, askStates...); err != nil {
			return nil, err
		}
		out = append(out, mesh.PersonTaskState(s))
	}
	return out, nil
}

func addSender(flags *pflag.FlagSet, sender *string) {
	flags.StringVar(sender, "sender", "", "the `entity` that asks, if several have used the id of TASK")
}

// findAsk looks for a task among the person's own ("": none) and then in the inboxes of all: tasks for
// others, which may have any id, are not in the way.
func findAsk(ctx context.Context, node *mesh.Node, person, sender, task string) (*mesh.PersonTask, error) {
	if person != "" {
		ask, err := node.FindAsk(ctx, person, sender, task)
		if !errors.Is(err, jetstream.ErrNotFound) || errors.Is(err, jetstream.ErrUnavailable) {
			return ask, err
		}
	}
	return node.FindAsk(ctx, "", sender, task)
}

func noAsk(err error, task string) error {
	if errors.Is(err, mesh.ErrSeveralAsks) {
		return outcome.Hinted(err, "Give the whole id. If several tasks have it, --sender and --from say which one.")
	}
	if errors.Is(err, jetstream.ErrNotFound) && !errors.Is(err, jetstream.ErrUnavailable) {
		return outcome.Hinted(outcome.NotFound("there is no task %s for a person, or it is no longer kept", term.Printable(task)), "\"aeemesh inbox --all\" lists what people are asked.")
	}
	return session.LaneError(err)
}

// askView is a task for a person in JSON output.
type askView struct {
	Task       string               `json:"task"`
	Person     string               `json:"person"`
	State      mesh.PersonTaskState `json:"state"`
	From       string               `json:"from"`
	Intent     string               `json:"intent"`
	Corr       string               `json:"corr"`
	For        string               `json:"for,omitempty"` // the asker's task that it is a part of
	Asked      time.Time            `json:"asked"`
	Until      time.Time            `json:"until,omitzero"`
	EscalateTo string               `json:"escalate_to,omitempty"`
	Schema     json.RawMessage      `json:"result_schema,omitempty"`
	Payload    json.RawMessage      `json:"payload"`
	Reason     string               `json:"reason,omitempty"`
	AnsweredAt time.Time            `json:"answered_at,omitzero"`
	Answer     json.RawMessage      `json:"answer,omitempty"` // the answer's payload
	Declined   bool                 `json:"declined,omitempty"`
	Misfit     json.RawMessage      `json:"misfit,omitempty"`  // the payload of a result that was not accepted
	Invalid    string               `json:"invalid,omitempty"` // why another message does not count
}

func viewAsk(k *mesh.PersonTask) askView {
	e := k.Task
	v := askView{Task: e.ID, Person: e.To, State: k.State, From: e.From, Intent: e.Intent, Corr: e.Corr, For: e.ReplyTo, Asked: k.Stored, Until: k.Until,
		EscalateTo: k.EscalateTo, Schema: k.Schema, Payload: e.Payload, Reason: k.Reason, AnsweredAt: k.AnsweredAt}
	if k.Misfit != nil {
		v.Misfit = k.Misfit.Payload
	}
	if k.Invalid != nil {
		v.Invalid = k.Invalid.Error()
	}
	if k.Answer != nil {
		v.Answer, v.Declined = k.Answer.Payload, k.Answer.Type == envelope.TypeError
	}
	return v
}

// printAsks prints open tasks first, those with the earliest deadline on top,
// then the others, the latest first.
func printAsks(a *session.App, asks []*mesh.PersonTask, wanted []mesh.PersonTaskState, person string, limit int) error {
	asks = slices.DeleteFunc(asks, func(k *mesh.PersonTask) bool { return wanted != nil && !slices.Contains(wanted, k.State) })
	open := func(k *mesh.PersonTask) int {
		if k.State == mesh.AskOpen {
			return 0
		}
		return 1
	}
	sorted.By(asks, func(x, y *mesh.PersonTask) int {
		if c := cmp.Compare(open(x), open(y)); c != 0 {
			return c
		}
		if x.State != mesh.AskOpen {
			return y.Stored.Compare(x.Stored)
		}
		if x.Until.IsZero() != y.Until.IsZero() {
			return cmp.Compare(open(y)+btoi(x.Until.IsZero()), open(x)+btoi(y.Until.IsZero()))
		}
		return x.Until.Compare(y.Until)
	})
	more := 0
	if limit > 0 && len(asks) > limit {
		more, asks = len(asks)-limit, asks[:limit]
	}
	var rows [][]string
	waiting := 0
	for _, k := range asks {
		if k.State == mesh.AskOpen {
			waiting++
		}
		if a.Term.JSON {
			if err := a.Term.Object(viewAsk(k)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{k.Task.ID, string(k.State), term.OneLine(k.Task.From), term.OneLine(k.Task.To), about(k), term.Ago(k.Stored), left(k)})
	}
	switch {
	case a.Term.JSON:
	case len(rows) == 0:
		a.Term.Say("nothing is asked of %s", cmp.Or(person, "anybody"))
	default:
		a.Term.Table([]string{"task", "state", "from", "for", "about", "asked", "answer by"}, rows)
	}
	if more > 0 {
		a.Term.Say("%d more: --limit 0 shows all", more)
	}
	if waiting > 0 && !a.Term.JSON {
		a.Term.Hint("\"aeemesh inbox TASK\" shows one whole; \"aeemesh answer TASK …\" answers it.")
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// about describes in a few words what a task is about.
func about(k *mesh.PersonTask) string {
	text, ok := term.TextOf(k.Task.Payload)
	if !ok {
		var members map[string]json.RawMessage
		if json.Unmarshal(k.Task.Payload, &members) != nil || json.Unmarshal(members["text"], &text) != nil {
			text = string(k.Task.Payload)
		}
	}
	if text = strings.Join(strings.Fields(term.OneLine(text)), " "); len([]rune(text)) > 60 {
		text = string([]rune(text)[:59]) + "…"
	}
	return text
}

// left says how much time is left for an answer.
func left(k *mesh.PersonTask) string {
	switch {
	case k.State == mesh.AskAnswered && k.Answer.Type == envelope.TypeError:
		return "declined"
	case k.State == mesh.AskAnswered, k.State == mesh.AskWithdrawn || k.Until.IsZero():
		return ""
	case k.State == mesh.AskOverdue:
		return term.Ago(k.Until)
	}
	return "in " + term.Span(time.Until(k.Until))
}

func untilWords(k *mesh.PersonTask) string {
	if l := left(k); l != "" {
		return " (" + l + ")"
	}
	return ""
}

func showAsk(a *session.App, k *mesh.PersonTask, by traffic.Voucher) error {
	if a.Term.JSON {
		return a.Term.Object(viewAsk(k))
	}
	t, e := a.Term, k.Task
	t.Line("task      %s", term.OneLine(e.ID))
	t.Line("state     %s%s", k.State, untilWords(k))
	t.Line("for       %s", term.OneLine(e.To))
	t.Line("from      %s, %s", term.OneLine(e.From), cmp.Or(by.Words(), "not signed"))
	t.Line("intent    %s", term.OneLine(e.Intent))
	t.Line("corr      %s", term.OneLine(e.Corr))
	if e.ReplyTo != "" {
		t.Line("part of   task %s", term.OneLine(e.ReplyTo))
	}
	t.Line("asked     %s", k.Stored.Local().Format(time.DateTime))
	if !k.Until.IsZero() {
		t.Line("answer by %s", k.Until.Local().Format(time.DateTime))
	}
	if k.EscalateTo != "" {
		t.Line("then      it goes to %s", term.OneLine(k.EscalateTo))
	}
	if k.Reason != "" {
		t.Line("withdrawn %s", term.OneLine(k.Reason))
	}
	t.Line("")
	t.Line("%s", term.Indented(e.Payload))
	if k.Schema != nil {
		t.Line("\nThe answer must fit:\n%s", term.Indented(k.Schema))
	}
	if k.Answer != nil {
		t.Line("\nAnswered %s:\n%s", k.AnsweredAt.Local().Format(time.DateTime), term.Indented(k.Answer.Payload))
	}
	if k.Misfit != nil {
		t.Line("\nDid not fit, and does not count:\n%s", term.Indented(k.Misfit.Payload))
	}
	if k.Invalid != nil {
		t.Line("\nAn answer does not count:\n%s", term.OneLine(k.Invalid.Error()))
	}
	if k.Late != nil {
		t.Line("\nCame too late:\n%s", term.Indented(k.Late.Payload))
	}
	if k.State == mesh.AskOpen {
		t.Steps("To answer:", fmt.Sprintf("aeemesh answer %s \"…\"", e.ID), fmt.Sprintf("aeemesh answer %s --decline \"why not\"", e.ID))
	}
	return nil
}

// completeAsks completes the first argument with the ids of open tasks.
func completeAsks(a *session.App, people bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		const as = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // @FILE
		}
		var out, who []string
		session.ToComplete(a, cmd, func(ctx context.Context, conn *nats.Conn) {
			js, m, err := a.Streams(conn)
			if err != nil {
				return
			}
			node, err := mesh.New(conn, mesh.Config{Prefix: a.Conn.Prefix, Durable: session.NewLane(js, m)})
			if err != nil {
				return
			}
			asks, _ := node.PersonTasks(ctx, "")
			for _, k := range asks {
				if k.State == mesh.AskOpen && strings.HasPrefix(k.Task.ID, begun) {
					out = append(out, cobra.CompletionWithDesc(k.Task.ID, term.Printable(k.Task.To+": "+about(k))))
				}
				if people && strings.HasPrefix(k.Task.To, begun) {
					who = append(who, k.Task.To)
				}
			}
		})
		slices.Sort(who)
		return append(out, slices.Compact(who)...), as
	}
}

package dead

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/tasks"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// Command returns "aeemesh dead".
func Command(a *session.App) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:   "dead",
		Short: "List, show, retry and drop tasks that could not be done",
		Long: `A durable task ends as a dead letter when its retries are exhausted, when its
message is no valid task, or when it kills the workers that claim it. NUMBER is
its number in the stream AEE_DEAD, as "list" shows it.`,
		Example: `  aeemesh dead list
  aeemesh dead show 12
  aeemesh dead retry 12
  aeemesh dead drop 12 13`,
	}, listCommand(a), showCommand(a), retryCommand(a),
		actionCommand(a, "drop", "Delete dead letters", "Deletes dead letters. Their tasks have been answered with an error and are not\ntried again.",
			func(ctx context.Context, d *jetstream.Dead, seq uint64) (string, error) {
				return "dropped", d.Drop(ctx, seq)
			}))
}

func retryCommand(a *session.App) *cobra.Command {
	c := actionCommand(a, "retry", "Retry the task of a dead letter",
		`Requeues the task with its run: committed steps are not repeated, and it goes on
at the step that failed. Until the retry has ended, "aeemesh result" prints the
old error.

--wait waits for the result of the retry, until --timeout, and prints it as
"aeemesh result" does, with its exit status. Several tasks are retried one after
the other; the first that fails ends the command, and leaves the letters after
it.`,
		func(ctx context.Context, d *jetstream.Dead, seq uint64) (string, error) {
			got, err := d.Retry(ctx, seq)
			return fmt.Sprintf("submitted again, number %d of the work queue", got.Seq), err
		})
	c.Example += "\n  aeemesh dead retry 12 --wait --timeout 5m"
	var wait bool
	c.Flags().BoolVarP(&wait, "wait", "w", false, "wait for the result of the retry, and print it")
	a.AddSignFlags(c.Flags(), session.SignAll)
	submit := c.RunE
	waitFor := a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		seqs, err := letterNumbers(cmd, args)
		if err != nil {
			return err
		}
		s, err := a.Open(ctx, cmd, session.Options{Signed: true, Config: a.LaneClient(cmd)})
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := a.Limited(ctx)
		defer cancel()
		for _, seq := range seqs {
			if retried, err := tasks.Retry(s, ctx, seq); !retried {
				return noLetter(err, seq)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if wait {
			return waitFor(cmd, args)
		}
		return submit(cmd, args)
	}
	return c
}

// view is a dead letter as --json prints it.
type view struct {
	Seq      uint64              `json:"seq"`
	Entity   string              `json:"entity"`
	Task     string              `json:"task,omitempty"`
	Code     string              `json:"code"`
	Cause    string              `json:"cause"`
	Attempts int                 `json:"attempts"`
	Worker   string              `json:"worker,omitempty"`
	Run      string              `json:"run,omitempty"`
	Subject  string              `json:"subject"`
	Stored   time.Time           `json:"stored,omitzero"`
	Died     time.Time           `json:"died"`
	Header   map[string][]string `json:"header,omitempty"`
	Body     string              `json:"body,omitempty"`        // as received, with show
	Bytes    []byte              `json:"body_base64,omitempty"` // the same, if it is no UTF-8
	Omitted  int                 `json:"omitted,omitempty"`     // bytes that were left out for lack of room
}

func viewOf(l jetstream.DeadLetter, whole bool) view {
	v := view{Seq: l.Seq, Entity: l.Entity, Task: l.TaskID, Code: l.Code, Cause: l.Cause, Attempts: l.Attempts,
		Worker: l.Worker, Subject: l.Subject, Stored: l.Stored, Died: l.Died, Run: l.Run, Omitted: l.Omitted}
	if whole {
		v.Header = l.Header
		if utf8.Valid(l.Data) {
			v.Body = string(l.Data)
		} else {
			v.Bytes = l.Data
		}
	}
	return v
}

func listCommand(a *session.App) *cobra.Command {
	var entity string
	c := session.Connects(&cobra.Command{
		Use:   "list",
		Short: "List dead letters, the oldest first",
		Example: `  aeemesh dead list
  aeemesh dead list --entity agent.reviewer --json`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if err := runs.CheckEntity(cmd, entity); err != nil {
				return err
			}
			return withLane(a, ctx, cmd, func(d *mesh.Durable) error {
				var rows [][]string
				for l, err := range d.Dead.List(ctx, entity) {
					if err != nil {
						return session.LaneError(err)
					}
					if a.Term.JSON {
						if err := a.Term.Object(viewOf(l, false)); err != nil {
							return err
						}
						continue
					}
					rows = append(rows, []string{strconv.FormatUint(l.Seq, 10), l.Entity, l.TaskID, l.Code, l.Cause, strconv.Itoa(l.Attempts), term.Ago(l.Died)})
				}
				if len(rows) == 0 && !a.Term.JSON {
					a.Term.Say("no dead letters")
				}
				a.Term.Table([]string{"number", "agent", "task", "code", "cause", "attempts", "died"}, rows)
				return nil
			})
		}),
	})
	runs.EntityFlag(c, &entity)
	return c
}

func showCommand(a *session.App) *cobra.Command {
	return session.Connects(&cobra.Command{
		Use:     "show NUMBER",
		Short:   "Show all of a dead letter",
		Example: `  aeemesh dead show 12`,
		Args:    outcome.Arguments("NUMBER"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeNumbers(a, cmd, args, begun)
		},
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			seq, err := letterNumber(cmd, args[0])
			if err != nil {
				return err
			}
			return withLane(a, ctx, cmd, func(d *mesh.Durable) error {
				l, err := d.Dead.Get(ctx, seq)
				if err != nil {
					return noLetter(err, seq)
				}
				v := viewOf(l, true)
				if a.Term.JSON {
					return a.Term.Object(v)
				}
				printLetter(a.Term, v, l.Data)
				return nil
			})
		}),
	})
}

// printLetter prints all of a dead letter; data is its body.
func printLetter(t *term.Terminal, v view, data []byte) {
	t.Line("number    %d", v.Seq)
	t.Line("agent     %s", term.OneLine(v.Entity))
	t.Line("task      %s", term.OneLine(v.Task))
	t.Line("cause     %s: %s", term.OneLine(v.Code), term.OneLine(v.Cause))
	t.Line("attempts  %d", v.Attempts)
	came := "when is not known"
	if !v.Stored.IsZero() {
		came = v.Stored.Local().Format(time.DateTime)
	}
	t.Line("came      %s, on %s", came, term.OneLine(v.Subject))
	t.Line("died      %s", v.Died.Local().Format(time.DateTime))
	for _, name := range slices.Sorted(maps.Keys(v.Header)) {
		for _, value := range v.Header[name] {
			t.Line("header    %s: %s", term.OneLine(name), term.OneLine(value))
		}
	}
	t.Line("")
	t.Line("%s", term.Indented(data))
}

func actionCommand(a *session.App, name, short, long string, act func(context.Context, *jetstream.Dead, uint64) (string, error)) *cobra.Command {
	return session.Connects(&cobra.Command{
		Use: name + " NUMBER...", Short: short, Long: long,
		Example:           "  aeemesh dead " + name + " 12\n  aeemesh dead " + name + " $(aeemesh dead list --json | jq .seq)",
		Args:              outcome.Arguments("NUMBER..."),
		ValidArgsFunction: session.Completing(a, completeNumbers),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			seqs, err := letterNumbers(cmd, args)
			if err != nil {
				return err
			}
			return withLane(a, ctx, cmd, func(d *mesh.Durable) error {
				for _, seq := range seqs {
					what, err := act(ctx, d.Dead, seq)
					if err != nil {
						return noLetter(err, seq)
					}
					if a.Term.JSON {
						if err := a.Term.Object(map[string]any{"seq": seq, "done": name}); err != nil {
							return err
						}
						continue
					}
					a.Term.Good("dead letter %d: %s", seq, what)
				}
				return nil
			})
		}),
	})
}

// withLane connects for a command that reads the durable lane's streams.
func withLane(a *session.App, ctx context.Context, cmd *cobra.Command, do func(*mesh.Durable) error) error {
	s, err := a.Open(ctx, cmd, session.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	d, err := s.Lane()
	if err != nil {
		return err
	}
	return do(d)
}

// completeNumbers completes all arguments with the numbers of dead letters, the latest
// first.
func completeNumbers(a *session.App, cmd *cobra.Command, args []string, begun string) (out []string, _ cobra.ShellCompDirective) {
	const most = 200
	session.StreamsToComplete(a, cmd, func(ctx context.Context, js natsjs.JetStream, m subject.Map) {
		for l, err := range jetstream.NewDead(js, m).List(ctx, "") {
			if err != nil {
				return
			}
			if n := strconv.FormatUint(l.Seq, 10); strings.HasPrefix(n, begun) && !slices.Contains(args, n) {
				out = append(out, cobra.CompletionWithDesc(n, term.Printable(l.Entity+": "+l.Code)))
			}
		}
	})
	slices.Reverse(out)
	return out[:min(most, len(out))], cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func letterNumber(cmd *cobra.Command, arg string) (uint64, error) {
	seq, err := strconv.ParseUint(arg, 10, 64)
	if err != nil || seq == 0 {
		return 0, outcome.Usagef(cmd, "%q is no dead letter's number; \"aeemesh dead list\" shows them", arg)
	}
	return seq, nil
}

func letterNumbers(cmd *cobra.Command, args []string) (seqs []uint64, _ error) {
	for _, arg := range args {
		seq, err := letterNumber(cmd, arg)
		if err != nil {
			return nil, err
		}
		seqs = append(seqs, seq)
	}
	return seqs, nil
}

func noLetter(err error, seq uint64) error {
	if errors.Is(err, jetstream.ErrNotFound) && !errors.Is(err, natsjs.ErrStreamNotFound) {
		return outcome.Hinted(outcome.NotFound("there is no dead letter %d", seq), "\"aeemesh dead list\" shows those that there are.")
	}
	if errors.Is(err, jetstream.ErrUncertain) || errors.Is(err, context.DeadlineExceeded) {
		return outcome.Hinted(err, "Give the command again when the server answers: what it has done already is not done twice. \"aeemesh dead list\" shows the letters that are left.")
	}
	return session.LaneError(err)
}

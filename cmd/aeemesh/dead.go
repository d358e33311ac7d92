package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/jetstream"
)

func (a *app) deadCommand() *cobra.Command {
	return a.holder(&cobra.Command{
		Use:   "dead",
		Short: "List, show, retry and drop tasks that could not be done",
		Long: `A durable task ends as a dead letter when its retries are exhausted, when its
message is no valid task, or when it kills the workers that claim it. NUMBER is
its number in the stream AEE_DEAD, as "list" shows it.`,
		Example: `  aeemesh dead list
  aeemesh dead show 12
  aeemesh dead retry 12
  aeemesh dead drop 12 13`,
	}, a.deadListCommand(), a.deadShowCommand(),
		a.deadActionCommand("retry", "Retry the task of a dead letter",
			"Requeues the task with its run: committed steps are not repeated, and it goes on\nat the step that failed.",
			func(ctx context.Context, d *jetstream.Dead, seq uint64) (string, error) {
				got, err := d.Retry(ctx, seq)
				return fmt.Sprintf("submitted again, number %d of the work queue", got.Seq), err
			}),
		a.deadActionCommand("drop", "Delete dead letters", "Deletes dead letters. Their tasks have been answered with an error and are not\ntried again.",
			func(ctx context.Context, d *jetstream.Dead, seq uint64) (string, error) {
				return "dropped", d.Drop(ctx, seq)
			}))
}

// deadView is a dead letter as --json prints it.
type deadView struct {
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
	Body     string              `json:"body,omitempty"`    // as received, with show
	Omitted  int                 `json:"omitted,omitempty"` // bytes that were left out for lack of room
}

func viewDead(l jetstream.DeadLetter, whole bool) deadView {
	v := deadView{Seq: l.Seq, Entity: l.Entity, Task: l.TaskID, Code: l.Code, Cause: l.Cause, Attempts: l.Attempts,
		Worker: l.Worker, Subject: l.Subject, Stored: l.Stored, Died: l.Died, Run: l.Run, Omitted: l.Omitted}
	if whole {
		v.Header, v.Body = l.Header, string(l.Data)
	}
	return v
}

func (a *app) deadListCommand() *cobra.Command {
	var entity string
	c := connects(&cobra.Command{
		Use:   "list",
		Short: "List dead letters, the oldest first",
		Example: `  aeemesh dead list
  aeemesh dead list --entity agent.reviewer --json`,
		Args: arguments(),
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if err := checkEntity(cmd, entity); err != nil {
				return err
			}
			return a.withLane(ctx, cmd, func(s *session) error {
				d, err := s.lane()
				if err != nil {
					return err
				}
				var rows [][]string
				for l, err := range d.Dead.List(ctx, entity) {
					if err != nil {
						return laneError(err)
					}
					if a.term.json {
						if err := a.term.object(viewDead(l, false)); err != nil {
							return err
						}
						continue
					}
					rows = append(rows, []string{strconv.FormatUint(l.Seq, 10), l.Entity, l.TaskID, l.Code, l.Cause, strconv.Itoa(l.Attempts), ago(l.Died)})
				}
				if len(rows) == 0 && !a.term.json {
					a.term.say("no dead letters")
				}
				a.term.table([]string{"number", "agent", "task", "code", "cause", "attempts", "died"}, rows)
				return nil
			})
		}),
	})
	a.entityFlag(c, &entity)
	return c
}

func (a *app) deadShowCommand() *cobra.Command {
	return connects(&cobra.Command{
		Use:     "show NUMBER",
		Short:   "Show all of a dead letter",
		Example: `  aeemesh dead show 12`,
		Args:    arguments("NUMBER"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeDead(cmd, args, begun)
		},
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			seq, err := letterNumber(cmd, args[0])
			if err != nil {
				return err
			}
			return a.withLane(ctx, cmd, func(s *session) error {
				d, err := s.lane()
				if err != nil {
					return err
				}
				l, err := d.Dead.Get(ctx, seq)
				if err != nil {
					return noLetter(err, seq)
				}
				v := viewDead(l, true)
				if a.term.json {
					return a.term.object(v)
				}
				a.term.line("number    %d", v.Seq)
				a.term.line("agent     %s", oneLine(v.Entity))
				a.term.line("task      %s", oneLine(v.Task))
				a.term.line("cause     %s: %s", oneLine(v.Code), oneLine(v.Cause))
				a.term.line("attempts  %d", v.Attempts)
				a.term.line("came      %s, on %s", v.Stored.Local().Format(time.DateTime), oneLine(v.Subject))
				a.term.line("died      %s", v.Died.Local().Format(time.DateTime))
				for name, values := range v.Header {
					for _, value := range values {
						a.term.line("header    %s: %s", oneLine(name), oneLine(value))
					}
				}
				a.term.line("")
				a.term.line("%s", indented(l.Data))
				return nil
			})
		}),
	})
}

func (a *app) deadActionCommand(name, short, long string, act func(context.Context, *jetstream.Dead, uint64) (string, error)) *cobra.Command {
	return connects(&cobra.Command{
		Use: name + " NUMBER...", Short: short, Long: long,
		Example:           "  aeemesh dead " + name + " 12\n  aeemesh dead " + name + " $(aeemesh dead list --json | jq .seq)",
		Args:              arguments("NUMBER..."),
		ValidArgsFunction: a.completeDead,
		RunE: a.do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			var seqs []uint64
			for _, arg := range args {
				seq, err := letterNumber(cmd, arg)
				if err != nil {
					return err
				}
				seqs = append(seqs, seq)
			}
			return a.withLane(ctx, cmd, func(s *session) error {
				d, err := s.lane()
				if err != nil {
					return err
				}
				for _, seq := range seqs {
					what, err := act(ctx, d.Dead, seq)
					if err != nil {
						return noLetter(err, seq)
					}
					if a.term.json {
						if err := a.term.object(map[string]any{"seq": seq, "done": name}); err != nil {
							return err
						}
						continue
					}
					a.term.good("dead letter %d: %s", seq, what)
				}
				return nil
			})
		}),
	})
}

// withLane connects for a command that reads the durable lane's streams.
func (a *app) withLane(ctx context.Context, cmd *cobra.Command, do func(*session) error) error {
	s, err := a.open(ctx, cmd, sessionOptions{})
	if err != nil {
		return err
	}
	defer s.close()
	return do(s)
}

func letterNumber(cmd *cobra.Command, arg string) (uint64, error) {
	seq, err := strconv.ParseUint(arg, 10, 64)
	if err != nil || seq == 0 {
		return 0, usagef(cmd, "%q is no dead letter's number; \"aeemesh dead list\" shows them", arg)
	}
	return seq, nil
}

func noLetter(err error, seq uint64) error {
	if errors.Is(err, jetstream.ErrNotFound) && !errors.Is(err, natsjs.ErrStreamNotFound) {
		return hinted(outcome.NotFound("there is no dead letter %d", seq), "\"aeemesh dead list\" shows those that there are.")
	}
	return laneError(err)
}

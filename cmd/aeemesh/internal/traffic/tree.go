package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/tree"
	"github.com/aeemesh/aeemesh/state"
)

// TreeFlags are the flags of "tree".
type TreeFlags struct {
	follow, all, dot bool
	Fold             int
	since            time.Duration
}

// TreeCommand is "aeemesh tree".
func TreeCommand(a *session.App) *cobra.Command {
	f := &TreeFlags{}
	c := session.Connects(&cobra.Command{
		Use:   "tree CORR",
		Short: "Draw the tree of a task: agents, time, tokens, cost, outcome",
		Long: `Draws the tree of the tasks of one corr: sender and receiver of each task, its
lane, state, time, tokens and cost, votes, delegations, and the critical path.
CORR may be the id of a task or of its run, too: then the tree is drawn from
that task down.

The data comes from stored events (stream AEE_BUS), and from runs and answers of
durable tasks. Events are read until five minutes after all tasks are done; of a
CORR of your own (order-4711), which later tasks may have too, all are read.
With --follow it is drawn anew as events come, until the task ends; where
nothing is stored, from then on. Tokens and cost are a task's own, and in
brackets with all below it.

Events come at most once, and are what agents say: of the lines of --follow only
"signed KID" is verified, with the keys that are trusted here. A task without an
event of its end is shown as unknown.`,
		Example: `  aeemesh tree 01JFB2QX0K8X5K6ZJ9G2C0C1MW
  aeemesh tree 01JFB2QX0K8X5K6ZJ9G2C0C1MW --follow
  aeemesh tree 01JFB2QX0K8X5K6ZJ9G2C0C1MW --dot | dot -Tsvg > tree.svg
  aeemesh tree 01JFB2QX0K8X5K6ZJ9G2C0C1MW --json | jq '.nodes[] | select(.state == "failed")'

  # with the nats CLI:
  nats sub --stream AEE_BUS --all 'bus.mesh.>'`,
		Args:              outcome.Arguments("CORR"),
		ValidArgsFunction: session.Completing(a, runs.CompleteRuns),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return ShowTree(a, ctx, cmd, args[0], f)
		}),
	})
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&f.follow, "follow", "f", false, "draw it as it goes on, until it ends; exit status 1 if it fails")
	flags.BoolVar(&f.all, "all", false, "draw all members of large teams")
	flags.IntVar(&f.Fold, "fold", tree.DefaultFold, "draw so many members of a large team, and count the others")
	flags.BoolVar(&f.dot, "dot", false, "print it in the language of Graphviz")
	flags.DurationVar(&f.since, "since", 0, "look at the events of the last `duration` (default since CORR was made, if it says when; else all)")
	a.AddStateKeyFlag(flags)
	a.AddSignFlags(flags, session.SignShared)
	return c
}

// siblings is how many members of a team are shown.
func (f *TreeFlags) siblings() int {
	if f.all {
		return -1
	}
	return f.Fold
}

// ShowTree prints the tree of the task, run or corr of this name.
func ShowTree(a *session.App, ctx context.Context, cmd *cobra.Command, name string, f *TreeFlags) error {
	switch {
	case name == "":
		return outcome.Usagef(cmd, "CORR is empty")
	case f.since < 0:
		return outcome.Usagef(cmd, "--since cannot be negative")
	case f.Fold < 1:
		return outcome.Usagef(cmd, "--fold must be above 0")
	case f.dot && a.Term.JSON:
		return outcome.Usagef(cmd, "--dot and --json exclude one another")
	}
	m, err := a.Subjects()
	if err != nil {
		return err
	}
	conn, err := a.Connect(ctx, cmd, session.ConnectionStatus(a.Term, false))
	if err != nil {
		return err
	}
	defer conn.Close()
	ring, stop, err := voucherRing(a, ctx, conn)
	if err != nil {
		return err
	}
	defer stop()
	r := &treeReader{app: a, ring: ring, cmd: cmd, flags: f, conn: conn, subjects: m, wanted: name, quick: inJSON(name)}
	if r.js, err = a.JetStream(conn); err != nil {
		return err
	}
	if f.follow {
		return r.follow(ctx)
	}
	return r.once(ctx)
}

// inJSON returns a text as it is written in JSON, without quotation marks.
func inJSON(s string) []byte {
	return bytes.Trim(envelope.AppendString(nil, s), `"`)
}

// treeReader determines which tree is meant, and reads it.
type treeReader struct {
	app      *session.App
	cmd      *cobra.Command
	flags    *TreeFlags
	conn     *nats.Conn
	js       natsjs.JetStream
	subjects subject.Map
	ring     *sign.Ring

	wanted  string // as the user named it
	quick   []byte // a message without these bytes does not belong to the tree
	builder *tree.Builder
	corr    string
	root    string // the task to draw from; "": all tasks of the corr
	seen    int
	bare    bool // there are no events about it
	warned  bool // of an envelope with a wrong signature

	began          time.Time // nothing of the tree is older; zero: unknown
	latest, judged time.Time // of its last event; of the one at which ended was found out
	ended          bool
}

// tree returns the tree as far as it is known.
func (r *treeReader) tree(now time.Time) *tree.Tree {
	if r.builder == nil || r.builder.Len() == 0 {
		return nil
	}
	t := r.builder.Tree(now)
	if r.root != "" {
		if part := t.At(r.root, now); part != nil {
			return part
		}
	}
	return t
}

// once draws what is currently known. If a part cannot be read, once draws the others and fails,
// unless the user lacks the permission to read that part, or there is no store of it.
func (r *treeReader) once(ctx context.Context) error {
	missing := r.stored(ctx)
	var err error
	if missing == nil {
		r.locate(ctx)
		err = r.replay(ctx)
	}
	var unread error
	if err == nil {
		unread = r.records(ctx)
	}
	switch over := ctx.Err(); {
	case over != nil:
		return outcome.Stopped(over, "stopped reading the tree")
	case err != nil:
		return err
	case failed(unread):
		unread = fmt.Errorf("runs and answers of durable tasks cannot be read: %w", unread)
	case unread != nil:
		r.app.Term.Warn("runs and answers of durable tasks cannot be read: %s", outcome.Text(unread))
		unread = nil
	}
	if unread == nil && failed(missing) && !jetstream.Off(missing) {
		unread = fmt.Errorf("events cannot be read: %w", missing)
	}
	t := r.tree(time.Now())
	switch {
	case t == nil && errors.Is(missing, jetstream.ErrDenied):
		return outcome.NotFound("nothing is known of %s: %w", term.Printable(r.wanted), missing)
	case t == nil && unread != nil && !jetstream.Off(missing):
		return unread
	case t == nil && missing != nil:
		return outcome.Hinted(outcome.NotFound("no task, event or run of %s was found: %w", term.Printable(r.wanted), missing), "\"aeemesh tree %s --follow\" draws what comes from now on; \"aeemesh apply\" makes the streams that keep it.", term.Printable(r.wanted))
	case t == nil:
		return outcome.Hinted(outcome.NotFound("no task, event or run of %s was found", term.Printable(r.wanted)),
			"Has it begun? \"aeemesh queues\" shows what waits, \"aeemesh runs list\" what has begun; --follow waits for the first event. Events are kept for a week, if workers tell them (--task-events all).")
	}
	if err := r.print(t); err != nil {
		return err
	}
	if r.root != "" && r.root == r.wanted && r.app.Term.Words.TTY {
		r.app.Term.Note("this is a part of corr %s, if that has more", term.Printable(r.corr))
	}
	return unread
}

// failed reports whether a read has failed: its error is neither that the user lacks the permission nor
// that there is nothing to read.
func failed(err error) bool {
	return err != nil && !errors.Is(err, jetstream.ErrDenied) && !errors.Is(err, jetstream.ErrNotFound) && !errors.Is(err, state.ErrNotFound)
}

// print prints the tree in the requested form.
func (r *treeReader) print(t *tree.Tree) error {
	switch {
	case r.app.Term.JSON:
		return r.app.Term.Object(t)
	case r.flags.dot:
		r.app.Term.Line("%s", t.Dot(r.flags.siblings()))
	default:
		_, err := r.app.Term.Data.Write([]byte(t.Text(tree.TextOptions{Fold: r.flags.siblings(), Paint: statePainter(r.app.Term.Data)})))
		return err
	}
	return nil
}

// statePainter returns what colours text by a state.
func statePainter(s *term.Stream) func(tree.State, string) string {
	return func(state tree.State, words string) string {
		switch state {
		case tree.Done:
			return string(s.Paint(term.StyleGood, words))
		case tree.Failed:
			return string(s.Paint(term.StyleError, words))
		case tree.Waiting, tree.Retrying, tree.Unknown:
			return string(s.Paint(term.StyleWarn, words))
		case "", tree.HandedOff, tree.Withdrawn:
			return string(s.Paint(term.StyleFaint, words))
		}
		return words
	}
}

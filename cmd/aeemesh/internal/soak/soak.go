package soak

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/soak"
)

// soakFlags are the flags of "soak".
type soakFlags struct {
	soak.Options
	dir  string
	disk int
}

// Command is "aeemesh soak".
func Command(a *session.App) *cobra.Command {
	f := &soakFlags{}
	c := &cobra.Command{
		Use:   "soak",
		Short: "Kill servers and workers, and check that nothing is lost",
		Long: `Starts NATS servers and workers of its own as separate processes, submits
durable tasks to handlers, models, programs and teams all the time, and breaks
things: kill -9, SIGSTOP beyond the lease, restarts, partitions and slow
networks, at random and at each point of the commit order. Some runs move to a
second system, with a server and workers of its own, over HTTPS, while either
side or the way between them breaks. Then it checks every task against a model:
accepted means answered, exactly once; no finished step and no receipt is made
anew; a run never has two owners, and one that moves ends where it went. It
connects to no existing server.

The seed draws the faults: the same seed, the same faults in the same order.
What they hit is up to the machine. The exit status is 1 if a promise was
broken; then the servers' stores, all logs and the trace are kept.`,
		Example: `  aeemesh soak                                     # a hundred faults, a minute or two
  aeemesh soak --faults 1000 --seed 7
  aeemesh soak --faults 1000 --cluster 3           # three servers, three replicas
  aeemesh soak --second 0                          # no run moves to another system
  aeemesh soak --moves 200 --faults 40             # 200 runs move at once amid kills
  aeemesh soak --disk 1024                         # and fill the server's disk (root, Linux)
  aeemesh soak --for 10m --faults 100000
  aeemesh soak --seed 7 --json > report.json`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error { return runSoak(a, ctx, cmd, f) }),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.IntVar(&f.Faults, "faults", 100, "how many faults strike")
	flags.Uint64Var(&f.Seed, "seed", 0, "what draws the faults and the tasks (default a new one, which is printed)")
	flags.IntVar(&f.Servers, "cluster", 1, "servers: 1, or a cluster of 3 or 5 with as many replicas")
	flags.DurationVar(&f.For, "for", 0, "begin no more faults after this long (default when all have struck)")
	flags.IntVar(&f.Workers, "workers", 3, "worker processes")
	flags.IntVar(&f.Second, "second", 2, "worker processes of a second system, to which runs move amid the faults; 0: there is none")
	flags.IntVar(&f.Places, "concurrency", 4, "tasks at once in each")
	flags.IntVar(&f.Clients, "inflight", 16, "tasks that are under way at once")
	flags.IntVar(&f.Moves, "moves", 0, "instead of all kinds of tasks: move so many runs at once, half of them to the second system, again and again amid kills")
	flags.DurationVar(&f.Lease, "lease", jetstream.DefaultLease, "for how long a task belongs to a worker that gives no sign of life; with --break 600ms if not set")
	flags.DurationVar(&f.Pace, "pace", 0, "mean time between two faults (default a third of the lease)")
	flags.StringVar(&f.Sync, "sync", "2m", "the servers' sync_interval: always, or a `duration`")
	flags.IntVar(&f.disk, "disk", 0, "give each server of the first system a disk of so many `MiB`, in memory, and let faults fill it; for root on Linux")
	flags.StringVar(&f.dir, "dir", "", "`directory` for stores, logs and traces; it is kept (default a temporary one, kept on failure)")
	flags.StringVar(&f.Break, "break", "", "make the workers break a promise, to test the check: "+strings.Join(soak.Breaks, ", "))
	c.AddCommand(soakRole(a, "server"), soakRole(a, "worker"), soakRole(a, "receiver"), soakRole(a, "program"))
	return c
}

// brokenLease is the default of --lease with --break. A worker that stood still past its lease must
// come back while the run that it had is under way elsewhere, and the soak's runs are short.
const brokenLease = 600 * time.Millisecond

// soakRole is a child process of a soak.
func soakRole(a *session.App, name string) *cobra.Command {
	return &cobra.Command{Use: name + " FILE", Hidden: true, Args: outcome.Arguments("FILE"),
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return soak.Role(ctx, []string{name, args[0]}, os.Stdin, os.Stdout)
		})}
}

func runSoak(a *session.App, ctx context.Context, cmd *cobra.Command, f *soakFlags) error {
	if f.Sync != "always" {
		if d, err := time.ParseDuration(f.Sync); err != nil || d <= 0 {
			return outcome.Usagef(cmd, "--sync %q: it is \"always\" or a duration such as 30s", f.Sync)
		}
	}
	if f.Faults < 1 || f.For < 0 || f.Workers < 1 || f.Places < 1 || f.Clients < 1 || f.Second < 0 || f.Moves < 0 || f.Pace < 0 || f.disk < 0 || f.Lease < 100*time.Millisecond {
		return outcome.Usagef(cmd, "--faults, --workers, --concurrency and --inflight must be above 0, --second, --moves, --for, --pace and --disk not below, and --lease at least 100ms")
	}
	if !slices.Contains([]int{1, 3, 5}, f.Servers) {
		return outcome.Usagef(cmd, "--cluster %d: it is 1, 3 or 5", f.Servers)
	}
	if f.Break != "" {
		if err := outcome.OneOf(cmd, "break", f.Break, soak.Breaks...); err != nil {
			return err
		}
		if !a.IsSet(cmd, "lease") {
			f.Lease = brokenLease
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if !a.IsSet(cmd, "seed") {
		f.Seed = rand.Uint64N(1_000_000)
	}
	f.Disk = int64(f.disk) << 20
	f.Second = cmp.Or(f.Second, -1) // there 0 stands for the default
	keep := f.dir != ""
	if f.Dir = f.dir; keep {
		err = os.MkdirAll(f.Dir, 0o700)
	} else {
		f.Dir, err = os.MkdirTemp("", "aeemesh-soak-")
	}
	if err != nil {
		return err
	}
	f.Self = []string{self, "soak"}
	a.Term.Note("seed %d; stores and logs in %s", f.Seed, f.Dir)
	last := time.Now()
	f.Progress = func(p soak.Progress) {
		for _, v := range p.Found {
			a.Term.Warn("%s", v)
		}
		if every := 10 * time.Second; !a.Term.Words.TTY && time.Since(last) < every {
			return
		}
		last = time.Now()
		a.Term.Note("%v: %d of %d faults, %d tasks accepted, %d answered, %d violations", p.Elapsed.Round(time.Second), p.Faults, p.Of, p.Accepted, p.Answered, p.Violations)
	}
	ctx, cancel := a.WhileRead(ctx) // "soak | head" must not leave the servers and workers behind
	defer cancel()
	report, err := soak.Run(ctx, f.Options)
	if err != nil && ctx.Err() != nil {
		err = outcome.ErrInterrupted
	}
	if err != nil {
		return outcome.Hinted(err, "Stores and logs are in %s.", f.Dir)
	}
	if a.Term.JSON {
		err = a.Term.Object(report)
	} else {
		err = report.Write(a.Term.Data)
	}
	if err != nil {
		return err
	}
	if n := len(report.Violations); n > 0 {
		return outcome.Hinted(fmt.Errorf("%d promises were broken", n), "The trace is %s/trace.json; \"aeemesh soak --seed %d\" and the same flags draw the same faults.", f.Dir, f.Seed)
	}
	a.Term.Good("no promise was broken")
	if keep {
		return nil
	}
	return os.RemoveAll(f.Dir)
}

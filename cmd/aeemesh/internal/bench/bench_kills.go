package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// killOptions are the settings of "bench kills".
type killOptions struct {
	kills, drains  int
	workers, runs  int // runs of each worker
	calm           time.Duration
	watched        int
	seed           uint64
	json           bool
	stdout, stderr io.Writer
}

// killRow is one measurement of "bench kills", as --json prints it.
type killRow struct {
	What  string  `json:"what"`
	Times int     `json:"times"`
	P50   float64 `json:"p50_ms,omitempty"`
	P90   float64 `json:"p90_ms,omitempty"`
	P99   float64 `json:"p99_ms,omitempty"`
	Max   float64 `json:"max_ms,omitempty"`

	Reconnects int     `json:"reconnects,omitempty"`             // of workers, during the calm
	TakenOver  *int    `json:"false_take_overs,omitempty"`       // during the calm
	GivenUp    *int    `json:"false_unavailable,omitempty"`      // live tasks, during the calm
	CPU        float64 `json:"cpu_ms_per_s,omitempty"`           // of the server and the workers
	Alone      float64 `json:"cpu_ms_per_s_unwatched,omitempty"` // of as many that are not watched
}

func newBenchKillsCommand(stdout, stderr io.Writer) *cobra.Command {
	o := killOptions{stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "kills",
		Short: "Measure how soon work goes on when a worker dies",
		Long: `Starts a server and worker processes of one agent, with durable runs that write
a checkpoint every 50 ms and live tasks that wait, and measures

- from the kill -9 of a worker until each of its runs works again on another
  one, and until the senders of its live tasks are told;
- from a draining worker's release of a run until it works again on another one;
- how many runs are taken from workers that live, and how many senders are told
  wrongly, while the workers connect again every few seconds beside processes
  that use all of the machine;
- what it costs in CPU to watch workers: those of one agent with a run each,
  beside as many agents of one worker, which no other watches (Linux only).

A worker is killed when its runs have worked for a second, and another one is
started in its place afterwards.`,
		Example: `  aeemesh bench kills
  aeemesh bench kills --kills 60 --drains 10 --calm 1m`,
		Args: outcome.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.json = asJSON(cmd)
			if o.kills < 0 || o.drains < 0 || o.calm < 0 || o.watched < 0 || o.runs < 1 || o.workers < 2 {
				return outcome.Usagef(cmd, "--workers must be 2 or more, --runs above 0, and --kills, --drains, --calm and --watched not below 0")
			}
			return runBenchKills(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&o.kills, "kills", 500, "how often a worker is killed")
	f.IntVar(&o.drains, "drains", 50, "how often a worker is stopped and drains")
	f.IntVar(&o.workers, "workers", 3, "worker processes of the agent")
	f.IntVar(&o.runs, "runs", 2, "runs for each worker, and live tasks")
	f.DurationVar(&o.calm, "calm", 10*time.Minute, "how long no worker is killed, but all connect again and again")
	f.IntVar(&o.watched, "watched", 100, "workers whose watching is measured")
	f.Uint64Var(&o.seed, "seed", 1, "of the choice of workers")
	cmd.AddCommand(newBenchKillsWorkCommand(stdout), newBenchKillsBurnCommand(stdout))
	return cmd
}

// killBench is the state of one run of the command.
type killBench struct {
	killOptions
	url    string
	server *role
	node   *mesh.Node
	rand   *rand.Rand
	crew   map[int]*role // the workers, by process id
	seen   *sightings
	live   *liveTasks
}

func runBenchKills(ctx context.Context, o killOptions) error {
	return withServer(ctx, func(server *role, conn *nats.Conn, js natsjs.JetStream) error {
		if _, err := jetstream.Apply(ctx, js, jetstream.Options{}); err != nil {
			return err
		}
		node, err := mesh.New(conn, killConfig(js, benchClient))
		if err != nil {
			return err
		}
		if !o.json {
			fmt.Fprintf(o.stderr, "%s; %d workers, %d runs and %d live tasks; lease %v\n", machine(), o.workers, o.workers*o.runs, o.workers*o.runs, mesh.DefaultLease)
			fmt.Fprintf(o.stdout, "%-44s %6s %8s %8s %8s %8s\n", "", "times", "p50 ms", "p90 ms", "p99 ms", "max ms")
		}
		b := &killBench{killOptions: o, url: conn.ConnectedUrl(), server: server, node: node, rand: rand.New(rand.NewPCG(o.seed, o.seed)), crew: map[int]*role{}}
		for i, phase := range []func(context.Context) error{b.kill, b.drain, b.measureCalm, b.watch} {
			if err := b.phase(ctx, conn, fmt.Sprintf("%s_kills%d", benchAgent, i), phase); err != nil {
				return err
			}
		}
		return nil
	})
}

// phase runs one measurement with tasks of its own, and cleans up behind it.
func (b *killBench) phase(ctx context.Context, conn *nats.Conn, entity string, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	if b.seen, err = watchRuns(conn, entity); err != nil {
		return err
	}
	defer func() { _ = b.seen.sub.Unsubscribe() }()
	b.live = &liveTasks{}
	defer b.live.tasks.Wait()
	defer b.dismiss()
	defer cancel()
	return f(ctx)
}

// recruit starts workers.
func (b *killBench) recruit(ctx context.Context, n int, args ...string) error {
	for range n {
		worker, _, err := startRole(ctx, "kills", append([]string{"work", "--url", b.url}, args...)...)
		if err != nil {
			return err
		}
		b.crew[worker.pid()] = worker
	}
	return nil
}

// dismiss kills all workers: their runs never end by themselves.
func (b *killBench) dismiss() {
	for pid, worker := range b.crew {
		worker.cmd.Process.Kill()
		worker.stop()
		delete(b.crew, pid)
	}
}

// employ starts the workers and gives them work that does not end.
func (b *killBench) employ(ctx context.Context, args ...string) error {
	if err := b.recruit(ctx, b.workers, args...); err != nil {
		return err
	}
	entity := b.seen.entity
	for range b.workers * b.runs {
		if _, err := b.node.Submit(ctx, killTask(entity, 50*time.Millisecond), mesh.SubmitOptions{}); err != nil {
			return err
		}
		b.live.keep(ctx, b.node, entity)
	}
	return b.seen.until(ctx, "the runs begin", func(s *sightings) bool { return len(s.runs) == b.workers*b.runs })
}

// target returns the runs of a worker that may be hit now: each has worked there for a
// second.
func (b *killBench) target(ctx context.Context) (pid int, runs []string, err error) {
	err = b.seen.until(ctx, "a worker has worked for a second", func(s *sightings) bool {
		pids := slices.Sorted(maps.Keys(b.crew))
		b.rand.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
		for _, pid = range pids {
			if runs = s.of(pid, time.Second); len(runs) > 0 {
				return true
			}
		}
		return false
	})
	return pid, runs, err
}

func (b *killBench) kill(ctx context.Context) error {
	if b.kills == 0 {
		return nil
	}
	if err := b.employ(ctx, "--entity", b.seen.entity); err != nil {
		return err
	}
	var gaps []time.Duration
	for range b.kills {
		pid, runs, err := b.target(ctx)
		if err != nil {
			return err
		}
		worker := b.crew[pid]
		delete(b.crew, pid)
		at := time.Now()
		b.live.killed(at)
		worker.cmd.Process.Kill()
		more, err := b.seen.gaps(ctx, runs, pid, func(sighting) time.Time { return at })
		worker.stop()
		if err != nil {
			return err
		}
		gaps = append(gaps, more...)
		if err := b.recruit(ctx, 1, "--entity", b.seen.entity); err != nil {
			return err
		}
		if !pause.For(ctx, 500*time.Millisecond+rand.N(time.Second)) {
			return context.Cause(ctx)
		}
	}
	told, _ := b.live.reports()
	return errors.Join(b.print(distribution("kill -9 to running again, runs", gaps)), b.print(distribution("kill -9 to E_UNAVAILABLE, live tasks", told)))
}

func (b *killBench) drain(ctx context.Context) error {
	if b.drains == 0 {
		return nil
	}
	if err := b.employ(ctx, "--entity", b.seen.entity); err != nil {
		return err
	}
	var gaps []time.Duration
	for range b.drains {
		if err := b.recruit(ctx, 1, "--entity", b.seen.entity); err != nil {
			return err
		}
		pid, runs, err := b.target(ctx)
		if err != nil {
			return err
		}
		worker := b.crew[pid]
		delete(b.crew, pid)
		worker.stdin.Close()
		more, err := b.seen.gaps(ctx, runs, pid, func(s sighting) time.Time { return s.last })
		worker.cmd.Process.Kill() // its live tasks would keep it for the whole drain
		worker.stop()
		if err != nil {
			return err
		}
		gaps = append(gaps, more...)
	}
	return b.print(distribution("draining worker's release to running again", gaps))
}

func (b *killBench) measureCalm(ctx context.Context) error {
	if b.calm == 0 {
		return nil
	}
	if err := b.employ(ctx, "--entity", b.seen.entity, "--reconnect", "3s"); err != nil {
		return err
	}
	var neighbours []*role
	for range runtime.NumCPU() {
		burner, _, err := startRole(ctx, "kills", "burn")
		if err != nil {
			return err
		}
		defer burner.stop()
		neighbours = append(neighbours, burner)
	}
	before := b.seen.moved()
	if !pause.For(ctx, b.calm) {
		return context.Cause(ctx)
	}
	moved := b.seen.moved() - before
	_, wrong := b.live.reports()
	return b.print(killRow{What: fmt.Sprintf("calm of %v beside %d busy processes", b.calm, len(neighbours)), Times: b.workers * b.runs,
		Reconnects: b.seen.reconnected(), TakenOver: &moved, GivenUp: &wrong})
}

// watch compares workers that watch one another with as many that are not watched.
func (b *killBench) watch(ctx context.Context) error {
	if b.watched == 0 || cpuOf(b.server.pid()) < 0 {
		return nil
	}
	row := killRow{What: fmt.Sprintf("%d workers with a run each", b.watched), Times: b.watched}
	for _, alone := range []bool{true, false} {
		entity := b.seen.entity + "_" + strconv.FormatBool(alone)
		if err := b.recruit(ctx, 1, "--entity", entity, "--workers", strconv.Itoa(b.watched), fmt.Sprintf("--alone=%t", alone), "--concurrency", "1"); err != nil {
			return err
		}
		for i := range b.watched {
			if _, err := b.node.Submit(ctx, killTask(workerEntity(entity, i, alone), time.Hour), mesh.SubmitOptions{}); err != nil {
				return err
			}
		}
		if err := b.seen.until(ctx, "each has a run", func(s *sightings) bool { return len(s.runs) == b.watched }); err != nil {
			return err
		}
		if !pause.For(ctx, 5*time.Second) { // until each has its guardians
			return context.Cause(ctx)
		}
		const during = 20 * time.Second
		pids := append(slices.Collect(maps.Keys(b.crew)), b.server.pid())
		before := cpuOf(pids...)
		if !pause.For(ctx, during) {
			return context.Cause(ctx)
		}
		used := float64((cpuOf(pids...) - before).Milliseconds()) / during.Seconds()
		if alone {
			row.Alone = used
		} else {
			row.CPU = used
		}
		b.dismiss()
		b.seen.forget()
	}
	return b.print(row)
}

func (b *killBench) print(row killRow) error { return printKills(b.stdout, b.json, row) }

func printKills(w io.Writer, asJSON bool, row killRow) error {
	switch {
	case row.TakenOver != nil:
		return emit(w, asJSON, row, "%s: %d runs, %d reconnects, %d taken from workers that live, %d live tasks given up wrongly\n", row.What, row.Times, row.Reconnects, *row.TakenOver, *row.GivenUp)
	case row.CPU > 0:
		return emit(w, asJSON, row, "%s: watched %.0f ms of CPU a second, not watched %.0f\n", row.What, row.CPU, row.Alone)
	}
	return emit(w, asJSON, row, "%-44s %6d %8.0f %8.0f %8.0f %8.0f\n", row.What, row.Times, row.P50, row.P90, row.P99, row.Max)
}

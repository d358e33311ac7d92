package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/scratch"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream/soak"
)

// The ways in which "bench migrate" moves runs.
const (
	moveToWorker = "worker" // to another worker of the same system
	moveToHTTPS  = "https"  // to another system
)

// moveOptions are the settings of "bench migrate".
type moveOptions struct {
	bytes  []int
	ways   []string
	moves  int
	logs   bool // print what the workers and the receiver log
	json   bool
	stdout io.Writer
}

// moveRow is one measurement of "bench migrate", as --json prints it. The parts are
// medians, and add up to the pause of one move.
type moveRow struct {
	To    string  `json:"to"`
	Bytes int     `json:"bytes"` // of text in the run's conversation
	Moves int     `json:"moves"` // all of them arrived and went on
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
	Stop  float64 `json:"stop_ms"`  // the source stores its last step
	Carry float64 `json:"carry_ms"` // until the target's handler begins
	Step  float64 `json:"step_ms"`  // the target stores its first step
}

func newBenchMigrateCommand(stdout, stderr io.Writer) *cobra.Command {
	o := moveOptions{stdout: stdout}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Measure for how long a run stands still while it moves",
		Long: `Starts a server and worker processes of one agent, and moves durable runs from
one worker to the other, and over HTTPS to a second system with a server, a
worker and a receiver of its own. The pause is the time from the moment in which
the source begins to store its last step until the target has stored its first
one, and its parts are

- stop: until the last step is stored, with which the run is captured;
- carry: until the target's handler begins;
- step: until its first step is stored.

Each move is of another run, with a conversation of so many bytes. All of them
have to arrive on the other worker with the whole conversation, go on, and
answer their sender. The first move of each row is not counted.`,
		Example: `  aeemesh bench migrate
  aeemesh bench migrate --bytes 20000000 --moves 8
  aeemesh bench migrate --to worker --bytes 10000 --moves 500`,
		Args: outcome.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.json = asJSON(cmd)
			if len(o.bytes) == 0 || slices.Min(o.bytes) < 1 || slices.Max(o.bytes) > maxMoved || o.moves < 1 {
				return outcome.Usagef(cmd, "--bytes and --moves must be above 0, and --bytes at most %d", maxMoved)
			}
			for _, way := range o.ways {
				if err := outcome.OneOf(cmd, "to", way, moveToWorker, moveToHTTPS); err != nil {
					return err
				}
			}
			if !o.json {
				fmt.Fprintf(stderr, "%s; %s each; times in ms\n", machine(), term.Counted(o.moves, "move", "moves"))
				fmt.Fprintf(stdout, "%-8s %10s %6s %8s %8s %8s %8s   %26s\n", "to", "bytes", "moves", "p50", "p90", "p99", "max", "p50 of stop, carry, step")
			}
			for _, way := range o.ways {
				for _, n := range o.bytes {
					row, err := o.measure(cmd.Context(), way, n)
					if err == nil {
						err = printMove(stdout, o.json, row)
					}
					if err != nil {
						return fmt.Errorf("bench migrate: to %s, %d bytes: %w", way, n, err)
					}
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntSliceVar(&o.bytes, "bytes", []int{10_000, 1_000_000}, "sizes of the runs' conversations")
	f.StringSliceVar(&o.ways, "to", []string{moveToWorker, moveToHTTPS}, "where the runs move: to a worker of the same system, to another system over https")
	f.IntVar(&o.moves, "moves", 100, "moves of each kind")
	f.BoolVar(&o.logs, "logs", false, "print what the workers and the receiver log")
	cmd.AddCommand(newBenchMigrateWorkCommand(stdout), newBenchMigrateReceiveCommand(stdout))
	return cmd
}

func printMove(w io.Writer, asJSON bool, r moveRow) error {
	return emit(w, asJSON, r, "%-8s %10d %6d %8.1f %8.1f %8.1f %8.1f   %8.1f %8.1f %8.1f\n", r.To, r.Bytes, r.Moves, r.P50, r.P90, r.P99, r.Max, r.Stop, r.Carry, r.Step)
}

// measure makes one row, on servers of its own.
func (o moveOptions) measure(ctx context.Context, way string, n int) (row moveRow, err error) {
	dir, remove, err := scratch.Dir(os.TempDir(), scratchName)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b := &moveBench{moveOptions: o, reports: make(chan moveReport, 64), to: "any"}
	defer b.stop()
	source, err := b.system(ctx, filepath.Join(dir, "source"), sourceSystem)
	if err != nil {
		return row, err
	}
	switch way {
	case moveToWorker:
		for range 2 {
			if err := b.start(ctx, "work", "--url", source.url); err != nil {
				return row, err
			}
		}
	case moveToHTTPS:
		if err := b.startSystems(ctx, dir, source); err != nil {
			return row, err
		}
	}
	var moves []moved
	for i := range o.moves + 1 {
		one, err := b.move(ctx, source, n)
		if err != nil {
			return row, fmt.Errorf("move %d: %w", i+1, err)
		}
		if i > 0 {
			moves = append(moves, one)
		}
	}
	return rowOf(way, n, moves), nil
}

// startSystems starts the source's worker and a second system.
func (b *moveBench) startSystems(ctx context.Context, dir string, source *moveSystem) error {
	target, err := b.system(ctx, filepath.Join(dir, "target"), targetSystem)
	if err != nil {
		return err
	}
	cert, key, err := soak.Certificate()
	if err != nil {
		return err
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := errors.Join(os.WriteFile(certFile, []byte(cert), 0o600), os.WriteFile(keyFile, []byte(key), 0o600)); err != nil {
		return err
	}
	if err := b.start(ctx, "work", "--url", target.url, "--platform", targetSystem); err != nil {
		return err
	}
	receiver, url, err := startRole(ctx, "migrate", b.logged("receive", "--url", target.url, "--cert", certFile, "--key", keyFile)...)
	if err != nil {
		return err
	}
	b.roles = append(b.roles, receiver)
	b.to = url
	return b.start(ctx, "work", "--url", source.url, "--platform", sourceSystem, "--remote", url, "--ca", certFile)
}

// moved is the parts of one pause.
type moved struct{ stop, carry, step time.Duration }

func (m moved) pause() time.Duration { return m.stop + m.carry + m.step }

// rowOf makes the row of all moves of one kind.
func rowOf(way string, n int, moves []moved) moveRow {
	take := func(part func(moved) time.Duration) killRow {
		var all []time.Duration
		for _, m := range moves {
			all = append(all, part(m))
		}
		return distribution(way, all)
	}
	whole := take(moved.pause)
	return moveRow{
		To: way, Bytes: n, Moves: len(moves), P50: whole.P50, P90: whole.P90, P99: whole.P99, Max: whole.Max,
		Stop:  take(func(m moved) time.Duration { return m.stop }).P50,
		Carry: take(func(m moved) time.Duration { return m.carry }).P50,
		Step:  take(func(m moved) time.Duration { return m.step }).P50,
	}
}

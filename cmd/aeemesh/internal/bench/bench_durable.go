package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/jetstream"
)

// Modes of "bench durable". Each mode of ours is measured between two runs of
// its raw counterpart.
const (
	benchStream     benchMode = "raw JetStream"  // publish with ack, pull, ack, core reply
	benchExchanges  benchMode = "same exchanges" // those of a durable task: see bench_exchanges.go
	benchTask       benchMode = "durable task"   // submit, look the run up, store its reply, announce
	benchKV         benchMode = "raw KV put"     //
	benchSwap       benchMode = "raw KV update"  // the same by compare-and-swap
	benchCheckpoint benchMode = "checkpoint"     // encode, and write by compare-and-swap
)

// durableRow is one measurement, as --json prints it.
type durableRow struct {
	Sync  string `json:"sync_interval"`
	Bytes int    `json:"bytes,omitempty"` // of a checkpoint
	benchRow
	Server float64 `json:"server_cpu_us_per_op,omitempty"`
	Worker float64 `json:"worker_cpu_us_per_op,omitempty"`
	Client float64 `json:"client_cpu_us_per_op,omitempty"`
}

func newBenchDurableCommand(stdout, stderr io.Writer) *cobra.Command {
	var o benchOptions
	var syncs []string
	var only string
	cmd := &cobra.Command{
		Use:   "durable",
		Short: "Measure the durable lane against raw JetStream in the same run",
		Long: `Measures what a durable task costs beside the same bytes over raw JetStream, and
what a checkpoint costs beside a raw KV put; one replica, with sync_interval at
its default and at always.

Raw JetStream is a task that is published and acknowledged by the server, pulled
by a consumer of a work queue, answered over core NATS, and acknowledged. Ours
is a task that is submitted, looked up, run by a Go handler in one step, ended
by its stored reply, announced, and acknowledged. "same exchanges" are those of
ours, made by a program that checks and decodes nothing: what ours costs beyond
them is the mesh's code, what they cost beyond raw are its promises.

A checkpoint is encoded and written by compare-and-swap; the raw put writes as
many bytes to a bucket of the same kind. A raw update, by compare-and-swap of
prepared bytes, shows which part of the difference is the server's.

A server, a worker and a client run as separate processes over TCP on this
machine. Each of ours runs between two runs of raw, and its ratio is to the mean
of those two. CPU per operation is that of server, worker and client (Linux
only).`,
		Example: `  aeemesh bench durable
  aeemesh bench durable --sync 2m --inflight 64 --rounds 5
  aeemesh bench durable --json > bench.jsonl`,
		Args: outcome.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.json = asJSON(cmd)
			if o.rounds < 1 || o.duration <= 0 || o.payload < 0 || len(o.inflight) == 0 || slices.Min(o.inflight) < 1 || len(syncs) == 0 {
				return outcome.Usagef(cmd, "--inflight, --duration and --rounds must be above 0, and --payload not below")
			}
			for _, s := range syncs {
				if err := outcome.OneOf(cmd, "sync", s, "2m", "always"); err != nil {
					return err
				}
			}
			if only != "" {
				if err := outcome.OneOf(cmd, "only", only, "task", "checkpoint"); err != nil {
					return err
				}
			}
			return runBenchDurable(cmd.Context(), o, syncs, only, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntSliceVar(&o.inflight, "inflight", []int{1, 16, 64}, "tasks that are under way at once")
	f.StringSliceVar(&syncs, "sync", []string{"2m", "always"}, "sync_intervals of the server: 2m (the default) and always")
	f.StringVar(&only, "only", "", "measure this alone: task or checkpoint")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "how long one measurement takes")
	f.IntVar(&o.rounds, "rounds", 3, "measurements of each kind; the median counts")
	f.IntVar(&o.payload, "payload", 128, "characters of text in each payload")
	cmd.AddCommand(newBenchWorkCommand(stdout), newBenchSubmitCommand(stdout))
	return cmd
}

func runBenchDurable(ctx context.Context, o benchOptions, syncs []string, only string, stdout, stderr io.Writer) error {
	if !o.json {
		fmt.Fprintf(stderr, "%s; %v a measurement, median of %d; %d characters of payload; one replica\n", machine(), o.duration, o.rounds, o.payload)
		fmt.Fprintf(stdout, "%-7s %-14s %8s %8s %10s %9s %9s %9s %7s %7s %7s %7s\n", "sync", "", "bytes", "inflight", "ops/s", "p50 µs", "p99 µs", "CPU µs", "server", "worker", "client", "ratio")
	}
	for _, sync := range syncs {
		if err := benchDurable(ctx, o, sync, only, stdout); err != nil {
			return fmt.Errorf("bench durable, sync_interval %s: %w", sync, err)
		}
	}
	return nil
}

// benchDurable runs all measurements against one server.
func benchDurable(ctx context.Context, o benchOptions, sync, only string, stdout io.Writer) error {
	return withServer(ctx, func(server *role, conn *nats.Conn, js natsjs.JetStream) error {
		if err := benchStreams(ctx, js); err != nil {
			return err
		}
		b := &bench{benchOptions: o, url: conn.ConnectedUrl(), server: server, js: js}
		return b.durableRows(ctx, only, func(row durableRow) error {
			row.Sync = sync
			return printDurable(stdout, o.json, row)
		})
	}, fmt.Sprintf("--always=%t", sync == "always"))
}

// durableRows makes all measurements against one server.
func (b *bench) durableRows(ctx context.Context, only string, print func(durableRow) error) error {
	compare := func(inflight, bytes int, raw benchMode, ours ...benchMode) error {
		once := func(mode benchMode) (sidesRun, error) { return b.durable(ctx, mode, inflight, bytes) }
		rows, err := b.compare(once, raw, ours...)
		for _, row := range rows {
			row.Inflight, row.Bytes = inflight, bytes
			if err := print(row); err != nil {
				return err
			}
		}
		return err
	}
	if only != "checkpoint" {
		for _, inflight := range b.inflight {
			if err := compare(inflight, 0, benchStream, benchExchanges, benchTask); err != nil {
				return err
			}
		}
	}
	if only == "task" {
		return nil
	}
	for _, size := range []int{4 << 10, 64 << 10} {
		for _, inflight := range []int{1, 16} {
			if err := compare(inflight, size, benchKV, benchSwap, benchCheckpoint); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchStreams makes the mesh's streams, and streams of the same kinds for the
// raw side.
func benchStreams(ctx context.Context, js natsjs.JetStream) error {
	if _, err := jetstream.Apply(ctx, js, jetstream.Options{}); err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, natsjs.StreamConfig{Name: benchRawStream, Subjects: []string{benchRawStream}, Retention: natsjs.WorkQueuePolicy, Discard: natsjs.DiscardNew, MaxBytes: 256 << 20}); err != nil {
		return err
	}
	state, err := js.Stream(ctx, "KV_"+jetstream.BucketState)
	if err != nil {
		return err
	}
	raw := state.CachedInfo().Config
	raw.Metadata = nil
	raw.Name, raw.Subjects = "KV_"+benchRawBucket, []string{"$KV." + benchRawBucket + ".>"}
	_, err = js.CreateStream(ctx, raw)
	return err
}

// benchPurge empties the streams that the previous measurement has filled.
func benchPurge(ctx context.Context, js natsjs.JetStream) error {
	for _, name := range []string{"KV_" + benchRawBucket, "KV_" + jetstream.BucketState, jetstream.StreamReply} {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		if err := s.Purge(ctx); err != nil {
			return err
		}
	}
	return nil
}

func printDurable(stdout io.Writer, asJSON bool, row durableRow) error {
	ratio, bytes := "1", ""
	if row.RatioToRaw != 0 {
		ratio = fmt.Sprintf("%.2f", row.RatioToRaw)
	}
	if row.Bytes != 0 {
		bytes = strconv.Itoa(row.Bytes)
	}
	return emit(stdout, asJSON, row, "%-7s %-14s %8s %8d %10.0f %9.0f %9.0f %9.1f %7.1f %7.1f %7.1f %7s\n",
		row.Sync, row.Mode, bytes, row.Inflight, row.PerSecond, row.P50Micros, row.P99Micros, row.CPUMicros, row.Server, row.Worker, row.Client, ratio)
}

// durable makes one measurement with its own client, and with a worker if the
// mode needs one.
func (b *bench) durable(ctx context.Context, mode benchMode, inflight, bytes int) (run sidesRun, err error) {
	args := []string{"--url", b.url, "--mode", string(mode), "--inflight", strconv.Itoa(inflight), "--payload", strconv.Itoa(b.payload), "--bytes", strconv.Itoa(bytes)}
	if err := benchPurge(ctx, b.js); err != nil {
		return run, err
	}
	var workers []int
	if mode == benchStream || mode == benchExchanges || mode == benchTask {
		worker, _, err := startRole(ctx, "durable", append([]string{"work"}, args...)...)
		if err != nil {
			return run, err
		}
		defer worker.stop()
		workers = append(workers, worker.pid())
	}
	return b.client(ctx, workers, append([]string{"durable", "submit"}, args...)...)
}

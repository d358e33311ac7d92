package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/scratch"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

// benchOptions are the settings of one bench run.
type benchOptions struct {
	inflight []int
	duration time.Duration
	rounds   int
	payload  int
	events   bool
	json     bool
}

// benchMode names what is measured.
type benchMode string

const (
	benchRaw     benchMode = "raw"
	benchPlain   benchMode = "unsigned"
	benchHS256   benchMode = "HS256"
	benchEd25519 benchMode = "Ed25519"
)

// benchRow is one measurement, as --json prints it.
type benchRow struct {
	Mode       benchMode `json:"mode"`
	Inflight   int       `json:"inflight"`
	PerSecond  float64   `json:"per_second"` // median of the rounds
	P50Micros  float64   `json:"p50_us"`
	P99Micros  float64   `json:"p99_us"`
	CPUMicros  float64   `json:"cpu_us_per_op,omitempty"` // of server, responder and client together
	RatioToRaw float64   `json:"ratio_to_raw,omitempty"`  // median of the rounds; each is divided by the mean of the raw runs around it
}

// Command returns the command; what it prints goes to stdout and stderr.
func Command(stdout, stderr io.Writer) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure request/reply against raw NATS in the same run",
		Long: `Measures how much of raw NATS request/reply is left when tasks are AEE
envelopes: unsigned, signed and verified both ways with HS256, and with Ed25519.

A server, a responder and a client run as separate processes over TCP on this
machine. Raw NATS sends the very same bytes and looks at none of them. Each of
ours runs between two runs of raw, and its ratio is to the mean of those two.
CPU per operation is that of all three processes (Linux only).`,
		Example: `  aeemesh bench
  aeemesh bench --inflight 64 --duration 5s --rounds 5
  aeemesh bench --json > bench.jsonl`,
		Args: outcome.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.json = asJSON(cmd)
			if o.rounds < 1 || o.duration <= 0 || o.payload < 0 || len(o.inflight) == 0 || slices.Min(o.inflight) < 1 {
				return outcome.Usagef(cmd, "--inflight, --duration and --rounds must be above 0, and --payload not below")
			}
			return runBench(cmd.Context(), o, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.inflight, "inflight", []int{1, 16, 64}, "requests that are under way at once")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "how long one measurement takes")
	f.IntVar(&o.rounds, "rounds", 3, "measurements of each kind; the median counts")
	f.IntVar(&o.payload, "payload", 128, "characters of text in each payload")
	f.BoolVar(&o.events, "task-events", false, "let the worker tell the bus of every task, as it does by default in production")
	cmd.AddCommand(newBenchServerCommand(stdout), newBenchRespondCommand(stdout), newBenchRequestCommand(stdout), newBenchDurableCommand(stdout, stderr), newBenchTreeCommand(stdout, stderr), newBenchKillsCommand(stdout, stderr), newBenchAgentsCommand(stdout, stderr), newBenchMigrateCommand(stdout, stderr), newBenchCrowdCommand(stdout))
	return cmd
}

// asJSON reports whether --json is given, which is a flag of the root command.
func asJSON(cmd *cobra.Command) bool {
	on, err := cmd.Flags().GetBool("json")
	return err == nil && on
}

// machine says on what the bench runs.
func machine() string {
	return term.Counted(runtime.NumCPU(), "core", "cores") + ", " + runtime.Version()
}

// emit prints a row: as JSON, or its cells in a format.
func emit(w io.Writer, asJSON bool, row any, format string, cells ...any) error {
	if asJSON {
		return json.NewEncoder(w).Encode(row)
	}
	_, err := fmt.Fprintf(w, format, cells...)
	return err
}

func runBench(ctx context.Context, o benchOptions, stdout, stderr io.Writer) error {
	server, url, err := startRole(ctx, "server")
	if err != nil {
		return err
	}
	defer server.stop()
	if !o.json {
		fmt.Fprintf(stderr, "%s; %v a measurement, median of %d; %d characters of payload\n", machine(), o.duration, o.rounds, o.payload)
		fmt.Fprintf(stdout, "%-9s %8s %10s %9s %9s %9s %7s\n", "", "inflight", "ops/s", "p50 µs", "p99 µs", "CPU µs", "ratio")
	}
	b := &bench{benchOptions: o, url: url, server: server}
	for _, inflight := range o.inflight {
		once := func(mode benchMode) (sidesRun, error) { return b.once(ctx, mode, inflight) }
		rows, err := b.compare(once, benchRaw, benchPlain, benchHS256, benchEd25519)
		if err != nil {
			return fmt.Errorf("bench %w", err)
		}
		for _, row := range rows {
			row.Inflight = inflight
			ratio := "1"
			if row.Mode != benchRaw {
				ratio = fmt.Sprintf("%.2f", row.RatioToRaw)
			}
			if err := emit(stdout, o.json, row.benchRow, "%-9s %8d %10.0f %9.0f %9.0f %9.1f %7s\n", row.Mode, row.Inflight, row.PerSecond, row.P50Micros, row.P99Micros, row.CPUMicros, ratio); err != nil {
				return err
			}
		}
	}
	return nil
}

// bench is the state of one run of the command.
type bench struct {
	benchOptions
	url    string
	server *role
	js     natsjs.JetStream // of "bench durable"
}

// sidesRun is one measurement, with each process's processor time per operation in
// microseconds.
type sidesRun struct {
	benchRun
	server, worker, client float64
}

// compare runs the rounds of one comparison: raw, ours, raw, and so on. Ratios
// are of operations per second, each to the mean of the raw runs around it.
func (b *bench) compare(once func(benchMode) (sidesRun, error), raw benchMode, ours ...benchMode) ([]durableRow, error) {
	runs := map[benchMode][]sidesRun{}
	ratios := map[benchMode][]float64{}
	measure := func(mode benchMode) (sidesRun, error) {
		run, err := once(mode)
		if err != nil {
			return run, fmt.Errorf("%s: %w", mode, err)
		}
		runs[mode] = append(runs[mode], run)
		return run, nil
	}
	for range b.rounds {
		before, err := measure(raw)
		if err != nil {
			return nil, err
		}
		for _, mode := range ours {
			run, err := measure(mode)
			if err != nil {
				return nil, err
			}
			after, err := measure(raw)
			if err != nil {
				return nil, err
			}
			ratios[mode] = append(ratios[mode], 2*run.PerSecond/(before.PerSecond+after.PerSecond))
			before = after
		}
	}
	var rows []durableRow
	for _, mode := range append([]benchMode{raw}, ours...) {
		pick := func(f func(sidesRun) float64) float64 {
			var all []float64
			for _, run := range runs[mode] {
				all = append(all, f(run))
			}
			return median(all)
		}
		rows = append(rows, durableRow{
			benchRow: benchRow{
				Mode: mode, RatioToRaw: median(ratios[mode]),
				PerSecond: pick(func(r sidesRun) float64 { return r.PerSecond }),
				P50Micros: pick(func(r sidesRun) float64 { return r.P50Micros }),
				P99Micros: pick(func(r sidesRun) float64 { return r.P99Micros }),
				CPUMicros: pick(func(r sidesRun) float64 { return r.CPUMicros }),
			},
			Server: pick(func(r sidesRun) float64 { return r.server }),
			Worker: pick(func(r sidesRun) float64 { return r.worker }),
			Client: pick(func(r sidesRun) float64 { return r.client }),
		})
	}
	return rows, nil
}

// quantile returns the element of a sorted slice that a share of the others is below.
func quantile[T any](sorted []T, share float64) T {
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

// once makes one measurement with its own responder and client.
func (b *bench) once(ctx context.Context, mode benchMode, inflight int) (run sidesRun, err error) {
	args := []string{"--url", b.url, "--mode", string(mode), "--inflight", strconv.Itoa(inflight)}
	responder, _, err := startRole(ctx, "respond", append(args, fmt.Sprintf("--task-events=%t", b.events))...)
	if err != nil {
		return run, err
	}
	defer responder.stop()
	return b.client(ctx, []int{responder.pid()}, append([]string{"request"}, append(args, "--payload", strconv.Itoa(b.payload))...)...)
}

// client runs a client until it has made its measurement. CPU includes its start-up,
// which is small in comparison.
func (b *bench) client(ctx context.Context, workers []int, args ...string) (run sidesRun, err error) {
	server, worker := cpuOf(b.server.pid()), cpuOf(workers...)
	client, err := roleCommand(ctx, append(args, "--duration", b.duration.String())...)
	if err != nil {
		return run, err
	}
	out, err := client.Output()
	if err != nil {
		return run, fmt.Errorf("client: %w", err)
	}
	serverEnd, workerEnd := cpuOf(b.server.pid()), cpuOf(workers...)
	if err := json.Unmarshal(out, &run.benchRun); err != nil {
		return run, fmt.Errorf("client: %w", err)
	}
	if server >= 0 && serverEnd >= 0 {
		each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(run.Total) }
		run.server, run.worker, run.client = each(serverEnd-server), each(workerEnd-worker), each(client.ProcessState.UserTime()+client.ProcessState.SystemTime())
		run.CPUMicros = run.server + run.worker + run.client
	}
	return run, nil
}

// role is a child process of the bench. It is ready when it has printed a line.
type role struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func (r *role) pid() int { return r.cmd.Process.Pid }

// stop ends the child. A child also ends when its standard input closes, so
// that none is left behind if the parent is killed.
func (r *role) stop() {
	r.stdin.Close()
	r.cmd.Wait()
}

// roleCommand returns the command of a child process, which is not started.
func roleCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"bench"}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

func startRole(ctx context.Context, name string, args ...string) (*role, string, error) {
	cmd, err := roleCommand(ctx, append([]string{name}, args...)...)
	if err != nil {
		return nil, "", err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("bench %s: %w", name, err)
	}
	r := &role{cmd, stdin}
	line := make([]byte, 256)
	n, err := stdout.Read(line)
	if err != nil {
		r.stop()
		return nil, "", fmt.Errorf("bench %s did not start", name)
	}
	return r, strings.TrimSpace(string(line[:n])), nil
}

// scratchName is the prefix of the servers' store directories.
const scratchName = "aeemesh-bench-"

// withServer starts a server with JetStream that stores in a directory of its own, calls f
// with a connection to it, and removes all.
func withServer(ctx context.Context, f func(server *role, conn *nats.Conn, js natsjs.JetStream) error, args ...string) (err error) {
	dir, remove, err := scratch.Dir(os.TempDir(), scratchName)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	server, url, err := startRole(ctx, "server", append([]string{"--store", dir}, args...)...)
	if err != nil {
		return err
	}
	defer server.stop()
	conn, js, err := connect(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(server, conn, js)
}

// cpuOf returns the processor time that processes have used so far, or -1 if
// the system does not provide it.
func cpuOf(pids ...int) time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux
	var total time.Duration
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return -1
		}
		// The name, in parentheses, may contain spaces and parentheses.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, i := range []int{11, 12} {
			n, err := strconv.Atoi(fields[i])
			if err != nil {
				return -1
			}
			total += time.Duration(n) * tick
		}
	}
	return total
}

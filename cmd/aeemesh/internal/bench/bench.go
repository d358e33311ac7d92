package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
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
		Long: `Measures how much of raw NATS request/reply is left when tasks are AEE envelopes:
unsigned, signed and verified both ways with HS256, and with Ed25519.

A server, a responder and a client run as separate processes over TCP on this
machine. Raw NATS sends the very same bytes and looks at none of them. Each of
ours runs between two runs of raw, and its ratio is to the mean of those two.
CPU per operation is that of all three processes (Linux only).`,
		Example: `  aeemesh bench
  aeemesh bench --inflight 64 --duration 5s --rounds 5
  aeemesh bench --json > bench.jsonl`,
		Args: outcome.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	f.BoolVar(&o.json, "json", false, "print one JSON object a line")
	cmd.AddCommand(newBenchServerCommand(stdout), newBenchRespondCommand(stdout), newBenchRequestCommand(stdout), newBenchDurableCommand(stdout, stderr), newBenchTreeCommand(stdout, stderr), newBenchKillsCommand(stdout, stderr), newBenchAgentsCommand(stdout, stderr), newBenchMigrateCommand(stdout, stderr), newBenchCrowdCommand(stdout))
	return cmd
}

func runBench(ctx context.Context, o benchOptions, stdout, stderr io.Writer) error {
	server, url, err := startRole(ctx, "server")
	if err != nil {
		return err
	}
	defer server.stop()
	if !o.json {
		fmt.Fprintf(stderr, "%d cores, %s; %v a measurement, median of %d; %d characters of payload\n", runtime.NumCPU(), runtime.Version(), o.duration, o.rounds, o.payload)
		fmt.Fprintf(stdout, "%-9s %8s %10s %9s %9s %9s %7s\n", "", "inflight", "ops/s", "p50 µs", "p99 µs", "CPU µs", "ratio")
	}
	b := &bench{benchOptions: o, url: url, server: server}
	for _, inflight := range o.inflight {
		rows, err := b.measure(ctx, inflight)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if o.json {
				if err := json.NewEncoder(stdout).Encode(row); err != nil {
					return err
				}
				continue
			}
			ratio := "1"
			if row.Mode != benchRaw {
				ratio = fmt.Sprintf("%.2f", row.RatioToRaw)
			}
			fmt.Fprintf(stdout, "%-9s %8d %10.0f %9.0f %9.0f %9.1f %7s\n", row.Mode, row.Inflight, row.PerSecond, row.P50Micros, row.P99Micros, row.CPUMicros, ratio)
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

// measure runs the rounds for one number of requests in flight: raw, ours, raw,
// ours, raw, ours, raw.
func (b *bench) measure(ctx context.Context, inflight int) ([]benchRow, error) {
	order := []benchMode{benchRaw, benchPlain, benchRaw, benchHS256, benchRaw, benchEd25519, benchRaw}
	runs := map[benchMode][]benchRun{}
	ratios := map[benchMode][]float64{}
	for range b.rounds {
		round := make([]benchRun, len(order))
		for i, mode := range order {
			run, err := b.once(ctx, mode, inflight)
			if err != nil {
				return nil, fmt.Errorf("bench %s: %w", mode, err)
			}
			round[i] = run
			runs[mode] = append(runs[mode], run)
		}
		for i, mode := range order {
			if mode != benchRaw {
				ratios[mode] = append(ratios[mode], 2*round[i].PerSecond/(round[i-1].PerSecond+round[i+1].PerSecond))
			}
		}
	}
	var rows []benchRow
	for _, mode := range []benchMode{benchRaw, benchPlain, benchHS256, benchEd25519} {
		pick := func(f func(benchRun) float64) float64 {
			var all []float64
			for _, run := range runs[mode] {
				all = append(all, f(run))
			}
			return median(all)
		}
		rows = append(rows, benchRow{
			Mode: mode, Inflight: inflight, RatioToRaw: median(ratios[mode]),
			PerSecond: pick(func(r benchRun) float64 { return r.PerSecond }),
			P50Micros: pick(func(r benchRun) float64 { return r.P50Micros }),
			P99Micros: pick(func(r benchRun) float64 { return r.P99Micros }),
			CPUMicros: pick(func(r benchRun) float64 { return r.CPUMicros }),
		})
	}
	return rows, nil
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
func (b *bench) once(ctx context.Context, mode benchMode, inflight int) (benchRun, error) {
	args := []string{"--url", b.url, "--mode", string(mode), "--inflight", strconv.Itoa(inflight)}
	responder, _, err := startRole(ctx, "respond", append(args, fmt.Sprintf("--task-events=%t", b.events))...)
	if err != nil {
		return benchRun{}, err
	}
	defer responder.stop()
	before := cpuOf(b.server.pid(), responder.pid())
	args = append(args, "--duration", b.duration.String(), "--payload", strconv.Itoa(b.payload))
	client := exec.CommandContext(ctx, responder.cmd.Path, append([]string{"bench", "request"}, args...)...)
	client.Stderr = os.Stderr
	out, err := client.Output()
	if err != nil {
		return benchRun{}, fmt.Errorf("client: %w", err)
	}
	after := cpuOf(b.server.pid(), responder.pid())
	var run benchRun
	if err := json.Unmarshal(out, &run); err != nil {
		return benchRun{}, fmt.Errorf("client: %w", err)
	}
	if before >= 0 && after >= 0 {
		// The total includes the client's start-up, which is small in
		// comparison.
		total := after - before + client.ProcessState.UserTime() + client.ProcessState.SystemTime()
		run.CPUMicros = float64(total.Microseconds()) / float64(run.Total)
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

func startRole(ctx context.Context, name string, args ...string) (*role, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("bench: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"bench", name}, args...)...)
	cmd.Stderr = os.Stderr
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

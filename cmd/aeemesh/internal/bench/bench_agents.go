package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// crowdOptions are the settings of "bench agents".
type crowdOptions struct {
	agents  []int
	idle    time.Duration
	sample  int
	profile string
	json    bool
}

// crowdRow is one measurement of "bench agents", as --json prints it. Percentages are of
// one core. Memory is what the system has given to the process (Linux only).
type crowdRow struct {
	Agents        int     `json:"agents"`
	UpSeconds     float64 `json:"up_s"`             // until all agents answer
	WorkerKB      float64 `json:"worker_kb"`        // for each agent
	ServerKB      float64 `json:"server_kb"`        // for each agent
	WorkerIdle    float64 `json:"worker_idle_pct"`  // while no agent has a task
	ServerIdle    float64 `json:"server_idle_pct"`  //
	Sample        int     `json:"sample"`           // agents that were sent tasks; all have answered
	FirstP50      float64 `json:"first_p50_ms"`     // the first task of an agent
	FirstP99      float64 `json:"first_p99_ms"`     //
	OtherP50      float64 `json:"other_p50_ms"`     // its first task of another priority, for which the consumer has to be made
	OtherP99      float64 `json:"other_p99_ms"`     //
	AwakeP50      float64 `json:"awake_p50_ms"`     // its next task
	AwakeP99      float64 `json:"awake_p99_ms"`     //
	GoroutinesOne float64 `json:"goroutines_agent"` // for each agent, while all are idle
}

func newBenchAgentsCommand(stdout, stderr io.Writer) *cobra.Command {
	var o crowdOptions
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "Measure what many idle durable agents in one worker cost",
		Long: `Starts a server with JetStream and a worker process that hosts so many durable
agents, and measures how long they take to come up, the memory of worker and
server for each, and the processor time that both use while no agent has a task.
Then it sends durable tasks to some of them, one after the other: the first task
of an agent that has been idle since its start, its first one of another
priority, and its next one. All of them have to be answered.`,
		Example: `  aeemesh bench agents
  aeemesh bench agents --agents 1000,10000 --idle 30s`,
		Args: outcome.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.json = asJSON(cmd)
			if len(o.agents) == 0 || slices.Min(o.agents) < 1 || o.idle <= 0 || o.sample < 1 {
				return outcome.Usagef(cmd, "--agents, --idle and --sample must be above 0")
			}
			return runBenchAgents(cmd.Context(), o, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntSliceVar(&o.agents, "agents", []int{1000}, "agents in the worker")
	f.DurationVar(&o.idle, "idle", 15*time.Second, "for how long the idle processes are measured")
	f.IntVar(&o.sample, "sample", 100, "agents that are sent tasks")
	f.StringVar(&o.profile, "profile", "", "write profiles of the idle worker to this directory")
	return cmd
}

func runBenchAgents(ctx context.Context, o crowdOptions, stdout, stderr io.Writer) error {
	if !o.json {
		fmt.Fprintf(stderr, "%s; idle for %v; times in ms\n", machine(), o.idle)
		fmt.Fprintf(stdout, "%7s %7s %10s %10s %9s %9s %17s %17s %17s\n", "agents", "up s", "worker KB", "server KB", "worker %", "server %", "first p50/p99", "other p50/p99", "awake p50/p99")
	}
	for _, n := range o.agents {
		var row crowdRow
		err := withServer(ctx, func(server *role, conn *nats.Conn, js natsjs.JetStream) (err error) {
			row, err = o.measure(ctx, n, server, conn, js)
			return err
		})
		if err != nil {
			return fmt.Errorf("bench agents: %d agents: %w", n, err)
		}
		if err := emit(stdout, o.json, row, "%7d %7.1f %10.1f %10.1f %9.2f %9.2f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n", row.Agents, row.UpSeconds, row.WorkerKB, row.ServerKB,
			row.WorkerIdle, row.ServerIdle, row.FirstP50, row.FirstP99, row.OtherP50, row.OtherP99, row.AwakeP50, row.AwakeP99); err != nil {
			return err
		}
	}
	return nil
}

// measure makes one measurement on a server.
func (o crowdOptions) measure(ctx context.Context, n int, server *role, conn *nats.Conn, js natsjs.JetStream) (row crowdRow, err error) {
	if _, err := jetstream.Apply(ctx, js, jetstream.Options{}); err != nil {
		return row, err
	}
	row = crowdRow{Agents: n, Sample: min(o.sample, n)}
	serverBefore := residentOf(server.pid())
	worker, first, err := startRole(ctx, "crowd", "--url", conn.ConnectedUrl(), "--agents", strconv.Itoa(n), "--profile", o.profile)
	if err != nil {
		return row, err
	}
	defer worker.stop()
	var up crowdUp
	if err := json.Unmarshal([]byte(first), &up); err != nil {
		return row, fmt.Errorf("the worker said %q: %w", first, err)
	}
	row.UpSeconds, row.GoroutinesOne = up.Seconds, up.Goroutines/float64(n)
	if !pause.For(ctx, crowdSettle) {
		return row, context.Cause(ctx)
	}
	cpu := [2]time.Duration{cpuOf(worker.pid()), cpuOf(server.pid())}
	began := time.Now()
	if !pause.For(ctx, o.idle) {
		return row, context.Cause(ctx)
	}
	took := time.Since(began)
	row.WorkerIdle = 100 * float64(cpuOf(worker.pid())-cpu[0]) / float64(took)
	row.ServerIdle = 100 * float64(cpuOf(server.pid())-cpu[1]) / float64(took)
	row.WorkerKB = float64(residentOf(worker.pid())-up.Before) / 1024 / float64(n)
	row.ServerKB = float64(residentOf(server.pid())-serverBefore) / 1024 / float64(n)
	return row, row.ask(ctx, conn, js)
}

// crowdSettle is how long the processes may clean up after the start before they are
// measured.
const crowdSettle = 5 * time.Second

// ask sends tasks to a sample of the agents and measures the answers.
func (r *crowdRow) ask(ctx context.Context, conn *nats.Conn, js natsjs.JetStream) error {
	client, err := mesh.New(conn, mesh.Config{Entity: benchClient, Durable: benchLane(js)})
	if err != nil {
		return err
	}
	var first, other, awake []float64
	for i := range r.Sample {
		to := crowdAgent(i * (r.Agents / r.Sample))
		for _, one := range []struct {
			priority envelope.Priority
			times    *[]float64
		}{{envelope.PriorityNormal, &first}, {envelope.PriorityHigh, &other}, {envelope.PriorityNormal, &awake}} {
			task := envelope.New(envelope.TypeTask, benchClient, to, "bench.echo", json.RawMessage(`{"text":"hello"}`))
			task.Priority = one.priority
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			began := time.Now()
			_, err := client.Submit(ctx, task, mesh.SubmitOptions{})
			if err == nil {
				_, err = client.Result(ctx, to, task.ID, mesh.ResultOptions{Follow: true})
			}
			cancel()
			if err != nil {
				return fmt.Errorf("a task for %s: %w", to, err)
			}
			*one.times = append(*one.times, float64(time.Since(began).Microseconds())/1000)
		}
	}
	for _, one := range []struct {
		times    []float64
		p50, p99 *float64
	}{{first, &r.FirstP50, &r.FirstP99}, {other, &r.OtherP50, &r.OtherP99}, {awake, &r.AwakeP50, &r.AwakeP99}} {
		slices.Sort(one.times)
		*one.p50, *one.p99 = quantile(one.times, 0.50), quantile(one.times, 0.99)
	}
	return nil
}

func crowdAgent(i int) string { return fmt.Sprintf("agent.crowd_%05d", i) }

// residentOf returns the memory that the system has given to a process, 0 if the system
// does not say.
func residentOf(pid int) int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

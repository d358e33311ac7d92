package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/counter"
	"github.com/aeemesh/aeemesh/mesh"
)

// treeRow is one measurement of "bench tree", as --json prints it.
type treeRow struct {
	Shape      string  `json:"shape"` // chain or fan-out
	Size       int     `json:"size"`  // hops in a row, or calls at the same time
	Mode       string  `json:"mode"`  // raw, live or durable
	P50Micros  float64 `json:"p50_us"`
	P99Micros  float64 `json:"p99_us"`
	HopMicros  float64 `json:"us_per_hop"` // of p50
	RatioToRaw float64 `json:"ratio_to_raw,omitempty"`
}

func newBenchTreeCommand(stdout, stderr io.Writer) *cobra.Command {
	var o benchOptions
	var chains, fans []int
	cmd := &cobra.Command{
		Use:   "tree",
		Short: "Measure agents that call agents against bare requests",
		Long: `Measures what a hop costs when an agent calls another one, on both lanes: a
chain of agents, each of which calls the next, against responders that request
the next with core NATS; and one agent that calls many at once, against one
client that publishes as many requests and gathers the replies on one inbox.

A server runs as a process of its own; the agents, each on a connection of its
own, and the raw responders, likewise, are in this one. Raw and ours take turns.
Hops are counted and their bounds checked, as in production.`,
		Example: `  aeemesh bench tree
  aeemesh bench tree --chain 8 --fan 10,100,1000 --rounds 5`,
		Args: outcome.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.json = asJSON(cmd)
			if o.rounds < 1 || o.duration <= 0 || slices.Min(append([]int{1}, append(chains, fans...)...)) < 1 || slices.Max(append([]int{1}, chains...)) > 15 {
				return outcome.Usagef(cmd, "--duration, --rounds, --chain and --fan must be above 0, and --chain at most 15")
			}
			return runBenchTree(cmd.Context(), o, chains, fans, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntSliceVar(&chains, "chain", []int{1, 8}, "hops in a row")
	f.IntSliceVar(&fans, "fan", []int{10, 100, 1000}, "hops at once")
	f.DurationVar(&o.duration, "duration", time.Second, "how long one measurement takes")
	f.IntVar(&o.rounds, "rounds", 3, "measurements of each kind; the median counts")
	return cmd
}

func runBenchTree(ctx context.Context, o benchOptions, chains, fans []int, stdout, stderr io.Writer) error {
	return withServer(ctx, func(_ *role, conn *nats.Conn, js natsjs.JetStream) error {
		if !o.json {
			fmt.Fprintf(stderr, "%s; %v a measurement, median of %d\n", machine(), o.duration, o.rounds)
			fmt.Fprintf(stdout, "%-8s %5s %-8s %10s %10s %10s %7s\n", "", "hops", "", "p50 µs", "p99 µs", "µs a hop", "ratio")
		}
		b := &benchTree{benchOptions: o, stdout: stdout, conn: conn}
		defer b.close()
		if err := b.start(ctx, js, slices.Max(append([]int{1}, chains...))); err != nil {
			return err
		}
		for _, n := range chains {
			if err := b.measure(ctx, "chain", n); err != nil {
				return err
			}
		}
		for _, n := range fans {
			if err := b.measure(ctx, "fan-out", n); err != nil {
				return err
			}
		}
		return nil
	})
}

// benchTree is the client of the bench, with the agents that it calls.
type benchTree struct {
	benchOptions
	stdout io.Writer
	conn   *nats.Conn
	client *mesh.Node
	stop   context.CancelFunc
	all    sync.WaitGroup
	conns  []*nats.Conn // of the agents
}

func (b *benchTree) connect() (*nats.Conn, natsjs.JetStream, error) {
	conn, js, err := connect(b.conn.ConnectedUrl())
	if err == nil {
		b.conns = append(b.conns, conn)
	}
	return conn, js, err
}

// close stops the agents, and then closes their connections.
func (b *benchTree) close() {
	if b.stop != nil {
		b.stop()
	}
	b.all.Wait()
	for _, conn := range b.conns {
		conn.Close()
	}
}

// link is the entity of the agent that has n more hops of a chain behind it.
func link(n int) string { return "agent.bench-link-" + strconv.Itoa(n) }

const benchWide = "agent.bench-wide"

// start serves a chain of agents, an agent that calls many others, and their
// raw counterparts.
func (b *benchTree) start(ctx context.Context, js natsjs.JetStream, longest int) (err error) {
	if _, err := jetstream.Apply(ctx, js, jetstream.Options{}); err != nil {
		return err
	}
	if b.client, err = mesh.New(b.conn, benchNode(js, "service.bench-client")); err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	b.stop = stop
	for i := range longest + 1 {
		if err := b.serve(serving, link(i), benchChain(i)); err != nil {
			return err
		}
		if err := b.respond(i); err != nil {
			return err
		}
	}
	if err := b.serve(serving, benchWide, benchFan()); err != nil {
		return err
	}
	queue := jetstream.NewQueue(js, subject.Map{})
	for i := range longest + 1 { // wait until all agents have their consumers
		for {
			there, err := queue.Served(ctx, link(i))
			if err != nil {
				return err
			}
			if there {
				break
			}
			if !pause.For(ctx, 10*time.Millisecond) {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

func benchNode(js natsjs.JetStream, entity string) mesh.Config {
	cfg := nodeConfig(entity, benchLane(js))
	cfg.Counters, cfg.Tree.MaxTasks = counter.New(js, subject.Map{}), 1<<40
	return cfg
}

func (b *benchTree) serve(ctx context.Context, entity string, handler mesh.Handler) error {
	conn, js, err := b.connect()
	if err != nil {
		return err
	}
	node, err := mesh.New(conn, benchNode(js, entity))
	if err != nil {
		return err
	}
	ready, failed := make(chan struct{}), make(chan error, 1)
	b.all.Go(func() {
		failed <- node.Serve(ctx, mesh.Agent{Entity: entity, Handler: handler, Concurrency: 64, Queue: 4096, Ready: func() { close(ready) }})
	})
	select {
	case <-ready:
		return nil
	case err := <-failed:
		return err
	}
}

// benchChain calls the next agent of the chain; the last one answers.
func benchChain(n int) mesh.Handler {
	return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if n > 0 {
			if _, err := task.Call(ctx, mesh.Call{To: link(n - 1), Key: "next", Payload: task.Envelope.Payload}); err != nil {
				return nil, err
			}
		}
		return task.Envelope.Payload, nil
	})
}

// benchFan calls an agent that only answers, as often as the payload says.
func benchFan() mesh.Handler {
	return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		var in struct {
			N int `json:"n"`
		}
		if err := json.Unmarshal(task.Envelope.Payload, &in); err != nil {
			return nil, err
		}
		errs := make([]error, in.N)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				_, errs[i] = task.Call(ctx, mesh.Call{To: link(0), Key: strconv.Itoa(i), Payload: task.Envelope.Payload})
			})
		}
		all.Wait()
		return task.Envelope.Payload, errors.Join(errs...)
	})
}

// respond is a raw link: it requests the next link and passes the answer on.
func (b *benchTree) respond(n int) error {
	conn, _, err := b.connect()
	if err != nil {
		return err
	}
	_, err = conn.QueueSubscribe("bench.raw."+strconv.Itoa(n), "q", func(msg *nats.Msg) {
		if n == 0 {
			_ = msg.Respond(msg.Data)
			return
		}
		go func() {
			if reply, err := conn.Request("bench.raw."+strconv.Itoa(n-1), msg.Data, 10*time.Second); err == nil {
				_ = msg.Respond(reply.Data)
			}
		}()
	})
	return errors.Join(err, conn.Flush())
}

// operation returns a function that runs one tree of a shape, from sending to
// the root until its answer.
func (b *benchTree) operation(shape, mode string, n int) func(context.Context) error {
	payload := json.RawMessage(fmt.Sprintf(`{"n":%d,"text":%q}`, n, strings.Repeat("x", 128)))
	to := benchWide
	if shape == "chain" {
		to = link(n)
	}
	switch mode {
	case "live":
		return func(ctx context.Context) error {
			_, err := b.client.Send(ctx, envelope.New(envelope.TypeTask, b.client.Entity(), to, "bench.run", payload), mesh.SendOptions{})
			return err
		}
	case "durable":
		return func(ctx context.Context) error {
			_, _, err := b.client.Perform(ctx, envelope.New(envelope.TypeTask, b.client.Entity(), to, "bench.run", payload), mesh.SubmitOptions{}, mesh.ResultOptions{})
			return err
		}
	}
	if shape == "chain" {
		return func(ctx context.Context) error {
			_, err := b.conn.RequestWithContext(ctx, "bench.raw."+strconv.Itoa(n), payload)
			return err
		}
	}
	return func(ctx context.Context) error { return b.scatter(ctx, n, payload) }
}

// scatter publishes n requests and collects their replies on one inbox.
func (b *benchTree) scatter(ctx context.Context, n int, payload []byte) error {
	inbox := b.conn.NewInbox()
	replies := make(chan *nats.Msg, n)
	sub, err := b.conn.ChanSubscribe(inbox, replies)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	for range n {
		if err := b.conn.PublishRequest("bench.raw.0", inbox, payload); err != nil {
			return err
		}
	}
	for range n {
		select {
		case <-replies:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// measure alternates between raw and ours.
func (b *benchTree) measure(ctx context.Context, shape string, n int) error {
	modes := []string{"raw", "live", "durable"}
	p50, p99 := map[string][]float64{}, map[string][]float64{}
	for range b.rounds {
		for _, mode := range modes {
			took, err := b.once(ctx, b.operation(shape, mode, n))
			if err != nil {
				return fmt.Errorf("%s of %d, %s: %w", shape, n, mode, err)
			}
			slices.Sort(took)
			p50[mode] = append(p50[mode], quantile(took, 0.50))
			p99[mode] = append(p99[mode], quantile(took, 0.99))
		}
	}
	for _, mode := range modes {
		row := treeRow{Shape: shape, Size: n, Mode: mode, P50Micros: median(p50[mode]), P99Micros: median(p99[mode])}
		row.HopMicros = row.P50Micros / float64(n)
		if mode != "raw" {
			row.RatioToRaw = row.P50Micros / median(p50["raw"])
		}
		if err := printTree(b.stdout, b.json, row); err != nil {
			return err
		}
	}
	return nil
}

// once returns how long each operation took, in microseconds; they run one
// after the other.
func (b *benchTree) once(ctx context.Context, op func(context.Context) error) (took []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.duration+time.Minute)
	defer cancel()
	if err := op(ctx); err != nil { // a warm-up, which is not measured
		return nil, err
	}
	for begun := time.Now(); time.Since(begun) < b.duration || len(took) < 3; {
		start := time.Now()
		if err := op(ctx); err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(start).Nanoseconds())/1e3)
	}
	return took, nil
}

func printTree(stdout io.Writer, asJSON bool, row treeRow) error {
	ratio := ""
	if row.RatioToRaw > 0 {
		ratio = fmt.Sprintf("%.1f", row.RatioToRaw)
	}
	return emit(stdout, asJSON, row, "%-8s %5d %-8s %10.0f %10.0f %10.1f %7s\n", row.Shape, row.Size, row.Mode, row.P50Micros, row.P99Micros, row.HopMicros, ratio)
}

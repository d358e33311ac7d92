package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

const (
	benchAgent  = "agent.bench"
	benchClient = "service.bench_client"
)

// roleFlags are the flags of the bench's child processes.
type roleFlags struct {
	mode     string
	inflight int
	duration time.Duration
	payload  int
	bytes    int // of a checkpoint
	events   bool
}

func (r *roleFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.mode, "mode", "", "")
	f.IntVar(&r.inflight, "inflight", 1, "")
	f.DurationVar(&r.duration, "duration", time.Second, "")
	f.IntVar(&r.payload, "payload", 128, "")
	f.IntVar(&r.bytes, "bytes", 0, "")
	f.BoolVar(&r.events, "task-events", false, "")
}

// untilStdinCloses returns a context that ends when standard input closes, with
// which the parent ends a child.
func untilStdinCloses(ctx context.Context) context.Context {
	return session.UntilClosed(ctx, os.Stdin)
}

// childCommand returns the command of a child process, which is for the bench alone.
func childCommand(use string, run func(ctx context.Context) error) *cobra.Command {
	return &cobra.Command{Use: use, Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) }}
}

// connectedCommand returns the command of a child process that is connected to the server
// at --url.
func connectedCommand(use string, run func(ctx context.Context, conn *nats.Conn, js natsjs.JetStream) error) *cobra.Command {
	var url string
	cmd := childCommand(use, func(ctx context.Context) error {
		conn, js, err := connect(url)
		if err != nil {
			return err
		}
		defer conn.Close()
		return run(ctx, conn, js)
	})
	cmd.Flags().StringVar(&url, "url", "", "")
	return cmd
}

// publish tells the bench something about a run.
func publish(conn *nats.Conn, subject string, report any) {
	body, _ := json.Marshal(report)
	_ = conn.Publish(subject, body)
}

// echo is a handler that returns its input.
var echo = mesh.HandlerFunc(func(_ context.Context, t *mesh.Task) (json.RawMessage, error) { return t.Envelope.Payload, nil })

func newBenchServerCommand(stdout io.Writer) *cobra.Command {
	cfg := natsd.Config{Port: natsd.RandomPort}
	cmd := childCommand("server", func(ctx context.Context) error {
		cfg.JetStream = cfg.StoreDir != ""
		srv, err := natsd.New(cfg)
		if err != nil {
			return err
		}
		if err := srv.Start(ctx); err != nil {
			return err
		}
		defer srv.Close()
		fmt.Fprintln(stdout, srv.ClientURL())
		<-untilStdinCloses(ctx).Done()
		return nil
	})
	cmd.Flags().StringVar(&cfg.StoreDir, "store", "", "")
	cmd.Flags().BoolVar(&cfg.SyncAlways, "always", false, "")
	return cmd
}

// nodeConfig is what the nodes of agents have in common. Failed tasks alone are told to the bus.
func nodeConfig(entity string, lane *mesh.Durable) mesh.Config {
	return mesh.Config{Entity: entity, Heartbeat: -1, Quotas: mesh.Quotas{UnknownRate: -1}, TaskEvents: mesh.EventsFailures, Durable: lane}
}

// node makes the mesh node of one side. Both sides derive the same throw-away
// keys from fixed seeds, because the bench measures signatures and protects
// nothing.
func (r *roleFlags) node(conn *nats.Conn, entity, peer string) (*mesh.Node, error) {
	cfg := nodeConfig(entity, nil)
	if r.events {
		cfg.TaskEvents = mesh.EventsAll
	}
	var alg sign.Alg
	switch benchMode(r.mode) {
	case benchHS256:
		alg = sign.HS256
	case benchEd25519:
		alg = sign.Ed25519
	default:
		return mesh.New(conn, cfg)
	}
	seed := func(who string) []byte { return bytes.Repeat([]byte{who[0]}, 32) }
	mine, err := sign.NewSigner("bench-"+entity[:5], alg, seed(entity))
	if err != nil {
		return nil, err
	}
	theirs, err := sign.NewSigner("bench-"+peer[:5], alg, seed(peer))
	if err != nil {
		return nil, err
	}
	ring := &sign.Ring{}
	if err := ring.Put(sign.Local, theirs.Key(peer)); err != nil {
		return nil, err
	}
	cfg.Signer, cfg.Verifier = mine, sign.Verifier{Ring: ring, Mode: sign.Required}
	return mesh.New(conn, cfg)
}

func newBenchRespondCommand(stdout io.Writer) *cobra.Command {
	var r roleFlags
	cmd := connectedCommand("respond", func(ctx context.Context, conn *nats.Conn, _ natsjs.JetStream) error {
		ctx = untilStdinCloses(ctx)
		if benchMode(r.mode) == benchRaw {
			if _, err := conn.QueueSubscribe(benchAgent, mesh.QueueGroup, func(msg *nats.Msg) { msg.Respond(msg.Data) }); err != nil {
				return err
			}
			if err := conn.Flush(); err != nil {
				return err
			}
			fmt.Fprintln(stdout, "ready")
			<-ctx.Done()
			return nil
		}
		node, err := r.node(conn, benchAgent, benchClient)
		if err != nil {
			return err
		}
		ready := func() { fmt.Fprintln(stdout, "ready") }
		return node.Serve(ctx, mesh.Agent{Entity: benchAgent, Handler: echo, Concurrency: r.inflight, Queue: 4 * r.inflight, Ready: ready})
	})
	r.add(cmd)
	return cmd
}

// benchRun is one measurement.
type benchRun struct {
	PerSecond float64 `json:"per_second"`
	P50Micros float64 `json:"p50_us"`
	P99Micros float64 `json:"p99_us"`
	Total     int     `json:"total"` // requests, including those before the measurement
	CPUMicros float64 `json:"-"`
}

func newBenchRequestCommand(stdout io.Writer) *cobra.Command {
	var r roleFlags
	cmd := connectedCommand("request", func(ctx context.Context, conn *nats.Conn, _ natsjs.JetStream) error {
		call, err := r.caller(conn)
		if err != nil {
			return err
		}
		run, err := r.load(ctx, call)
		if err != nil {
			return err
		}
		return json.NewEncoder(stdout).Encode(run)
	})
	r.add(cmd)
	return cmd
}

// caller returns a function that sends one request and waits for its reply.
func (r *roleFlags) caller(conn *nats.Conn) (func(context.Context) error, error) {
	if benchMode(r.mode) == benchRaw {
		body, err := r.tasks()().AppendJSON(nil)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error {
			_, err := conn.Request(benchAgent, body, 10*time.Second)
			return err
		}, nil
	}
	node, err := r.node(conn, benchClient, benchAgent)
	if err != nil {
		return nil, err
	}
	task := r.tasks()
	return func(ctx context.Context) error {
		_, err := node.Send(ctx, task(), mesh.SendOptions{})
		return err
	}, nil
}

// load keeps r.inflight requests under way. It does not measure the first
// quarter of the time.
func (r *roleFlags) load(ctx context.Context, call func(context.Context) error) (benchRun, error) {
	if err := firstReply(ctx, call); err != nil {
		return benchRun{}, err
	}
	begin := time.Now().Add(r.duration / 4)
	end := begin.Add(r.duration)
	took := make([][]time.Duration, r.inflight)
	total := make([]int, r.inflight)
	errs := make([]error, r.inflight)
	var wait sync.WaitGroup
	for i := range r.inflight {
		wait.Go(func() {
			for {
				from := time.Now()
				if from.After(end) {
					return
				}
				if errs[i] = call(ctx); errs[i] != nil {
					return
				}
				total[i]++
				if from.After(begin) {
					took[i] = append(took[i], time.Since(from))
				}
			}
		})
	}
	wait.Wait()
	if err := cmp.Or(errs...); err != nil {
		return benchRun{}, err
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return benchRun{}, fmt.Errorf("no request was answered within %v", r.duration)
	}
	slices.Sort(all)
	at := func(share float64) float64 { return float64(quantile(all, share)) / float64(time.Microsecond) }
	run := benchRun{PerSecond: float64(len(all)) / r.duration.Seconds(), P50Micros: at(0.50), P99Micros: at(0.99)}
	for _, n := range total {
		run.Total += n
	}
	return run, nil
}

// firstReply waits until the responder answers.
func firstReply(ctx context.Context, call func(context.Context) error) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := call(ctx)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// connect connects to a server with JetStream.
func connect(url string) (*nats.Conn, natsjs.JetStream, error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	js, err := natsjs.New(conn)
	if err != nil {
		conn.Close()
	}
	return conn, js, err
}

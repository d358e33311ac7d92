package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh"
)

// crowdUp is what the worker of "bench agents" says when all its agents are up.
type crowdUp struct {
	Seconds    float64 `json:"seconds"`
	Before     int64   `json:"before"` // its memory before it began
	Goroutines float64 `json:"goroutines"`
}

func newBenchCrowdCommand(stdout io.Writer) *cobra.Command {
	var profile string
	var n int
	cmd := connectedCommand("crowd", func(ctx context.Context, conn *nats.Conn, js natsjs.JetStream) error {
		ctx = untilStdinCloses(ctx)
		node, err := mesh.New(conn, mesh.Config{Entity: benchAgent, Durable: benchLane(js)})
		if err != nil {
			return err
		}
		up := crowdUp{Before: residentOf(os.Getpid())}
		began := time.Now()
		served, err := serveCrowd(ctx, node, n)
		if err != nil {
			return err
		}
		up.Seconds, up.Goroutines = time.Since(began).Seconds(), float64(runtime.NumGoroutine())
		if err := json.NewEncoder(stdout).Encode(up); err != nil {
			return err
		}
		if profile != "" {
			if err := profileIdle(ctx, profile); err != nil {
				return err
			}
		}
		return served()
	})
	cmd.Flags().IntVar(&n, "agents", 1, "")
	cmd.Flags().StringVar(&profile, "profile", "", "")
	return cmd
}

// serveCrowd serves n agents on a node and returns when all of them are up. The returned
// function waits for their end.
func serveCrowd(ctx context.Context, node *mesh.Node, n int) (wait func() error, err error) {
	ready, failed := make(chan struct{}, n), make(chan error, n)
	var all sync.WaitGroup
	for i := range n {
		agent := mesh.Agent{Entity: crowdAgent(i), Handler: echo, Ready: func() { ready <- struct{}{} }}
		all.Go(func() { failed <- node.Serve(ctx, agent) })
	}
	wait = func() error {
		all.Wait()
		close(failed)
		var errs []error
		for err := range failed {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	for range n {
		select {
		case <-ready:
		case err := <-failed:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return wait, nil
}

// profileIdle writes profiles of this process, which is idle from now on.
func profileIdle(ctx context.Context, dir string) error {
	if !pause.For(ctx, crowdSettle) {
		return context.Cause(ctx)
	}
	write := func(name string, to func(io.Writer) error) error {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return errors.Join(to(f), f.Close())
	}
	return errors.Join(
		write("cpu.pprof", func(w io.Writer) error {
			if err := pprof.StartCPUProfile(w); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
			pause.For(ctx, crowdSettle)
			return context.Cause(ctx)
		}),
		write("heap.pprof", func(w io.Writer) error {
			runtime.GC()
			return pprof.Lookup("heap").WriteTo(w, 0)
		}),
		write("goroutine.pprof", func(w io.Writer) error { return pprof.Lookup("goroutine").WriteTo(w, 0) }),
	)
}

package soak

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

// LeavePoints are the points at which faults strike the worker that transfers a run to
// the second system, in their order.
var LeavePoints = []Point{
	Point(mesh.PointStaged),
	Point(mesh.PointBeforeMove) + Point(state.PhaseCommitted), Point(mesh.PointAfterMove) + Point(state.PhaseCommitted),
	Point(mesh.PointBeforeMove) + Point(state.PhaseRelaying), Point(mesh.PointAfterMove) + Point(state.PhaseRelaying),
}

// TakePoints are the points at which faults strike the second system's receiver.
var TakePoints = []Point{
	takePoint(state.PhaseReceiving, false), takePoint(state.PhaseReceiving, true), takePoint(state.PhaseStaged, false), takePoint(state.PhaseStaged, true),
	takePoint(state.PhaseAccepted, false), takePoint(state.PhaseAccepted, true), takePoint(state.PhaseRunning, false), takePoint(state.PhaseRunning, true),
}

// takePoint is the point before or after a receiver writes a phase.
func takePoint(phase state.Phase, done bool) Point {
	if done {
		return Point("after-take:" + phase)
	}
	return Point("before-take:" + phase)
}

// receive runs the second system's receiver of runs, as `aeemesh handoff serve` does.
func receive(ctx context.Context, file string, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	me, err := newChild(ctx, "receiver", file, stdin, stdout)
	if err != nil {
		return err
	}
	cfg, conn, js, g, out := me.cfg, me.conn, me.js, me.gates, me.out
	defer conn.Close()
	_, verifier, err := keys(cfg.System)
	if err != nil {
		return err
	}
	var m subject.Map
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	node, err := mesh.New(conn, mesh.Config{Entity: "service.handoff", Heartbeat: -1, Logger: log, Durable: lane(js, m), Verifier: verifier})
	if err != nil {
		return err
	}
	r, err := node.Receiver(mesh.ReceiverOptions{
		Platform: cfg.System, Handoffs: jetstream.NewHandoffs(jetstream.Gather(js), m),
		Observe: func(ctx context.Context, phase state.Phase, done bool) { g.at(ctx, takePoint(phase, done), "-") },
	})
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair([]byte(cfg.CA), []byte(cfg.Key))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	twice := &repeats{next: handoff.Handler(r, handoff.HandlerOptions{Beat: cfg.Lease / 4}), ctx: ctx, lease: cfg.Lease}
	srv := &http.Server{Handler: twice, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelInfo), TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for pause.For(ctx, 2*cfg.Lease) {
			if _, _, err := r.Collect(ctx); err != nil && ctx.Err() == nil {
				log.Warn("handoffs left behind", "err", err)
			}
		}
		srv.Close()
	})
	err = srv.ServeTLS(listener, "", "")
	cancel()
	wait.Wait()
	twice.wait.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// remotes returns the receivers that a worker may transfer runs to: the second system's.
func remotes(cfg workerConfig) mesh.Remotes {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(cfg.CA))
	return func(url string) (*handoff.Client, error) {
		if url != cfg.Remote {
			return nil, fmt.Errorf("no run goes to %s", url)
		}
		return handoff.NewClient(url, handoff.ClientOptions{TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, Idle: max(time.Second, cfg.Lease)})
	}
}

package main

import (
	"context"
	"errors"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// laneFlags are a worker's flags for the durable lane.
type laneFlags struct {
	durable   string
	lease     time.Duration
	noCreate  bool
	fenced    bool
	operators []string
	timeout   time.Duration
	remotes   remoteFlags
}

func (f *laneFlags) add(a *app, flags *pflag.FlagSet) {
	flags.StringVar(&f.durable, "durable", "auto", "take durable tasks: on, off, or auto (as soon as JetStream has the streams; on fails at once where it has not)")
	flags.DurationVar(&f.lease, "lease", mesh.DefaultLease, "for how long a durable task belongs to a worker that gives no sign of life (at least 1s)")
	flags.DurationVar(&f.timeout, "max-durable-timeout", mesh.DefaultRunTimeout, "the longest that a durable task may take, waiting included, whatever it asks for")
	flags.BoolVar(&f.noCreate, "no-create", false, "make no consumers; an operator has made them (\"aeemesh apply --entity …\")")
	flags.BoolVar(&f.fenced, "fenced", false, "the NATS user has what \"auth perms\" prints and no more: ask the server for nothing else")
	flags.StringArrayVar(&f.operators, "operator", nil, "`PATTERN` of who may cancel, pause, resume, steer and settle the runs of others (default human.>); repeatable")
	a.addStateFlags(flags)
	f.remotes.add(a, flags)
}

// newLane makes a durable lane from a mesh's streams and buckets.
func newLane(js natsjs.JetStream, m subject.Map) *mesh.Durable {
	return worker.Lane(jetstream.Open(js, m))
}

// laneClient adds the durable lane to the node of a command, as a client.
func (a *app) laneClient(cmd *cobra.Command) func(*session, *mesh.Config) error {
	return func(s *session, cfg *mesh.Config) error {
		m, err := a.subjects()
		if err != nil {
			return err
		}
		js, err := a.jetStream(s.conn)
		if err != nil {
			return err
		}
		ring, err := a.keyring(cmd)
		if err != nil {
			return err
		}
		cfg.Durable = newLane(js, m)
		cfg.Durable.Codec = state.Codec{Seal: ring, AcceptClear: a.acceptClear}
		return nil
	}
}

// lane returns the durable lane for direct use by a command.
func (s *session) lane() (*mesh.Durable, error) {
	m, err := s.app.subjects()
	if err != nil {
		return nil, err
	}
	js, err := s.app.jetStream(s.conn)
	if err != nil {
		return nil, err
	}
	return newLane(js, m), nil
}

// limited ends a command's wait after --timeout, if that is set.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if d := a.conn.timeout; d > 0 {
		return context.WithTimeout(ctx, d)
	}
	return context.WithCancel(ctx)
}

// laneError adds a hint to the error of a missing lane.
func laneError(err error) error {
	if errors.Is(err, jetstream.ErrNotFound) || errors.Is(err, jetstream.ErrUnavailable) {
		return hinted(err, "Durable tasks need JetStream and its streams: \"aeemesh apply\" makes them, \"aeemesh doctor\" looks.")
	}
	return err
}

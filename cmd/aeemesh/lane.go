package main

import (
	"context"
	"errors"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
)

// newLane makes a durable lane from a mesh's streams and buckets.
func newLane(js natsjs.JetStream, m subject.Map) *mesh.Durable {
	return &mesh.Durable{
		Queue: jetstream.NewQueue(js, m), Replies: jetstream.NewReplies(js, m), Dead: jetstream.NewDead(js, m), Inbox: jetstream.NewInbox(js, m),
		States: jetstream.NewStates(js, m), Clock: jetstream.NewClock(js, m), Slots: jetstream.NewSlots(js, m, 0),
	}
}

// laneClient adds the durable lane to the node of a command, as a client.
func (a *progApp) laneClient(cmd *cobra.Command) func(*session, *mesh.Config) error {
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
func (a *progApp) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if d := a.conn.timeout; d > 0 {
		return context.WithTimeout(ctx, d)
	}
	return context.WithCancel(ctx)
}

// laneError adds a hint to the error of a missing lane.
func laneError(err error) error {
	if errors.Is(err, jetstream.ErrNotFound) || errors.Is(err, jetstream.ErrUnavailable) {
		return outcome.Hinted(err, "Durable tasks need JetStream and its streams: \"aeemesh apply\" makes them, \"aeemesh doctor\" looks.")
	}
	return err
}

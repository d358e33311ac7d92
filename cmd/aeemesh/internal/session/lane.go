package session

import (
	"context"
	"errors"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// MinLease is the shortest lease: a worker under load, or a server that syncs each
// write, would lose tasks and slots that it has.
const MinLease = time.Second

// NewLane makes a durable lane from a mesh's streams and buckets.
func NewLane(js natsjs.JetStream, m subject.Map) *mesh.Durable {
	d := &mesh.Durable{}
	d.SetStores(jetstream.Open(js, m))
	return d
}

// LaneClient adds the durable lane to the node of a command, as a client.
func (a *App) LaneClient(cmd *cobra.Command) func(*Session, *mesh.Config) error {
	return func(s *Session, cfg *mesh.Config) error {
		js, m, err := a.Streams(s.Conn)
		if err != nil {
			return err
		}
		ring, err := a.Keyring(cmd)
		if err != nil {
			return err
		}
		cfg.Durable = NewLane(js, m)
		cfg.Durable.Codec = state.Codec{Seal: ring, AcceptClear: a.AcceptClear}
		return nil
	}
}

// Lane returns the durable lane for direct use by a command.
func (s *Session) Lane() (*mesh.Durable, error) {
	js, m, err := s.App.Streams(s.Conn)
	if err != nil {
		return nil, err
	}
	return NewLane(js, m), nil
}

// Limited ends a command's wait after --timeout, if that is set.
func (a *App) Limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if d := a.Conn.Timeout; d > 0 {
		return context.WithTimeout(ctx, d)
	}
	return context.WithCancel(ctx)
}

// LaneError adds a hint to the error of a missing lane. A lane that does not answer at
// the moment is not missing: its error keeps the hint that every command gives for it.
func LaneError(err error) error {
	if errors.Is(err, jetstream.ErrNotFound) || jetstream.Off(err) {
		return outcome.Hinted(err, "Durable tasks need JetStream and its streams: \"aeemesh apply\" makes them, \"aeemesh doctor\" looks.")
	}
	return err
}

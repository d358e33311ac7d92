package platform

import (
	"context"
	"time"

	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/state"
)

// Platform is this mesh as other platforms know it. Its methods may be called from many
// goroutines.
type Platform struct{ cfg Config }

// Config configures a [Platform]. Package mesh makes it of the configuration of a node.
type Config struct {
	Client  *client.Client
	Entity  string         // the client's own
	Stores  *client.Stores // nil: no durable lane, and every method fails
	Name    string         // this platform's name in transfers
	Version string         // of the program, as exported documents state it
	Answers answers.Reader // verifies what other platforms have signed

	// Sendable fails with E_TOO_LARGE if a reply of size bytes does not fit a message.
	Sendable func(size int) error
}

// New makes a platform. It does no I/O.
func New(cfg Config) *Platform { return &Platform{cfg} }

// store writes a checkpoint over a revision.
func (p *Platform) store(ctx context.Context, id state.ID, prev uint64, c *state.Checkpoint) (uint64, error) {
	data, err := p.cfg.Stores.Codec.Over(prev).Encode(c)
	if err != nil {
		return 0, err
	}
	return p.cfg.Stores.States.Put(ctx, id, prev, data)
}

// serverTime returns the server's time, or this machine's if the server's cannot be read.
func (p *Platform) serverTime(ctx context.Context) time.Time {
	if now, err := p.cfg.Stores.Clock.Now(ctx); err == nil {
		return now.UTC()
	}
	return time.Now().UTC()
}

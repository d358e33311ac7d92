package calls

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/state"
)

// Node has what the calls of all agents of a node need. It must not be copied.
type Node struct {
	Client     *client.Client
	Sender     *sender.Sender
	Answers    answers.Reader
	Stores     *client.Stores   // nil: no durable lane
	MaxTimeout time.Duration    // of a live task
	Now        func() time.Time // the server's clock
	Tracer     trace.Tracer     // nil: no spans

	lanes laneCache
}

// stores returns the stores of the durable lane, nil if there is none or its streams do not
// exist yet.
func (n *Node) stores() *client.Stores {
	if n.Stores != nil && n.Stores.Available() {
		return n.Stores
	}
	return nil
}

// Agent makes the calls of one agent.
type Agent struct {
	*Node
	Entity string
	Signer *sign.Signer // nil: envelopes are unsigned
	Log    *slog.Logger
}

// sign signs an envelope for one of the lanes.
func (a *Agent) sign(e *envelope.Envelope, durable bool) error {
	return requires.Sign(e, a.Signer, a.Sender.Prefix, durable)
}

// Task is a task that makes calls, while its handler runs. It is made anew for each call.
type Task struct {
	*Agent
	Port     TaskPort
	Run      *Run // nil: the task is on the live lane
	Envelope *envelope.Envelope
	Deadline time.Time // when the task's sender gets E_TIMEOUT
	Tree     *bounds.Position
}

// TaskPort is what a call needs of the task that makes it.
type TaskPort interface {
	// Persist calls f until it succeeds, fails with an error that a retry would meet
	// again, or ctx ends. On the live lane it calls f once.
	Persist(ctx context.Context, f func() error) error
	// Inherit sets the members of requires that a hop of the task gets from it.
	Inherit(members map[string]json.RawMessage) error
	// StoreState stores a state document once for the key of a call, and returns the
	// reference that is sent with the call (requires.context).
	StoreState(ctx context.Context, key string, c *state.Checkpoint) (json.RawMessage, error)
	// PublishStep publishes an event about a part of the task.
	PublishStep(intent string, step intents.StepEvent)
	// Stopped reports whether the task's context has ended.
	Stopped() bool
}

// Run is the durable run of a task that makes calls.
type Run struct {
	Port     RunPort
	ID       string
	Deadline time.Time     // by the server's clock
	Restored bool          // an earlier owner or attempt has worked on the run
	Lease    time.Duration // of the run's message
	Record   *Record       // of the run's calls
}

// RunPort is what a call needs of the durable run that makes it. Its methods may be called from
// many goroutines.
type RunPort interface {
	// Checkpoint returns the last stored checkpoint, which must not be changed.
	Checkpoint() *state.Checkpoint
	// Change applies change to a copy of the last checkpoint, and stores it. It fails if this
	// worker does not own the run any more.
	Change(change func(*state.Checkpoint) error) error
	// OnStop calls f, which must not block, when the run is to stop here: it was asked to pause
	// or to move to another worker, or its worker drains. It does so until release is called.
	OnStop(f func()) (release func())
	// Go runs f on a goroutine that the worker waits for when it stops.
	Go(f func())
}

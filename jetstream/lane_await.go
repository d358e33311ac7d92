package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ErrNoLane: the NATS user has no permission for the durable lane.
var ErrNoLane = errors.New("no permission for the durable lane")

// laneStores are the streams and buckets that the durable lane needs. Every worker may
// read the configuration of the first group, a fenced one perhaps not that of the second (see
// "auth perms").
var laneStores = [2][]string{{StreamWork, BucketState, BucketSlots}, {StreamSchedule, StreamReply, StreamDead}}

// ErrNewer: a newer aeemesh manages the mesh, and gives durable tasks only to workers that
// understand what it stores.
var ErrNewer = errors.New("the mesh is of a newer aeemesh")

// A MissingError names the streams and buckets that a server does not have.
type MissingError []string

func (e MissingError) Error() string { return "the server has no " + strings.Join(e, ", ") }

// LaneLacks returns what keeps a worker from using the durable lane: missing streams
// ([MissingError]), a mesh that is too new ([ErrNewer]), a JetStream that does not answer
// ([ErrUnavailable]), or missing permissions ([ErrDenied]), which can take all of ctx to
// find out. Nil: nothing.
//
// The error is also [ErrNoLane] if the user may not even read the configuration of
// [StreamWork]: then the operator did not intend the worker to use the durable lane.
//
// A fenced worker checks only the streams that it is permitted to: the server would log
// each other request and not answer it.
func LaneLacks(ctx context.Context, js natsjs.JetStream, m subject.Map, fenced bool) error {
	if _, err := lacking(ctx, js, m, laneStores[0][:1]); errors.Is(err, ErrDenied) {
		return fmt.Errorf("%w: %w", ErrNoLane, err)
	}
	lacks, err := lacking(ctx, js, m, laneStores[0])
	if err != nil {
		return err
	}
	var rest MissingError
	if !fenced {
		rest, err = lacking(ctx, js, m, laneStores[1])
	}
	if lacks = append(lacks, rest...); len(lacks) > 0 {
		return lacks
	}
	if errors.Is(err, ErrDenied) {
		return nil
	}
	return err
}

// lacking returns those of the named streams and buckets that the server does not have.
func lacking(ctx context.Context, js natsjs.JetStream, m subject.Map, names []string) (MissingError, error) {
	plan, err := Plan(ctx, js, Options{Map: m, Only: names})
	if err != nil {
		return nil, err
	}
	var missing MissingError
	for _, c := range plan {
		if oldest, refuses := c.Refuses(); refuses {
			return nil, fmt.Errorf("%w: it needs workers that know topology %d, and this one knows %d: update it", ErrNewer, oldest, TopologyVersion)
		}
		if c.Action == ActionCreate || c.Action == ActionConflict {
			missing = append(missing, c.Name)
		}
	}
	return missing, nil
}

// LaneWait waits until the durable lane is available. It serves as Ready and Lacks of
// mesh.Durable.
type LaneWait struct {
	ready chan struct{}
	lacks atomic.Pointer[error]
}

// AwaitLane checks for the durable lane, every interval and after each reconnect, until
// it is available or ctx ends. After [ErrNoLane] the interval is 20 times as long.
// first is the result of the caller's own check; came, if not nil, is called before Ready
// is closed.
func AwaitLane(ctx context.Context, js natsjs.JetStream, m subject.Map, fenced bool, every time.Duration, first error, came func()) *LaneWait {
	w := &LaneWait{ready: make(chan struct{})}
	w.lacks.Store(&first)
	pause := func() time.Duration {
		if errors.Is(w.Lacks(), ErrNoLane) {
			return 20 * every // each check is a line in the server's log
		}
		return every
	}
	go LookAgain(ctx, js.Conn(), pause(), nil, func(ctx context.Context) time.Duration {
		looking, cancel := api.OneRequest(ctx)
		err := LaneLacks(looking, js, m, fenced)
		cancel()
		switch {
		case err == nil:
			if came != nil {
				came()
			}
			close(w.ready)
			return 0
		case ctx.Err() == nil:
			w.lacks.Store(&err)
		}
		return pause()
	})()
	return w
}

// LookAgain returns a function that looks for a part of JetStream that is not there yet: after each
// pause, after each wake, and whenever conn has connected again, until look returns 0 as the next
// pause or ctx ends. It has to be called: conn's connects are heard from now on.
func LookAgain(ctx context.Context, conn *nats.Conn, pause time.Duration, wake <-chan struct{}, look func(context.Context) time.Duration) func() {
	status := conn.StatusChanged(nats.CONNECTED)
	return func() {
		defer conn.RemoveStatusListener(status)
		for pause > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
			case <-wake:
			case <-status:
			case <-timer.C:
			}
			timer.Stop()
			if ctx.Err() != nil {
				return
			}
			if conn.IsConnected() {
				pause = look(ctx)
			}
		}
	}
}

// Ready is closed when the lane is available.
func (w *LaneWait) Ready() <-chan struct{} { return w.ready }

// Lacks returns the result of the last check.
func (w *LaneWait) Lacks() error { return *w.lacks.Load() }

package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ErrNoLane: the NATS user has no permission for the durable lane.
var ErrNoLane = errors.New("no permission for the durable lane")

// laneStores are the streams and buckets without which there is no durable lane. A worker
// may look at the first ones, and not always at the others (see "auth perms").
var laneStores = [2][]string{{StreamWork, BucketState, BucketSlots}, {StreamSchedule, StreamReply, StreamDead}}

// A MissingError names streams and buckets that a server has not.
type MissingError []string

func (e MissingError) Error() string { return "the server has no " + strings.Join(e, ", ") }

// LaneLacks says what keeps a worker from the durable lane: streams that are missing
// ([MissingError]), JetStream that does not answer ([ErrUnavailable]), permissions
// ([ErrDenied]), which it may take the whole of ctx to find out. Nil: nothing does.
//
// An error is [ErrNoLane] too where the user may look at none of it: the operator did
// not mean the worker to have the lane.
//
// A fenced worker asks only for the streams that it may look at: of the others the
// server would log each question, and leave it without an answer.
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

// lacking are those of some streams and buckets that the server has not.
func lacking(ctx context.Context, js natsjs.JetStream, m subject.Map, names []string) (MissingError, error) {
	plan, err := Plan(ctx, js, Options{Map: m, Only: names})
	if err != nil {
		return nil, err
	}
	var missing MissingError
	for _, c := range plan {
		if c.Action == ActionCreate || c.Action == ActionConflict {
			missing = append(missing, c.Name)
		}
	}
	return missing, nil
}

// LaneWait looks for the durable lane until it is there. It serves as Ready and
// Lacks of mesh.Durable.
type LaneWait struct {
	ready chan struct{}
	lacks atomic.Pointer[error]
}

// AwaitLane begins to look, again and again, seldom after [ErrNoLane], and whenever the connection has come
// back, until ctx ends. First is what the lane lacked when it was looked for before;
// came, if not nil, is called before Ready is closed.
func AwaitLane(ctx context.Context, js natsjs.JetStream, m subject.Map, fenced bool, every time.Duration, first error, came func()) *LaneWait {
	w := &LaneWait{ready: make(chan struct{})}
	w.lacks.Store(&first)
	conn := js.Conn()
	status := conn.StatusChanged(nats.CONNECTED)
	go func() {
		defer conn.RemoveStatusListener(status)
		tick := time.NewTicker(every)
		defer tick.Stop()
		ticks := 0
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if ticks++; errors.Is(w.Lacks(), ErrNoLane) && ticks%20 != 0 {
					continue // each look is a line in the server's log
				}
			case <-status:
			}
			if !conn.IsConnected() {
				continue
			}
			looking, cancel := oneRequest(ctx)
			err := LaneLacks(looking, js, m, fenced)
			cancel()
			switch {
			case err == nil:
				if came != nil {
					came()
				}
				close(w.ready)
				return
			case ctx.Err() == nil:
				w.lacks.Store(&err)
			}
		}
	}()
	return w
}

// Ready is closed when the lane is there.
func (w *LaneWait) Ready() <-chan struct{} { return w.ready }

// Lacks is what it lacked the last time.
func (w *LaneWait) Lacks() error { return *w.lacks.Load() }

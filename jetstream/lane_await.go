package jetstream

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// laneStores are the streams and buckets without which there is no durable lane, those
// first by which a worker sees it: it may not look at all of them (see "auth perms").
var laneStores = []string{StreamWork, BucketState, StreamReply, StreamDead, StreamSchedule, BucketSlots}

// A MissingError names streams and buckets that a server has not.
type MissingError []string

func (e MissingError) Error() string { return "the server has no " + strings.Join(e, ", ") }

// LaneLacks says what keeps a worker from the durable lane: streams that are missing
// ([MissingError]), JetStream that does not answer ([ErrUnavailable]), permissions
// ([ErrDenied]), which it may take the whole of ctx to find out. Nil: nothing does.
func LaneLacks(ctx context.Context, js natsjs.JetStream, m subject.Map) error {
	lacks, err := lacking(ctx, js, m, laneStores[:2])
	if err != nil {
		return err
	}
	rest, err := lacking(ctx, js, m, laneStores[2:])
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

// AwaitLane begins to look, again and again, and whenever the connection has come
// back, until ctx ends. First is what the lane lacked when it was looked for before;
// came, if not nil, is called before Ready is closed.
func AwaitLane(ctx context.Context, js natsjs.JetStream, m subject.Map, every time.Duration, first error, came func()) *LaneWait {
	w := &LaneWait{ready: make(chan struct{})}
	w.lacks.Store(&first)
	conn := js.Conn()
	status := conn.StatusChanged(nats.CONNECTED)
	go func() {
		defer conn.RemoveStatusListener(status)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-status:
			}
			if !conn.IsConnected() {
				continue
			}
			looking, cancel := oneRequest(ctx)
			err := LaneLacks(looking, js, m)
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

package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Otherwise its deadline, which is final, is by the worker's own clock, which may be wrong.
func TestNoTaskIsDrawnBeforeTheServersClockIsRead(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	outage := natstest.NewOutage(t, srv)
	reads := "STREAM.INFO." + jetstream.StreamWork
	known := make(chan bool, 1)
	node, ctx := serveDurableOn(t, outage.JetStream(t, natstest.Conn(t, srv)), 0, Agent{Entity: "agent.x", Handler: HandlerFunc(func(_ context.Context, task *Task) (json.RawMessage, error) {
		known <- task.Run().lane.clock.last.Load() != nil
		return nil, nil
	})}, func(*Config) { outage.RefuseFirst(1, reads) }) // after the streams were made
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", nil)
	if _, err := node.Submit(ctx, task, client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case ok := <-known:
		if !ok || outage.RefusedOf(reads) != 1 {
			t.Errorf("the task began, and the clock was read: %v, refused %d times", ok, outage.RefusedOf(reads))
		}
	case <-ctx.Done():
		t.Fatal("the task did not begin")
	}
}

// offsets answers readings of the server's clock.
type offsets struct {
	asked  atomic.Int64
	answer func() (offset, bound time.Duration, err error)
}

func (o *offsets) Offset(context.Context) (time.Duration, time.Duration, error) {
	o.asked.Add(1)
	return o.answer()
}

func exactly(offset, bound time.Duration) *offsets {
	return &offsets{answer: func() (time.Duration, time.Duration, error) { return offset, bound, nil }}
}

// A reading is used for ten seconds. Without one the clock is asked every second.
func TestTheServersClockIsAskedUntilItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var c serverClock
		begun := time.Now()
		o := &offsets{answer: func() (time.Duration, time.Duration, error) {
			if time.Since(begun) <= 3*time.Second {
				return 0, 0, errors.New("away")
			}
			return time.Hour, time.Millisecond, nil
		}}
		go c.tend(ctx, o)
		await := func(what string, d time.Duration, asked int64, ahead time.Duration) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := time.Until(c.now()); o.asked.Load() != asked || got != ahead {
				t.Errorf("%s: asked %d times, the server is %v ahead; want %d, %v", what, o.asked.Load(), got, asked, ahead)
			}
		}
		await("no answer", 3*time.Second, 3, 0)
		await("the first answer", time.Second, 4, time.Hour)
		await("the reading is fresh", 9*time.Second, 4, time.Hour)
		await("it is old", time.Second, 5, time.Hour)
	})
}

// mute is a clock that does not answer.
type mute struct{}

func (mute) Offset(ctx context.Context) (offset, bound time.Duration, err error) {
	<-ctx.Done()
	return 0, 0, ctx.Err()
}

// The lanes of a node wait for the server's clock together, not one after another, and no longer than
// the node serves.
func TestAServersClockThatIsAwayDelaysLanesOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ ends, want time.Duration }{
		"it serves":     {time.Hour, 3 * time.Second},
		"it is stopped": {time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.ends)
				defer cancel()
				c, began := serverClock{first: make(chan struct{}, 1)}, time.Now()
				var lanes sync.WaitGroup
				for range 10 {
					lanes.Go(func() { c.begin(ctx, mute{}) })
				}
				lanes.Wait()
				c.begin(ctx, mute{})
				if took := time.Since(began); took != test.want {
					t.Errorf("the lanes waited for %v, want %v", took, test.want)
				}
			})
		})
	}
}

// The monotonic clock stands still while the machine is suspended, so a reading from before lags by
// all that time: any new one is better, and it is taken at once.
func TestTheServersClockIsReadAnewAfterASuspension(t *testing.T) {
	t.Parallel()
	var c serverClock
	read := func(o *offsets) (ahead time.Duration) {
		c.readOlder(t.Context(), o, time.Hour)
		return time.Until(c.now()).Round(time.Minute)
	}
	if ahead := read(exactly(time.Hour, time.Millisecond)); ahead != time.Hour {
		t.Errorf("the first reading: %v ahead", ahead)
	}
	coarse := exactly(2*time.Hour, time.Second)
	if ahead := read(coarse); ahead != time.Hour || coarse.asked.Load() != 0 {
		t.Errorf("not suspended: %v ahead, asked %d times", ahead, coarse.asked.Load())
	}
	last := *c.last.Load()
	last.local = natstest.Suspended(last.local, -time.Minute) // since then the machine slept for a minute
	c.last.Store(&last)
	if ahead := read(coarse); ahead != 2*time.Hour || coarse.asked.Load() != 1 {
		t.Errorf("suspended: %v ahead, asked %d times; want 2h, 1", ahead, coarse.asked.Load())
	}
}

// By it the mesh knows which claims are to be written and which runs to be verified.
func TestTheAgeOfALaneIgnoresTheWallClock(t *testing.T) {
	t.Parallel()
	for _, set := range []time.Duration{-time.Hour, time.Hour} {
		hs := &holdings{host: &host{started: natstest.Suspended(time.Now(), -set)}} // since then the clock was set by so much
		if age := hs.age(); age.Abs() > time.Minute {
			t.Errorf("%v old after the clock was set by %v", age, set)
		}
	}
}

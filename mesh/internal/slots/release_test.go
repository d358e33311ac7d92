package slots

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// losing is a JetStream on which the next releases of slots are lost, before the server has them.
type losing struct {
	natsjs.JetStream
	lose atomic.Int64
}

func (l *losing) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	if msg.Header.Get("KV-Operation") == "DEL" && l.lose.Add(-1) >= 0 {
		return nil, nats.ErrTimeout
	}
	return l.JetStream.PublishMsg(ctx, msg, opts...)
}

// A slot whose release was lost is released again: the other workers need not wait until its lease
// ends. Here it lasts for an hour.
func TestALostReleaseIsRepeated(t *testing.T) {
	t.Parallel()
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	js := newBucket(t, within)
	lossy := &losing{JetStream: js}
	lossy.lose.Store(3)
	s := New(Config[int]{
		Entity: "agent.x", Instance: "a", Most: 1, Store: slot.NewStore(lossy, subject.Map{}, time.Hour), Log: slog.New(slog.DiscardHandler),
		Places: func() int { return 0 }, Drawn: func() int { return 0 }, Draining: func() bool { return false },
		Announce: func() error { return nil }, Acquired: func() {},
	})
	running, stop := context.WithCancel(within)
	var run sync.WaitGroup
	run.Go(func() { s.Run(running) })
	defer run.Wait()
	defer stop()
	if err := s.Enter(within, 1, 0); err != nil {
		t.Fatal(err)
	}
	s.Leave(1)
	got, err := slot.NewStore(js, subject.Map{}, time.Hour).Acquire(within, "agent.x", 1, "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	run.Wait()
	if err := got.Renew(within); err != nil {
		t.Errorf("it was released twice: %v", err)
	}
}

// together is a JetStream that makes the releases of slots when as many are under way as left says,
// or one has waited in vain.
type together struct {
	natsjs.JetStream
	left, vain atomic.Int64
	all        chan struct{}
	once       sync.Once
}

func (j *together) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	if msg.Header.Get("KV-Operation") == "DEL" {
		if j.left.Add(-1) == 0 {
			j.once.Do(func() { close(j.all) })
		}
		select {
		case <-j.all:
		case <-ctx.Done():
			j.vain.Add(1)
			j.once.Do(func() { close(j.all) })
			return nil, ctx.Err()
		}
	}
	return j.JetStream.PublishMsg(ctx, msg, opts...)
}

// A worker that stops while the server is away waits once, not once for each slot that it holds.
func TestAllSlotsAreReleasedAtOnce(t *testing.T) {
	t.Parallel()
	const most = 8
	for name, spare := range map[string]bool{"spare ones of a worker that drains": true, "those of tasks that still run": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			within, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			js := newBucket(t, within)
			releases := &together{JetStream: js, all: make(chan struct{})}
			releases.left.Store(most)
			var drains atomic.Bool
			s := New(Config[int]{
				Entity: "agent.x", Instance: "a", Most: most, Store: slot.NewStore(releases, subject.Map{}, time.Hour), Log: slog.New(slog.DiscardHandler),
				Places: func() int { return most }, Drawn: func() int { return 0 }, Draining: drains.Load,
				Announce: func() error { return nil }, Acquired: func() {},
			})
			running, stop := context.WithCancel(within)
			var run sync.WaitGroup
			run.Go(func() { s.Run(running) })
			defer run.Wait()
			defer stop()
			for task := range most {
				if err := s.Enter(within, task, 0); err != nil {
					t.Fatal(err)
				}
			}
			if spare {
				for task := range most {
					s.Leave(task)
				}
				drains.Store(true)
				s.Signal()
			} else {
				stop()
			}
			select {
			case <-releases.all:
			case <-within.Done():
			}
			stop()
			run.Wait()
			if releases.vain.Load() > 0 {
				t.Error("the releases are not under way together")
			}
		})
	}
}

// newBucket returns a JetStream with a bucket for slots.
func newBucket(t *testing.T, ctx context.Context) natsjs.JetStream {
	t.Helper()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(ctx, natsjs.KeyValueConfig{Bucket: slot.Bucket, LimitMarkerTTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return js
}

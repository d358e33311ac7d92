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
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := js.CreateKeyValue(within, natsjs.KeyValueConfig{Bucket: slot.Bucket, LimitMarkerTTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
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
	got, err := slot.NewStore(js, subject.Map{}, time.Hour).Acquire(within, "agent.x", 1, "b")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	run.Wait()
	if err := got.Renew(within); err != nil {
		t.Errorf("it was released twice: %v", err)
	}
}

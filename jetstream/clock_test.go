package jetstream_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
)

func TestClockTellsTheServersTime(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	clock := jetstream.NewClock(js, subject.Map{})
	if _, err := clock.Now(ctx); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("without the stream: %v", err)
	}
	apply(t, js, jetstream.Options{})
	before := time.Now()
	now, err := clock.Now(ctx)
	if after := time.Now(); err != nil || now.Before(before.Add(-time.Second)) || now.After(after.Add(time.Second)) {
		t.Errorf("%s, %v; it is %s", now, err, after)
	}
	// A message that is stored now must not be in the clock's past, within the bound.
	_, bound, err := clock.Offset(ctx)
	if err != nil {
		t.Fatal(err)
	}
	now, _ = clock.Now(ctx)
	ack, err := js.Publish(ctx, "aee.work.low.agent.x", nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, _ := js.Stream(ctx, jetstream.StreamWork)
	msg, err := stream.GetMsg(ctx, ack.Sequence)
	if err != nil || msg.Time.Before(now.Add(-bound)) {
		t.Errorf("stored at %v, it was %v with a bound of %v: %v", msg.Time, now, bound, err)
	}
	js.Conn().Close()
	if _, err := clock.Now(ctx); err != nil {
		t.Errorf("a reading does not serve without a connection: %v", err)
	}
	if _, err := jetstream.NewClock(js, subject.Map{}).Now(ctx); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("no reading, no connection: %v", err)
	}
}

func TestClockAsksOnceForManyCallers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js := connect(t, natstest.Run(t, natsd.Config{JetStream: true}))
	apply(t, js, jetstream.Options{})
	clock := jetstream.NewClock(js, subject.Map{})
	before := js.Conn().Stats().OutMsgs
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			if _, err := clock.Now(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if asked := js.Conn().Stats().OutMsgs - before; asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

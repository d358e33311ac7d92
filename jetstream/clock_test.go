package jetstream_test

import (
	"context"
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

// A worker whose own clock is wrong by years still knows the server's time, and the error
// of its own clock.
func TestClockOfASkewedMachine(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	var mu sync.Mutex
	real := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) // the server's
	elapsed := time.Duration(0)
	var asked int
	var failure error
	origin := time.Now()
	pass := func(d time.Duration) { mu.Lock(); elapsed += d; mu.Unlock() }
	clock := jetstream.NewClockOf(
		func(context.Context) (time.Time, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			elapsed += 20 * time.Millisecond // on the way
			now := real.Add(elapsed)
			elapsed += 20 * time.Millisecond // and back
			return now, failure
		},
		func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return origin.Add(elapsed)
		},
	)
	expect := func(what string, wantAsked int) {
		t.Helper()
		now, err := clock.Now(ctx)
		mu.Lock()
		defer mu.Unlock()
		if want := real.Add(elapsed); err != nil || !now.Equal(want) || asked != wantAsked {
			t.Errorf("%s: %s after %d answers, %v; want %s after %d", what, now, asked, err, want, wantAsked)
		}
	}
	expect("first", 1)
	pass(9 * time.Second)
	expect("fresh", 1)
	pass(2 * time.Second)
	expect("asked again", 2)

	mu.Lock()
	failure = errors.New("away")
	mu.Unlock()
	pass(9 * time.Minute)
	expect("the old reading while there is no other", 3)
	pass(2 * time.Minute)
	if now, err := clock.Now(ctx); !errors.Is(err, failure) {
		t.Errorf("too old: %s, %v", now, err)
	}
	if offset, _, err := clock.Offset(ctx); !errors.Is(err, failure) {
		t.Errorf("too old: %s, %v", offset, err)
	}
	mu.Lock()
	failure = nil
	mu.Unlock()
	offset, bound, err := clock.Offset(ctx)
	if want := real.Sub(origin.Round(0)); err != nil || offset != want || bound != 20*time.Millisecond {
		t.Errorf("offset %s, bound %s, %v; want %s", offset, bound, err, want)
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

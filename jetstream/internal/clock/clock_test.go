package clock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/internal/clock"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A worker whose own clock is wrong by years still knows the server's time, and the error
// of its own clock.
func TestClockOfASkewedMachine(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var mu sync.Mutex
	real := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) // the server's
	elapsed := time.Duration(0)
	var asked int
	var failure error
	origin := time.Now()
	pass := func(d time.Duration) { mu.Lock(); elapsed += d; mu.Unlock() }
	c := clock.New(
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
		now, err := c.Now(ctx)
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
	if now, err := c.Now(ctx); !errors.Is(err, failure) {
		t.Errorf("too old: %s, %v", now, err)
	}
	if offset, _, err := c.Offset(ctx); !errors.Is(err, failure) {
		t.Errorf("too old: %s, %v", offset, err)
	}
	mu.Lock()
	failure = nil
	mu.Unlock()
	offset, bound, err := c.Offset(ctx)
	if want := real.Sub(origin.Round(0)); err != nil || offset != want || bound != 20*time.Millisecond {
		t.Errorf("offset %s, bound %s, %v; want %s", offset, bound, err, want)
	}
}

// The monotonic clock stands still while the machine is suspended. Otherwise the server's time
// would lag by the suspension until the next reading, and for ten minutes where there is none.
func TestClockOfAMachineThatWasSuspended(t *testing.T) {
	t.Parallel()
	local, server, asked := time.Now(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), 0
	var failure error
	c := clock.New(func(context.Context) (time.Time, error) { asked++; return server, failure }, func() time.Time { return local })
	for _, asleep := range []time.Duration{0, time.Hour} {
		local, server = natstest.Suspended(local, asleep), server.Add(asleep)
		offset, _, err := c.Offset(t.Context())
		if want := server.Sub(local.Round(0)); err != nil || offset != want {
			t.Errorf("after %v: offset %v, %v; want %v", asleep, offset, err, want)
		}
	}
	if now, err := c.Now(t.Context()); err != nil || !now.Equal(server) || asked != 2 {
		t.Errorf("%v after %d answers, %v; want %v after 2", now, asked, err, server)
	}
	local, failure = natstest.Suspended(local, time.Hour), errors.New("away")
	if now, err := c.Now(t.Context()); !errors.Is(err, failure) {
		t.Errorf("the last reading is worth nothing after a suspension: %v, %v", now, err)
	}
}

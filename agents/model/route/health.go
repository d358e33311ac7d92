package route

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/aeemesh/aeemesh/agents/model"
)

// HealthOptions are the settings of Health. The zero value stands for the
// defaults.
type HealthOptions struct {
	// Failures is the number of failures in a row that open a route's breaker.
	// Default 5.
	Failures int
	// Open is how long a breaker stays open until one call is let through to
	// test the route. Default 30 seconds.
	Open time.Duration
	// MaxRetryAfter bounds the delay that a route can ask for. Default 24
	// hours.
	MaxRetryAfter time.Duration
}

// The defaults of [HealthOptions].
const (
	DefaultFailures      = 5
	DefaultOpen          = 30 * time.Second
	DefaultMaxRetryAfter = 24 * time.Hour
)

// Limits of the observed latencies.
const (
	maxSamples    = 64
	sampleAge     = 15 * time.Minute
	enoughSamples = 3
	// hang is how long a call must have waited when its deadline ended it, to
	// count as the route's failure: shorter deadlines of senders may not be
	// achievable.
	hang = 10 * time.Second
)

// Health records the state of routes: delays that they asked for, failures, and
// latencies. All routers of a process share one Health, so that a run benefits
// from the experience of others.
//
// These failures count towards opening a breaker: unreachable, broken off, credential refused, rate
// limited without a delay, or a deadline that ended the call after at least ten seconds. A request
// that is refused as wrong counts as an answer; a cancelled call does not count.
type Health struct {
	opts HealthOptions
	now  func() time.Time

	mu     sync.Mutex
	routes map[string]*routeHealth
}

// NewHealth returns an empty Health.
func NewHealth(o HealthOptions) *Health {
	if o.Failures <= 0 {
		o.Failures = DefaultFailures
	}
	if o.Open <= 0 {
		o.Open = DefaultOpen
	}
	if o.MaxRetryAfter <= 0 {
		o.MaxRetryAfter = DefaultMaxRetryAfter
	}
	return &Health{opts: o, now: time.Now, routes: make(map[string]*routeHealth)}
}

// of returns the health of a route; routes to the same endpoint share it.
func (h *Health) of(r *Route) *routeHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := r.Endpoint + " " + r.Name()
	if rh := h.routes[key]; rh != nil {
		return rh
	}
	rh := &routeHealth{h: h}
	rh.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:   1,
		Timeout:       h.opts.Open,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(h.opts.Failures) },
		OnStateChange: rh.changed,
		IsSuccessful:  func(err error) bool { return err == nil },
		IsExcluded:    func(err error) bool { return errors.Is(err, errNeutral) },
	})
	h.routes[key] = rh
	return rh
}

// errNeutral is the result for the breaker of a call that says nothing about
// the route.
var errNeutral = errors.New("neither success nor failure")

// routeHealth is the state of one route.
type routeHealth struct {
	h       *Health
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]

	mu      sync.Mutex
	until   time.Time  // when the delay that it asked for ends
	why     model.Kind // why it asked for the delay
	opened  time.Time  // when the breaker opened last
	cause   model.Kind // of the last failure
	samples []sample   // of the latest turns, oldest first
}

type sample struct {
	at   time.Time
	took time.Duration
}

// changed is called by the breaker while it holds its own lock.
func (r *routeHealth) changed(_ string, _, to gobreaker.State) {
	if to == gobreaker.StateOpen {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.opened = r.h.now()
	}
}

// leftAlone reports whether the route must not be called now, and why.
func (r *routeHealth) leftAlone() (model.Try, bool) {
	state := r.breaker.State() // before mu, because the breaker may call changed
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.h.now()
	if left := r.until.Sub(now); left > 0 {
		return model.Try{Kind: r.why, RetryAfter: left}, true
	}
	if state == gobreaker.StateOpen {
		return r.tripped(now), true
	}
	return model.Try{}, false
}

// tripped returns the try of a route whose breaker is open. r.mu is held.
func (r *routeHealth) tripped(now time.Time) model.Try {
	t := model.Try{Kind: r.cause, RetryAfter: max(0, r.opened.Add(r.h.opts.Open).Sub(now))}
	if !t.Kind.Retryable() {
		t.RetryAfter = 0
	}
	return t
}

// outcome records the result of a call.
type outcome func(ctx context.Context, err error, took time.Duration)

// enter asks for permission to call the route. With ok, done must be called
// with the result; otherwise the try says why not.
func (r *routeHealth) enter() (done outcome, _ model.Try, ok bool) {
	if try, alone := r.leftAlone(); alone {
		return nil, try, false
	}
	report, err := r.breaker.Allow()
	if err != nil { // another call is testing whether the route works again
		r.mu.Lock()
		defer r.mu.Unlock()
		return nil, r.tripped(r.h.now()), false
	}
	return func(ctx context.Context, err error, took time.Duration) { report(r.note(ctx, err, took)) }, model.Try{}, true
}

// note records the result of a call, and returns the result for the breaker.
func (r *routeHealth) note(ctx context.Context, err error, took time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.h.now()
	var failed *model.Error
	switch {
	case err == nil:
		r.samples = append(r.fresh(now), sample{now, took})
		r.samples = r.samples[max(0, len(r.samples)-maxSamples):]
		return nil
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded) && took >= hang: // a task's context ends with Canceled, for its deadline too
		r.cause = model.ErrUnavailable
		return err
	case ctx.Err() != nil || !errors.As(err, &failed):
		return errNeutral
	}
	if failed.Kind.Retryable() && failed.RetryAfter > 0 {
		until := now.Add(min(failed.RetryAfter, r.h.opts.MaxRetryAfter))
		if until.After(r.until) {
			r.until, r.why = until, failed.Kind
		}
	}
	switch {
	case failed.Kind == model.ErrRateLimited && failed.RetryAfter > 0:
		return errNeutral // it asked for a delay
	case failed.Kind == model.ErrBadRequest && elsewhere(failed):
		return errNeutral // it works, but does not have this model
	case elsewhere(failed):
		r.cause = failed.Kind
		return err
	}
	return nil // it answered
}

// fresh returns the samples of the last 15 minutes. r.mu is held.
func (r *routeHealth) fresh(now time.Time) []sample {
	old := 0
	for old < len(r.samples) && now.Sub(r.samples[old].at) > sampleAge {
		old++
	}
	return r.samples[old:]
}

// Latency is the latency of a route's turns in the last 15 minutes.
type Latency struct {
	P50     time.Duration // from the request to the complete turn
	Samples int           // at most 64
}

func (r *routeHealth) typical() Latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := r.fresh(r.h.now())
	if len(fresh) == 0 {
		return Latency{}
	}
	took := make([]time.Duration, len(fresh))
	for i, s := range fresh {
		took[i] = s.took
	}
	slices.Sort(took)
	return Latency{P50: took[(len(took)-1)/2], Samples: len(took)}
}

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

// HealthOptions bound how a route is spared. The zero value has the defaults.
type HealthOptions struct {
	// Failures in a row open a route's breaker. Default 5.
	Failures int
	// Open is how long it stays open, before one call is let through that decides
	// whether it closes. Default 30 seconds.
	Open time.Duration
	// MaxRetryAfter bounds how long a route can ask to be left alone. Default 24
	// hours.
	MaxRetryAfter time.Duration
}

// The defaults of [HealthOptions].
const (
	DefaultFailures      = 5
	DefaultOpen          = 30 * time.Second
	DefaultMaxRetryAfter = 24 * time.Hour
)

// How latency is observed.
const (
	maxSamples    = 64
	sampleAge     = 15 * time.Minute
	enoughSamples = 3
	// hang is how long a call must have waited for its deadline to count as the
	// route's failure: senders may set deadlines that nobody could keep.
	hang = 10 * time.Second
)

// Health is how routes fare: which ask to be left alone, which have failed too
// often, how fast they are. One serves all routers of a process, so that what
// one run learns spares the others.
//
// Failures in a row that open a breaker are those of availability: unreachable,
// broken off, credential refused, rate limited without a word about how long, a
// deadline that ended a wait of ten seconds and more. What a provider refuses
// for the request's sake counts as an answer; a call that was cancelled counts
// for nothing.
type Health struct {
	opts HealthOptions
	now  func() time.Time

	mu     sync.Mutex
	routes map[string]*routeHealth
}

// NewHealth returns a Health that knows of no route.
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

// of is the health of a route, the same for all that lead to one place.
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

// errNeutral says to the breaker that a call says nothing about the route.
var errNeutral = errors.New("neither success nor failure")

// routeHealth is how one route fares.
type routeHealth struct {
	h       *Health
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]

	mu      sync.Mutex
	until   time.Time  // to be left alone until then
	why     model.Kind // of that
	opened  time.Time  // when the breaker opened last
	cause   model.Kind // of the last failure
	samples []sample   // of the last turns, the oldest first
}

type sample struct {
	at   time.Time
	took time.Duration
}

// changed is called by the breaker, which holds its own lock.
func (r *routeHealth) changed(_ string, _, to gobreaker.State) {
	if to == gobreaker.StateOpen {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.opened = r.h.now()
	}
}

// leftAlone says whether the route is not to be asked now, and why.
func (r *routeHealth) leftAlone() (model.Try, bool) {
	state := r.breaker.State() // before mu: the breaker may call changed
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

// tripped is the try at a route whose breaker lets nobody through. r.mu is held.
func (r *routeHealth) tripped(now time.Time) model.Try {
	t := model.Try{Kind: r.cause, RetryAfter: max(0, r.opened.Add(r.h.opts.Open).Sub(now))}
	if !t.Kind.Retryable() {
		t.RetryAfter = 0
	}
	return t
}

// outcome takes down how a call ended.
type outcome func(ctx context.Context, err error, took time.Duration)

// enter asks for a call of the route. If there may be one, done must be called
// with how it ended; if not, the try says why.
func (r *routeHealth) enter() (done outcome, _ model.Try, ok bool) {
	if try, alone := r.leftAlone(); alone {
		return nil, try, false
	}
	report, err := r.breaker.Allow()
	if err != nil { // another call finds out whether it is back
		r.mu.Lock()
		defer r.mu.Unlock()
		return nil, r.tripped(r.h.now()), false
	}
	return func(ctx context.Context, err error, took time.Duration) { report(r.note(ctx, err, took)) }, model.Try{}, true
}

// note takes down how a call ended, and returns what the breaker is to hear.
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
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && took >= hang:
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
		return errNeutral // it said when to come back
	case failed.Kind == model.ErrBadRequest && elsewhere(failed):
		return errNeutral // it is there, but not with this model
	case elsewhere(failed):
		r.cause = failed.Kind
		return err
	}
	return nil // it answered
}

// fresh are the samples that still count. r.mu is held.
func (r *routeHealth) fresh(now time.Time) []sample {
	old := 0
	for old < len(r.samples) && now.Sub(r.samples[old].at) > sampleAge {
		old++
	}
	return r.samples[old:]
}

// Latency is what was observed of a route's turns in the last 15 minutes.
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

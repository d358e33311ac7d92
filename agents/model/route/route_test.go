package route_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/model/route"
)

func TestFallbacksInDeclaredOrder(t *testing.T) {
	t.Parallel()
	a, b, c := down("a"), down("b"), &provider{name: "c"}
	b.set(failing(model.Error{Kind: model.ErrRateLimited}))
	price := route.Facts{Input: usd("0.001"), Output: usd("0.002")}
	m := newRouter(t, route.Options{}, via(a, route.Facts{}), via(b, route.Facts{}), via(c, price)).Model()
	res, err := m.Generate(t.Context(), hello(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []model.Try{{Route: "a/m", Kind: model.ErrUnavailable, Asked: true}, {Route: "b/m", Kind: model.ErrRateLimited, Asked: true}}
	if res.Message.Content != "c" || res.Provider != "c" || !reflect.DeepEqual(res.Tried, want) {
		t.Errorf("answered by %+v after %v", res, res.Tried)
	}
	if !res.Priced || res.Cost.String() != "0.003" {
		t.Errorf("cost %s, priced %v", res.Cost, res.Priced)
	}
	if c.last.Model != "m" {
		t.Errorf("the route was asked for model %q", c.last.Model)
	}
}

// A failure that concerns the request, and not the provider, would occur with other providers, too.
func TestWhichFailuresGoOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  model.Error
		goOn bool
	}{
		"unavailable":     {model.Error{Kind: model.ErrUnavailable}, true},
		"rate limited":    {model.Error{Kind: model.ErrRateLimited}, true},
		"no credential":   {model.Error{Kind: model.ErrAuth, Status: 401}, true},
		"no such model":   {model.Error{Kind: model.ErrBadRequest, Status: 404}, true},
		"bad request":     {model.Error{Kind: model.ErrBadRequest, Status: 400}, false},
		"too long":        {model.Error{Kind: model.ErrContextTooLong, Status: 400}, false},
		"odd bad request": {model.Error{Kind: model.ErrBadRequest}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := &provider{name: "a"}, &provider{name: "b"}
			a.set(failing(c.err))
			_, err := newRouter(t, route.Options{}, via(a, route.Facts{}), via(b, route.Facts{})).Generate(t.Context(), hello(), nil)
			if (err == nil) != c.goOn || (b.asked() == 1) != c.goOn {
				t.Errorf("error %v, want it to go on: %v", err, c.goOn)
			}
			if !c.goOn && !errors.Is(err, c.err.Kind) {
				t.Errorf("error %v, want %v", err, c.err.Kind)
			}
		})
	}
}

func TestEveryRouteFailedIsOneError(t *testing.T) {
	t.Parallel()
	a, b, c := down("a"), down("b"), down("c")
	a.set(failing(model.Error{Kind: model.ErrRateLimited, RetryAfter: time.Minute, Message: "too much"}))
	b.set(failing(model.Error{Kind: model.ErrAuth, Status: 401, Message: "what key"}))
	c.set(failing(model.Error{Kind: model.ErrRateLimited, RetryAfter: 5 * time.Second, Message: "much too much"}))
	r := newRouter(t, route.Options{}, via(a, route.Facts{}), via(b, route.Facts{}), via(c, route.Facts{}))
	_, err := r.Generate(t.Context(), hello(), nil)
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v", err)
	}
	if e.Kind != model.ErrRateLimited || e.RetryAfter != 5*time.Second || len(e.Tries) != 3 {
		t.Errorf("kind %q, retry after %s, tries %v", e.Kind, e.RetryAfter, e.Tries)
	}
	for _, part := range []string{"a/m", "too much", "b/m", "what key", "c/m", "much too much", "401"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in the error: %v", part, err)
		}
	}
	if n := strings.Count(err.Error(), "(retry after 5s)"); n != 1 {
		t.Errorf("the advice is said %d times: %v", n, err)
	}
	for _, try := range e.Tries { // may be sent to peers
		if strings.Contains(try.String(), "much") || strings.Contains(try.String(), "key") {
			t.Errorf("the provider's words are in %q", try)
		}
	}
	a.set(failing(model.Error{Kind: model.ErrUnavailable}))
	r = newRouter(t, route.Options{}, via(a, route.Facts{}), via(c, route.Facts{}))
	if _, err := r.Generate(t.Context(), hello(), nil); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("one is unavailable, one is limited: %v", err)
	}
}

func TestRetryAfterIsHonouredByAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := &provider{name: "a"}, &provider{name: "b"}
		health := route.NewHealth(route.HealthOptions{})
		one := newRouter(t, route.Options{Health: health}, via(a, route.Facts{}), via(b, route.Facts{}))
		other := newRouter(t, route.Options{Health: health}, via(a, route.Facts{}))
		a.set(failing(model.Error{Kind: model.ErrRateLimited, RetryAfter: 10 * time.Second}))
		if got := who(t, one); got != "b" || a.asked() != 1 {
			t.Fatalf("answered by %s", got)
		}
		pass(9 * time.Second)
		if got := who(t, one); got != "b" || a.asked() != 0 {
			t.Errorf("a was not left alone; answered by %s", got)
		}
		var e *model.Error
		if _, err := other.Generate(t.Context(), hello(), nil); !errors.As(err, &e) || e.Kind != model.ErrRateLimited || e.RetryAfter != time.Second || e.Tries[0].Asked || a.asked() != 0 {
			t.Errorf("another agent's router: %v, want rate limited for another second, without being asked", err)
		}
		pass(time.Second)
		a.set(nil)
		if got := who(t, one); got != "a" {
			t.Errorf("after the time is up %s answers", got)
		}
	})
}

func TestBreakerOpensAndCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := down("a"), &provider{name: "b"}
		health := route.NewHealth(route.HealthOptions{Failures: 3, Open: 20 * time.Second})
		m := newRouter(t, route.Options{Health: health}, via(a, route.Facts{}), via(b, route.Facts{}))
		inTurn(t, m, 3)
		if n := a.asked(); n != 3 {
			t.Fatalf("asked %d times", n)
		}
		inTurn(t, m, 5)
		if n := a.asked(); n != 0 {
			t.Errorf("an open breaker let %d calls through", n)
		}
		if s := m.Routes()[0]; s.LeftAlone == nil || s.LeftAlone.Kind != model.ErrUnavailable || s.LeftAlone.RetryAfter != 20*time.Second {
			t.Errorf("status %+v", s.LeftAlone)
		}
		pass(20*time.Second + time.Millisecond) // half open: one call decides
		if got := inTurn(t, m, 3); got != "bbb" || a.asked() != 1 {
			t.Errorf("half open: %s", got)
		}
		pass(20*time.Second + time.Millisecond)
		a.set(nil)
		if got := inTurn(t, m, 2); got != "aa" {
			t.Errorf("back again: %s", got)
		}
		// An error of the request is not a failure of the route.
		a.set(failing(model.Error{Kind: model.ErrBadRequest}))
		for range 5 {
			_, _ = m.Generate(t.Context(), hello(), nil)
		}
		if n := a.asked(); n != 5 {
			t.Errorf("bad requests opened the breaker: asked %d times of 5", n)
		}
	})
}

// One call at a time tests whether a route works again; the others do not wait for it.
func TestHalfOpenLetsOneThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := down("a"), &provider{name: "b"}
		health := route.NewHealth(route.HealthOptions{Failures: 1, Open: time.Second})
		m := newRouter(t, route.Options{Health: health}, via(a, route.Facts{}), via(b, route.Facts{}))
		who(t, m)
		pass(2 * time.Second)
		release := make(chan struct{})
		a.set(func(int, *model.Request, func(model.Delta) error) (*model.Response, error) {
			<-release
			return answer("a"), nil
		})
		var first string
		go func() { first = who(t, m) }()
		synctest.Wait()
		if got := who(t, m); got != "b" {
			t.Errorf("the second call is answered by %s", got)
		}
		close(release)
		synctest.Wait()
		if first != "a" || who(t, m) != "a" {
			t.Errorf("the probe is answered by %s", first)
		}
	})
}

// A cancelled call, even one that panicked, does not keep a breaker half open.
func TestHalfOpenSurvivesCallsThatSayNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := down("a")
		health := route.NewHealth(route.HealthOptions{Failures: 1, Open: time.Second})
		m := newRouter(t, route.Options{Health: health}, via(a, route.Facts{}))
		_, _ = m.Generate(t.Context(), hello(), nil)
		pass(2 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		a.set(func(int, *model.Request, func(model.Delta) error) (*model.Response, error) {
			cancel()
			return nil, ctx.Err()
		})
		if _, err := m.Generate(ctx, hello(), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		a.set(func(int, *model.Request, func(model.Delta) error) (*model.Response, error) { panic("a defect") })
		func() {
			defer func() { _ = recover() }()
			_, _ = m.Generate(t.Context(), hello(), nil)
		}()
		a.set(nil)
		if got := who(t, m); got != "a" {
			t.Errorf("answered by %s", got)
		}
	})
}

func TestHangingRouteIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := &provider{name: "a"}, &provider{name: "b"}
		health := route.NewHealth(route.HealthOptions{Failures: 1})
		m := newRouter(t, route.Options{Health: health}, via(a, route.Facts{}), via(b, route.Facts{}))
		call := func(patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			a.set(func(int, *model.Request, func(model.Delta) error) (*model.Response, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			_, err := m.Generate(ctx, hello(), nil)
			return err
		}
		for range 3 { // deadlines that no provider could meet
			if err := call(time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("impatient: %v", err)
			}
		}
		a.set(nil)
		if got := who(t, m); got != "a" {
			t.Errorf("impatient senders took %s out", "a")
		}
		if err := call(time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("patient: %v", err)
		}
		if got := who(t, m); got != "b" {
			t.Errorf("a route that hangs is asked again: %s", got)
		}
	})
}

// The context of a task in the mesh ends with context.Canceled, and only its cause says why: its deadline, or
// a pause, a new instruction, a cancel or a lost lease, which say nothing about the route.
func TestARouteThatHangsUntilTheDeadlineOfAMeshTaskIsAFailure(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cause error
		waits time.Duration
		next  string // which route is asked next
	}{
		"deadline":        {fmt.Errorf("E_TIMEOUT: %w", context.DeadlineExceeded), time.Minute, "b"},
		"a short time":    {fmt.Errorf("E_TIMEOUT: %w", context.DeadlineExceeded), time.Second, "a"},
		"cancelled":       {context.Canceled, time.Minute, "a"},
		"without a cause": {nil, time.Minute, "a"},
		"paused":          {errors.New("the run is parked"), time.Minute, "a"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := &provider{name: "a"}, &provider{name: "b"}
				m := newRouter(t, route.Options{Health: route.NewHealth(route.HealthOptions{Failures: 1})}, via(a, route.Facts{}), via(b, route.Facts{}))
				task, end := context.WithCancelCause(t.Context())
				time.AfterFunc(tt.waits, func() { end(tt.cause) })
				ctx, stop := context.WithCancelCause(task) // the agent's own, for a turn
				defer stop(nil)
				a.set(func(int, *model.Request, func(model.Delta) error) (*model.Response, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
				if _, err := m.Generate(ctx, hello(), nil); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, want the context's", err)
				}
				a.set(nil)
				if got := who(t, m); got != tt.next {
					t.Errorf("answered by %s, want %s", got, tt.next)
				}
			})
		})
	}
}

func TestStrategies(t *testing.T) {
	t.Parallel()
	cheap := route.Facts{Input: usd("0.0001"), Output: usd("0.0004"), Quality: 50}
	dear := route.Facts{Input: usd("0.005"), Output: usd("0.02"), Quality: 90}
	mid := route.Facts{Input: usd("0.0009"), Output: usd("0.0009"), Quality: 70}
	unknown := route.Facts{}
	for name, c := range map[string]struct {
		strategy aaif.RoutingStrategy
		edit     func([]route.Route)
		want     string // who answers, four calls
	}{
		"default":            {"", nil, "aaaa"},
		"preferred first":    {aaif.RoutePreferredFirst, nil, "aaaa"},
		"cost":               {aaif.RouteCost, nil, "cccc"},
		"quality":            {aaif.RouteQuality, nil, "bbbb"},
		"operator's ranking": {aaif.RouteQuality, func(r []route.Route) { r[3].Rank, r[0].Rank = 1, 2 }, "dddd"},
		"round robin":        {aaif.RouteRoundRobin, nil, "abcd"},
		"a tie":              {aaif.RouteCost, func(r []route.Route) { r[2].Facts, r[3].Facts = mid, cheap; r[1].Facts = cheap }, "bbbb"},
		"nothing is known": {aaif.RouteCost, func(r []route.Route) {
			for i := range r {
				r[i].Facts = unknown
			}
		}, "aaaa"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var routes []route.Route
			for i, f := range []route.Facts{mid, dear, cheap, unknown} {
				routes = append(routes, via(&provider{name: string(rune('a' + i))}, f))
			}
			if c.edit != nil {
				c.edit(routes)
			}
			r := newRouter(t, route.Options{Strategy: c.strategy}, routes...)
			if got := inTurn(t, r, 4); got != c.want {
				t.Errorf("answered by %s, want %s", got, c.want)
			}
		})
	}
	if _, err := route.New([]route.Route{via(&provider{name: "a"}, unknown)}, route.Options{Strategy: "luck"}); err == nil {
		t.Error("there is no strategy luck")
	}
}

func TestLatencyTakesTheFastestByMedian(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		takes := func(p *provider, d ...time.Duration) {
			p.set(func(call int, _ *model.Request, _ func(model.Delta) error) (*model.Response, error) {
				pass(d[(call-1)%len(d)])
				return answer(p.name), nil
			})
		}
		a, b := &provider{name: "a"}, &provider{name: "b"}
		takes(a, 2*time.Second)
		takes(b, time.Second, 10*time.Second, time.Second) // the median counts, not the mean
		r := newRouter(t, route.Options{Strategy: aaif.RouteLatency}, via(a, route.Facts{}), via(b, route.Facts{}))
		if got := inTurn(t, r, 9); got != "aaabbbbbb" {
			t.Errorf("each is tried three times, then the fastest: %s", got)
		}
		if s := r.Routes()[0]; s.Provider != "b" || s.Typical.P50 != time.Second {
			t.Errorf("status %+v", s)
		}
		pass(20 * time.Minute) // what was observed is old
		takes(a, time.Millisecond)
		if got := inTurn(t, r, 8); got != "aaabbbaa" {
			t.Errorf("after a while: %s", got)
		}
	})
}

func TestRoundRobinLeavesOutWhatIsDown(t *testing.T) {
	t.Parallel()
	a, b, c := &provider{name: "a"}, &provider{name: "b"}, &provider{name: "c"}
	b.set(failing(model.Error{Kind: model.ErrRateLimited, RetryAfter: time.Hour}))
	r := newRouter(t, route.Options{Strategy: aaif.RouteRoundRobin}, via(a, route.Facts{}), via(b, route.Facts{}), via(c, route.Facts{}))
	inTurn(t, r, 2) // b asks for a delay
	got := inTurn(t, r, 20)
	if strings.Count(got, "a") != 10 || strings.Count(got, "c") != 10 {
		t.Errorf("not even: %s", got)
	}
}

func TestGuards(t *testing.T) {
	t.Parallel()
	small, large := route.Facts{ContextTokens: 8000, Input: usd("0.001"), Output: usd("0.004")}, route.Facts{ContextTokens: 128000, Input: usd("0.001"), Output: usd("0.004")}
	a, b := &provider{name: "a"}, &provider{name: "b"}
	for name, c := range map[string]struct {
		first   route.Facts
		ceiling *model.USD
		min     int
		skip    string // why the first is skipped; "" if it is not
	}{
		"no guard":         {small, nil, 0, ""},
		"unknown, no need": {route.Facts{}, nil, 0, ""},
		"window too small": {small, nil, 32000, "8000"},
		"window enough":    {large, nil, 128000, ""},
		"window not known": {route.Facts{}, nil, 1, "not known"},
		"dear output":      {large, usd("0.003"), 0, "0.004"},
		"cheap enough":     {large, usd("0.004"), 0, ""},
		"price not known":  {route.Facts{ContextTokens: 1}, usd("1"), 0, "price is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := via(a, c.first)
			first.MaxCost = c.ceiling
			r := newRouter(t, route.Options{MinContext: c.min}, first, via(b, large))
			all := r.Routes()
			switch {
			case c.skip == "" && (all[0].Provider != "a" || all[0].Skip != ""):
				t.Errorf("skipped: %s", all[1].Skip)
			case c.skip != "" && (all[1].Provider != "a" || !strings.Contains(all[1].Skip, c.skip)):
				t.Errorf("routes %+v", all)
			}
			if got, want := who(t, r), map[bool]string{true: "a", false: "b"}[c.skip == ""]; got != want {
				t.Errorf("answered by %s, want %s", got, want)
			}
		})
	}
	if _, err := route.New([]route.Route{via(a, small)}, route.Options{MinContext: 9000}); err == nil || !strings.Contains(err.Error(), "a/m: its context window has 8000") {
		t.Errorf("no route is left: %v", err)
	}
}

func TestConversationFitsEachRoute(t *testing.T) {
	t.Parallel()
	a, b := down("a"), &provider{name: "b"}
	req := hello()
	req.Messages = []model.Message{model.User("1"), model.User("2"), model.User("3")}
	req.Fit = func(window int) []model.Message { return req.Messages[max(0, len(req.Messages)-window):] }
	r := newRouter(t, route.Options{}, via(a, route.Facts{ContextTokens: 2}), via(b, route.Facts{ContextTokens: 1}))
	if _, err := r.Generate(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	if len(a.last.Messages) != 2 || len(b.last.Messages) != 1 || b.last.Fit != nil || len(req.Messages) != 3 {
		t.Errorf("a got %d, b %d", len(a.last.Messages), len(b.last.Messages))
	}
}

// The loop shortens a conversation that is too long; if that is not possible, a route with a larger
// window is tried.
func TestTooLong(t *testing.T) {
	t.Parallel()
	tooLong := failing(model.Error{Kind: model.ErrContextTooLong})
	a, b, c := &provider{name: "a", do: tooLong}, &provider{name: "b"}, &provider{name: "c"}
	r := newRouter(t, route.Options{}, via(a, route.Facts{ContextTokens: 1000}), via(b, route.Facts{ContextTokens: 1000}), via(c, route.Facts{ContextTokens: 2000}))
	req := hello()
	req.Messages = []model.Message{model.User("1"), model.User("2")}
	req.Fit = func(window int) []model.Message {
		if window == 1 {
			return req.Messages[1:]
		}
		return req.Messages
	}
	if _, err := r.Generate(t.Context(), req, nil); !errors.Is(err, model.ErrContextTooLong) || c.asked() != 0 {
		t.Errorf("it can be shortened: %v", err)
	}
	req.Fit = func(int) []model.Message { return req.Messages }
	res, err := r.Generate(t.Context(), req, nil)
	if err != nil || res.Message.Content != "c" || b.asked() != 0 {
		t.Errorf("it cannot be shortened: %+v, %v", res, err)
	}
}

func TestExtendedIsForItsProviderAlone(t *testing.T) {
	t.Parallel()
	a, b := down("a"), &provider{name: "b"}
	foreign := via(b, route.Facts{})
	foreign.Extended = false
	req := hello()
	req.Params.Extended = []byte(`{"thinking":{"budget_tokens":5000}}`)
	res, err := newRouter(t, route.Options{}, via(a, route.Facts{}), foreign).Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(a.last.Params.Extended) != string(req.Params.Extended) || b.last.Params.Extended != nil || !reflect.DeepEqual(res.Dropped, []string{"extended"}) {
		t.Errorf("a got %s, b %s, dropped %v", a.last.Params.Extended, b.last.Params.Extended, res.Dropped)
	}
}

func TestBrokenStreamIsAskedElsewhere(t *testing.T) {
	t.Parallel()
	a, b := &provider{name: "a"}, &provider{name: "b"}
	a.set(func(_ int, _ *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
		if err := onDelta(model.Delta{Text: "half"}); err != nil {
			return nil, err
		}
		return nil, &model.Error{Kind: model.ErrUnavailable, Message: "cut"}
	})
	r := newRouter(t, route.Options{}, via(a, route.Facts{}), via(b, route.Facts{}))
	var told strings.Builder
	onDelta := func(d model.Delta) error { told.WriteString(d.Text); return nil }
	_, err := r.Generate(t.Context(), hello(), onDelta)
	var e *model.Error
	if !errors.As(err, &e) || e.Kind != model.ErrUnavailable || e.Route != "a/m" || b.asked() != 0 || told.String() != "half" {
		t.Fatalf("error %v after %q: text would double elsewhere", err, told.String())
	}
	req := hello()
	req.Avoid = []string{e.Route}
	if res, err := r.Generate(t.Context(), req, onDelta); err != nil || res.Message.Content != "b" || b.last.Avoid != nil {
		t.Errorf("asked again: %+v, %v", res, err)
	}
	// If there is no other route, the same one is called again.
	only := newRouter(t, route.Options{}, via(a, route.Facts{}))
	a.set(nil)
	if res, err := only.Generate(t.Context(), req, onDelta); err != nil || res.Message.Content != "a" {
		t.Errorf("no other route: %+v, %v", res, err)
	}
}

func TestManyRunsShareHealth(t *testing.T) {
	t.Parallel()
	health := route.NewHealth(route.HealthOptions{Failures: 2})
	fake := modeltest.New(modeltest.Turn{Text: "fine"})
	for _, strategy := range []aaif.RoutingStrategy{aaif.RouteLatency, aaif.RouteRoundRobin, aaif.RouteCost} {
		r := newRouter(t, route.Options{Strategy: strategy, Health: health}, via(down("a"), route.Facts{}),
			route.Route{Provider: "b", Model: "m", M: fake}, route.Route{Provider: "c", Model: "m", M: fake})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					if _, err := r.Generate(t.Context(), hello(), nil); err != nil {
						t.Error(err)
					}
					_ = r.Routes()
				}
			})
		}
		wg.Wait()
	}
}

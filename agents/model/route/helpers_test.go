package route_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/route"
)

// provider is a model that answers or fails as the test sets it, and counts its calls.
type provider struct {
	name string

	mu    sync.Mutex
	calls int
	last  *model.Request
	do    func(call int, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error)
}

func (p *provider) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.calls++
	call := p.calls
	p.last = req
	do := p.do
	p.mu.Unlock()
	if do == nil {
		return answer(p.name), nil
	}
	return do(call, req, onDelta)
}

func (p *provider) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.calls
	p.calls = 0
	return n
}

func (p *provider) set(do func(int, *model.Request, func(model.Delta) error) (*model.Response, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.do, p.calls = do, 0
}

func answer(text string) *model.Response {
	return &model.Response{Message: model.Assistant(text), Finish: model.FinishStop, Usage: model.Usage{InputTokens: 1000, OutputTokens: 1000}, Model: "m"}
}

// failing always fails with a copy of an error.
func failing(e model.Error) func(int, *model.Request, func(model.Delta) error) (*model.Response, error) {
	return func(int, *model.Request, func(model.Delta) error) (*model.Response, error) {
		again := e
		return nil, &again
	}
}

func down(name string) *provider {
	return &provider{name: name, do: failing(model.Error{Kind: model.ErrUnavailable, Message: "secret words of " + name})}
}

func via(p *provider, facts route.Facts) route.Route {
	return route.Route{Provider: p.name, Model: "m", M: p, Facts: facts, Extended: true}
}

func newRouter(t *testing.T, o route.Options, routes ...route.Route) *route.Router {
	t.Helper()
	r, err := route.New(routes, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func hello() *model.Request {
	return &model.Request{Model: "whatever", Messages: []model.Message{model.User("hi")}}
}

// who returns which provider answers.
func who(t *testing.T, m model.Model) string {
	t.Helper()
	res, err := m.Generate(t.Context(), hello(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.Message.Content
}

// inTurn returns who answers n calls, one letter each.
func inTurn(t *testing.T, m model.Model, n int) string {
	t.Helper()
	var all string
	for range n {
		all += who(t, m)
	}
	return all
}

// pass lets time pass, in a bubble of synctest where it costs nothing.
func pass(d time.Duration) { <-time.After(d) }

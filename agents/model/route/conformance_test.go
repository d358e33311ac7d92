package route

import (
	"context"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

// still returns a Health whose clock stands still.
func still() *Health {
	h := NewHealth(HealthOptions{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h.now = func() time.Time { return at }
	return h
}

func TestRouterConforms(t *testing.T) {
	t.Parallel()
	for name, routes := range map[string]func(m model.Model) []Route{
		"one route": func(m model.Model) []Route { return []Route{{Provider: "p", Model: "m", M: m}} },
		"the second of two": func(m model.Model) []Route {
			gone := model.Func(func(_ context.Context, req *model.Request, _ func(model.Delta) error) (*model.Response, error) {
				if err := req.Validate(); err != nil {
					return nil, err
				}
				return nil, &model.Error{Kind: model.ErrBadRequest, Status: 404, Message: "no such model"}
			})
			return []Route{{Provider: "gone", Model: "m", M: gone}, {Provider: "p", Model: "m", M: m}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			modeltest.Run(t, func(t *testing.T, turns ...modeltest.Turn) model.Model {
				r, err := New(routes(modeltest.New(turns...)), Options{Health: still()})
				if err != nil {
					t.Fatal(err)
				}
				return r.Model()
			})
		})
	}
	t.Run("a continuer", func(t *testing.T) {
		t.Parallel()
		modeltest.Run(t, func(t *testing.T, turns ...modeltest.Turn) model.Model {
			r, err := New([]Route{{Provider: "p", Model: "m", M: goesOn{modeltest.New(turns...)}}}, Options{Health: still()})
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := r.Model().(model.Continuer); !ok {
				t.Fatal("a router over a continuer is none")
			}
			return r.Model()
		})
	})
}

// goesOn makes a Continuer from a model that always gives the same answer.
type goesOn struct{ model.Model }

func (g goesOn) Continue(ctx context.Context, req *model.Request, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	res, err := g.Generate(ctx, req, nil)
	if err != nil {
		return nil, err
	}
	text := res.Message.Content
	if len(told) > len(text) || text[:len(told)] != told {
		return nil, model.ErrNotContinued
	}
	if rest := text[len(told):]; onDelta != nil && rest != "" {
		if err := onDelta(model.Delta{Text: rest}); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func TestRouterWithoutContinuerIsNone(t *testing.T) {
	t.Parallel()
	r, err := New([]Route{{Provider: "p", Model: "m", M: modeltest.New()}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Model().(model.Continuer); ok {
		t.Error("nobody can continue")
	}
}

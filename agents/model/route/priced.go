package route

import (
	"context"

	"github.com/aeemesh/aeemesh/agents/model"
)

// Priced wraps a model that is not routed, so that its turns have the cost that facts
// say, as those of a route do. It is a [model.Continuer] if m is.
func Priced(facts Facts, m model.Model) model.Model {
	p := priced{m, facts}
	if c, ok := m.(model.Continuer); ok {
		return pricedContinuer{p, c}
	}
	return p
}

type priced struct {
	m     model.Model
	facts Facts
}

func (p priced) cost(res *model.Response, err error) (*model.Response, error) {
	if err == nil {
		res.Cost, res.Priced = p.facts.Cost(res.Usage)
	}
	return res, err
}

// Generate calls the model's Generate, and adds the cost.
func (p priced) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	return p.cost(p.m.Generate(ctx, req, onDelta))
}

type pricedContinuer struct {
	priced
	c model.Continuer
}

// Continue calls the model's Continue, and adds the cost.
func (p pricedContinuer) Continue(ctx context.Context, req *model.Request, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	return p.cost(p.c.Continue(ctx, req, told, onDelta))
}

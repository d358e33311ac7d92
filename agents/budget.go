package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Budget is what runs may spend on models. A call that could break it is not
// made, and the run ends with E_BUDGET. Zero is no bound.
//
// What a call will use is not known before it is made, so it is taken to use as
// much as it can: the tokens of the conversation, by an estimate on the safe
// side, and the longest answer that it may get. Afterwards what it did use
// counts; where the provider does not say, an estimate of it. A try that failed
// counts nothing: its provider does not say.
type Budget struct {
	// RunTokens and RunUSD bound one run: one task, however many workers and
	// attempts it takes.
	RunTokens int64     `json:"run_tokens"`
	RunUSD    model.USD `json:"run_usd"`

	// TreeTokens and TreeUSD bound all runs of a tree together, whichever agents
	// they are of, and all runs of this agent with one corr, on all workers that
	// share [Options].Counters. Without these each process counts for itself.
	TreeTokens int64     `json:"tree_tokens"`
	TreeUSD    model.USD `json:"tree_usd"`
}

// Validate reports what is wrong with a budget.
func (b Budget) Validate() error {
	if b.RunTokens < 0 || b.TreeTokens < 0 || b.RunUSD < 0 || b.TreeUSD < 0 {
		return errors.New("budget: a bound cannot be negative")
	}
	return nil
}

// InDollars says that a budget has a bound in dollars. Under it no model is asked
// whose price is not known.
func (b Budget) InDollars() bool { return b.RunUSD > 0 || b.TreeUSD > 0 }

// DefaultAnswerTokens is how long an answer is taken to be of a model whose
// longest nobody knows, and which the document does not bound.
const DefaultAnswerTokens = 4096

// treasury keeps the books of one agent's runs.
type treasury struct {
	budget   Budget
	counters Counters // of trees, for all workers; nil: nobody counts them
	local    *localCounters
	log      *slog.Logger
}

func newTreasury(opts Options) *treasury {
	t := &treasury{budget: opts.Budget, counters: opts.Counters, local: &localCounters{}, log: opts.Logger}
	return t.within(0, 0)
}

// within is t for runs of a tree that may use no more than so many tokens and
// dollars, and no more than the operator allows; 0: that.
func (t *treasury) within(tokens int64, usd model.USD) *treasury {
	own := *t
	if b := &own.budget; tokens > 0 && (b.TreeTokens == 0 || tokens < b.TreeTokens) {
		b.TreeTokens = tokens
	}
	if b := &own.budget; usd > 0 && (b.TreeUSD == 0 || usd < b.TreeUSD) {
		b.TreeUSD = usd
	}
	if own.counters == nil && (own.budget.TreeTokens > 0 || own.budget.TreeUSD > 0) {
		own.counters = own.local
	}
	return &own
}

// purchase is one turn of a model that is about to be asked for.
type purchase struct {
	t      *treasury
	ctx    context.Context
	corr   string
	counts []mesh.Counter
	used   *state.Usage

	input  int64 // tokens, about
	answer int64 // at most, by the document; 0: it does not say

	price  model.Price // of the call that is made
	tokens int64       // set aside for the tree
	cost   model.USD   // likewise
}

// buy begins a turn: Admit is to be asked before each call, and pay or back told
// when it is over.
func (t *treasury) buy(ctx context.Context, task *mesh.Task, used *state.Usage, input int, req *model.Request) *purchase {
	counts := task.Counters()
	if counts == nil { // no worker has taken it in
		counts = []mesh.Counter{{Owner: task.Envelope.To, ID: task.Envelope.Corr}}
	}
	return &purchase{t: t, ctx: ctx, corr: task.Envelope.Corr, counts: counts, used: used, input: int64(input), answer: int64(req.Params.MaxTokens)}
}

// admit holds what a call may cost against the budgets, and sets it aside.
func (p *purchase) admit(price model.Price) error {
	p.back() // of a route before this one
	p.price = price
	b := p.t.budget
	if b == (Budget{}) {
		return nil
	}
	answer := p.answer
	switch {
	case answer > 0 && price.MaxOutput > 0:
		answer = min(answer, price.MaxOutput)
	case answer > 0:
	case price.MaxOutput > 0:
		answer = price.MaxOutput
	default:
		answer = DefaultAnswerTokens
	}
	tokens, cost := p.input+answer, price.Input.For(p.input).Add(price.Output.For(answer))
	if b.InDollars() && !price.Known {
		return envelope.Errorf(envelope.CodeBudget, "there is a budget in dollars, and the model's price is not known here")
	}
	if spent := p.used.InputTokens + p.used.OutputTokens + p.used.EstimatedTokens; b.RunTokens > 0 && spent+tokens > b.RunTokens {
		return envelope.Errorf(envelope.CodeBudget, "the run has used %d tokens of %d, and the next call may use %d", spent, b.RunTokens, tokens)
	}
	if spent := model.USD(p.used.CostNanoUSD).Add(model.USD(p.used.EstimatedNanoUSD)); b.RunUSD > 0 && spent.Add(cost) > b.RunUSD {
		return envelope.Errorf(envelope.CodeBudget, "the run has cost $%s of $%s, and the next call may cost $%s", spent, b.RunUSD, cost)
	}
	if b.TreeTokens > 0 {
		total, err := p.count(tokens, 0)
		switch {
		case err != nil:
			return err
		case total.tokens > b.TreeTokens:
			p.back()
			return envelope.Errorf(envelope.CodeBudget, "the runs of this corr have used %d tokens of %d, and the next call may use %d", total.tokens-tokens, b.TreeTokens, tokens)
		}
	}
	if b.TreeUSD > 0 {
		total, err := p.count(0, cost)
		switch {
		case err != nil:
			return err
		case total.cost > b.TreeUSD:
			p.back()
			return envelope.Errorf(envelope.CodeBudget, "the runs of this corr have cost $%s of $%s, and the next call may cost $%s", total.cost-cost, b.TreeUSD, cost)
		}
	}
	return nil
}

// totals are a tree's.
type totals struct {
	tokens int64
	cost   model.USD
}

// count adds to what the tree has used, and sets it aside for this turn.
func (p *purchase) count(tokens int64, cost model.USD) (total totals, err error) {
	if total, err = p.t.add(p.ctx, p.counts, tokens, cost); err != nil {
		if p.ctx.Err() != nil {
			return total, p.ctx.Err()
		}
		return total, envelope.Errorf(envelope.CodeUnavailable, "what this corr has spent cannot be counted now: %w", err).WithBackoff(time.Second)
	}
	p.tokens, p.cost = p.tokens+tokens, p.cost+cost
	return total, nil
}

// add adds to some counters, and returns the highest totals; what is zero is not asked
// for.
func (t *treasury) add(ctx context.Context, counts []mesh.Counter, tokens int64, cost model.USD) (total totals, err error) {
	var errs []error
	for _, c := range counts {
		if tokens != 0 {
			n, err := t.addOne(ctx, tokens, c, mesh.CountTokens)
			total.tokens, errs = max(total.tokens, n), append(errs, err)
		}
		if cost != 0 {
			n, err := t.addOne(ctx, int64(cost), c, mesh.CountUSD)
			total.cost, errs = max(total.cost, model.USD(n)), append(errs, err)
		}
	}
	return total, errors.Join(errs...)
}

func (t *treasury) addOne(ctx context.Context, n int64, c mesh.Counter, kind string) (int64, error) {
	total, err := t.counters.Add(ctx, n, c.Owner, kind, c.ID)
	if errors.Is(err, ErrNoCounters) {
		return t.local.Add(ctx, n, c.Owner, kind, c.ID)
	}
	return total, err
}

// back gives back what was set aside for a call that was not made, or failed.
func (p *purchase) back() {
	if p.tokens == 0 && p.cost == 0 {
		return
	}
	if _, err := p.t.add(context.WithoutCancel(p.ctx), p.counts, -p.tokens, -p.cost); err != nil {
		p.t.log.Warn("what was set aside stays counted", "corr", p.corr, "tokens", p.tokens, "usd", p.cost.String(), "err", err)
	}
	p.tokens, p.cost = 0, 0
}

// pay writes a turn into the books: the run's, and the tree's.
func (p *purchase) pay(res *model.Response) {
	reporterFrom(p.ctx).spent(p.ctx, res)
	u := p.used
	u.ModelCalls++
	u.InputTokens += res.Usage.InputTokens
	u.OutputTokens += res.Usage.OutputTokens
	tokens, cost := res.Usage.InputTokens+res.Usage.OutputTokens, res.Cost
	switch {
	case res.Usage == (model.Usage{}) && p.t.budget != (Budget{}): // nobody counts, and the budget holds all the same
		answer := int64(estimate(&res.Message))
		tokens, cost = p.input+answer, p.price.Input.For(p.input).Add(p.price.Output.For(answer))
		u.EstimatedTokens += tokens
		u.EstimatedNanoUSD = int64(model.USD(u.EstimatedNanoUSD).Add(cost))
	case res.Priced:
		u.CostNanoUSD = int64(model.USD(u.CostNanoUSD).Add(res.Cost))
	case res.Usage != (model.Usage{}):
		u.UnpricedCalls++
	}
	if p.t.counters == nil {
		return
	}
	total, err := p.t.add(context.WithoutCancel(p.ctx), p.counts, tokens-p.tokens, cost-p.cost)
	if err != nil {
		p.t.log.Warn("a turn was not counted", "corr", p.corr, "tokens", tokens, "usd", cost.String(), "err", err)
		return
	}
	p.tokens, p.cost = 0, 0
	if total.tokens > 0 {
		u.TreeTokens = total.tokens
	}
	if total.cost > 0 {
		u.TreeCostNanoUSD = int64(total.cost)
	}
}

// toldUsage is a run's usage as the bus tells it.
func toldUsage(u state.Usage) json.RawMessage {
	raw, err := json.Marshal(u)
	if err != nil {
		panic(fmt.Sprintf("agents: usage cannot be written: %v", err)) // it is numbers
	}
	return raw
}

// Asking is a model whose every call is admitted first, at a price; see
// [model.Request].Admit. Who chooses among models asks by himself, for each.
func Asking(price model.Price, m model.Model) model.Model {
	a := asked{m, price}
	if c, ok := m.(model.Continuer); ok {
		return askedContinuer{a, c}
	}
	return a
}

type asked struct {
	m     model.Model
	price model.Price
}

func (a asked) admit(req *model.Request) (*model.Request, error) {
	if req == nil || req.Admit == nil {
		return req, nil
	}
	if err := req.Admit(a.price); err != nil {
		return nil, err
	}
	admitted := *req
	admitted.Admit = nil
	return &admitted, nil
}

// Generate is the model's own, if it is admitted.
func (a asked) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	req, err := a.admit(req)
	if err != nil {
		return nil, err
	}
	return a.m.Generate(ctx, req, onDelta)
}

type askedContinuer struct {
	asked
	c model.Continuer
}

// Continue is the model's own, if it is admitted.
func (a askedContinuer) Continue(ctx context.Context, req *model.Request, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	req, err := a.admit(req)
	if err != nil {
		return nil, err
	}
	return a.c.Continue(ctx, req, told, onDelta)
}

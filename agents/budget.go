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

// Budget limits what runs may spend on models. A call that could exceed it is
// not made, and the run ends with E_BUDGET. Zero means no limit.
//
// The usage of a call is not known before the call is made, so the maximum is
// reserved: a conservative estimate of the conversation's tokens, and the
// longest answer that the call may get. After the call its actual usage counts,
// or an estimate if the provider does not report usage. A failed try counts as
// nothing, because its provider reports no usage.
type Budget struct {
	// RunTokens and RunUSD limit one run: one task, over all its workers and
	// attempts.
	RunTokens int64     `json:"run_tokens"`
	RunUSD    model.USD `json:"run_usd"`

	// TreeTokens and TreeUSD limit all runs of a tree together, whichever
	// agents they belong to, and all runs of this agent with one corr, on all
	// workers that share [Options].Counters. Without shared counters each
	// process counts for itself.
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

// InDollars reports whether a budget has a limit in dollars. Under such a
// budget a model without a known price is not called.
func (b Budget) InDollars() bool { return b.RunUSD > 0 || b.TreeUSD > 0 }

// DefaultAnswerTokens is the assumed length of an answer if the model's maximum is not known and
// the document sets no limit. Adapters whose API requires a limit request this one.
const DefaultAnswerTokens = 8192

// treasury accounts for the spending of one agent's runs.
type treasury struct {
	budget   Budget
	counters Counters // of trees, shared by all workers; nil: there are none
	local    *localCounters
	log      *slog.Logger
}

func newTreasury(opts Options) *treasury {
	t := &treasury{budget: opts.Budget, counters: opts.Counters, local: &localCounters{}, log: opts.Logger}
	return t.within(0, 0)
}

// within returns t with a tree limit of at most so many tokens and dollars,
// which can only lower the operator's own limit; 0 leaves that as it is.
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

// purchase is the cost of one turn of a model that is about to be requested.
type purchase struct {
	t      *treasury
	ctx    context.Context
	corr   string
	counts []mesh.Counter
	used   *state.Usage

	input  int64 // estimated tokens of the request
	answer int64 // the document's limit for the answer in tokens; 0: none

	price  model.Price // of the route that is being called
	tokens int64       // reserved in the tree's counters
	cost   model.USD   // reserved in the tree's counters
}

// beginTurn begins a turn. Call admit before each call of a model, within during; call pay after the
// call that succeeded.
func (t *treasury) beginTurn(ctx context.Context, task *mesh.Task, used *state.Usage, input int, req *model.Request) *purchase {
	counts := task.Counters()
	if counts == nil { // no node has admitted the task, so it has no counters
		counts = []mesh.Counter{{Owner: task.Envelope.To, ID: task.Envelope.Corr}}
	}
	return &purchase{t: t, ctx: ctx, corr: task.Envelope.Corr, counts: counts, used: used, input: int64(input), answer: int64(req.Params.MaxTokens)}
}

// admit checks the most that a call may cost against the budgets, and reserves
// it.
func (p *purchase) admit(price model.Price) error {
	p.back() // release the reservation of the route that was tried before
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

// totals are the tree's counters: tokens and dollars.
type totals struct {
	tokens int64
	cost   model.USD
}

// count adds to the tree's counters and records the amount as reserved by this
// turn. If one of the counters fails, nothing stays counted on the others.
func (p *purchase) count(tokens int64, cost model.USD) (totals, error) {
	var total totals
	for i := range p.counts {
		one, err := p.t.add(p.ctx, p.counts[i:i+1], tokens, cost)
		if err != nil {
			return totals{}, p.uncounted(i, tokens, cost, err)
		}
		total.tokens, total.cost = max(total.tokens, one.tokens), max(total.cost, one.cost)
	}
	p.tokens, p.cost = p.tokens+tokens, p.cost+cost
	return total, nil
}

// uncounted takes back what count added before the i-th counter failed, and returns the
// error of count.
func (p *purchase) uncounted(i int, tokens int64, cost model.USD, err error) error {
	if errors.Is(err, state.ErrUncertain) {
		p.t.log.Warn("what was set aside may stay counted", "corr", p.corr, "owner", p.counts[i].Owner, "tokens", tokens, "usd", cost.String(), "err", err)
	}
	p.release(p.counts[:i], tokens, cost)
	if p.ctx.Err() != nil {
		return p.ctx.Err()
	}
	return envelope.Errorf(envelope.CodeUnavailable, "what this corr has spent cannot be counted now: %w", err).WithBackoff(time.Second)
}

// add adds to several counters and returns the highest totals. A counter whose
// amount is zero is not touched.
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

// back releases the reservation of a call that was not made or that failed.
func (p *purchase) back() {
	if p.tokens == 0 && p.cost == 0 {
		return
	}
	p.release(p.counts, p.tokens, p.cost)
	p.tokens, p.cost = 0, 0
}

// during calls a model, and releases what admit has reserved for it if it fails or panics.
func (p *purchase) during(call func() (*model.Response, error)) (res *model.Response, err error) {
	failed := true
	defer func() {
		if failed {
			p.back()
		}
	}()
	res, err = call()
	failed = err != nil
	return res, err
}

// releaseTime bounds the release of a reservation.
const releaseTime = 10 * time.Second

// release subtracts from counters what was reserved in them.
func (p *purchase) release(counts []mesh.Counter, tokens int64, cost model.USD) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), releaseTime)
	defer cancel()
	if _, err := p.t.add(ctx, counts, -tokens, -cost); err != nil {
		p.t.log.Warn("what was set aside stays counted", "corr", p.corr, "tokens", tokens, "usd", cost.String(), "err", err)
	}
}

// pay charges a turn's usage to the run and to the tree.
func (p *purchase) pay(res *model.Response) {
	reporterFrom(p.ctx).spent(p.ctx, res)
	u := p.used
	u.ModelCalls++
	u.InputTokens += res.Usage.InputTokens
	u.OutputTokens += res.Usage.OutputTokens
	tokens, cost := res.Usage.InputTokens+res.Usage.OutputTokens, res.Cost.Believable()
	switch {
	case res.Usage == (model.Usage{}) && p.t.budget != (Budget{}): // the provider reports no usage, and the budget still applies
		answer := int64(estimate(&res.Message))
		tokens, cost = p.input+answer, p.price.Input.For(p.input).Add(p.price.Output.For(answer))
		u.EstimatedTokens += tokens
		u.EstimatedNanoUSD = addCost(u.EstimatedNanoUSD, cost)
	case res.Priced:
		u.CostNanoUSD = addCost(u.CostNanoUSD, cost)
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
		u.TreeCostNanoUSD = int64(total.cost.Believable())
	}
}

func addCost(nano int64, cost model.USD) int64 {
	return int64(model.USD(nano).Add(cost).Believable())
}

// toldUsage is a run's usage as it is published on the bus.
func toldUsage(u state.Usage) json.RawMessage {
	raw, err := json.Marshal(u)
	if err != nil {
		panic(fmt.Sprintf("agents: usage cannot be written: %v", err)) // numbers always marshal
	}
	return raw
}

// Asking wraps a model so that each of its calls is admitted first, at a price (see
// [model.Request].Admit), and its usage gets a cost; cost may be nil. A model that routes between
// models does both itself, once for each route.
func Asking(price model.Price, cost func(model.Usage) (model.USD, bool), m model.Model) model.Model {
	a := asked{m, price, cost}
	if c, ok := m.(model.Continuer); ok {
		return askedContinuer{a, c}
	}
	return a
}

type asked struct {
	m     model.Model
	price model.Price
	cost  func(model.Usage) (model.USD, bool)
}

func (a asked) priced(res *model.Response, err error) (*model.Response, error) {
	if err == nil && a.cost != nil {
		res.Cost, res.Priced = a.cost(res.Usage)
	}
	return res, err
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

// Generate calls the model's Generate if the call is admitted.
func (a asked) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	req, err := a.admit(req)
	if err != nil {
		return nil, err
	}
	return a.priced(a.m.Generate(ctx, req, onDelta))
}

type askedContinuer struct {
	asked
	c model.Continuer
}

// Continue calls the model's Continue if the call is admitted.
func (a askedContinuer) Continue(ctx context.Context, req *model.Request, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	req, err := a.admit(req)
	if err != nil {
		return nil, err
	}
	return a.priced(a.c.Continue(ctx, req, told, onDelta))
}

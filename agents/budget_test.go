package agents

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

var cents = model.Price{Input: model.Dollar / 100, Output: model.Dollar / 50, Known: true, MaxOutput: 1000} // of a thousand tokens

func books(b Budget, c Counters) *treasury {
	return newTreasury(Options{Budget: b, Counters: c, Logger: slog.New(slog.DiscardHandler)})
}

func answered(in, out int64) *model.Response {
	return &model.Response{Usage: model.Usage{InputTokens: in, OutputTokens: out}, Cost: cents.Input.For(in).Add(cents.Output.For(out)), Priced: true}
}

// A call is made only if it stays within the budgets whatever it uses, and what
// it did use counts.
func TestABudgetStopsBeforeTheCallThatWouldBreakIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		budget Budget
		price  model.Price
		answer int // the document's max_tokens
		calls  int // of 1000 tokens in and at most 1000 out, that use 1000 and 100
		words  string
	}{
		"no budget":                {calls: 100, price: cents},
		"tokens of a run":          {budget: Budget{RunTokens: 5000}, price: cents, calls: 3, words: "used 3300 tokens of 5000, and the next call may use 2000"},
		"exactly":                  {budget: Budget{RunTokens: 2000}, price: cents, calls: 1, words: "used 1100 tokens of 2000"},
		"shorter answers":          {budget: Budget{RunTokens: 5000}, price: cents, answer: 200, calls: 4, words: "used 4400"},
		"unknown longest answer":   {budget: Budget{RunTokens: 9192}, price: model.Price{}, calls: 1, words: "may use 9192"},
		"dollars of a run":         {budget: Budget{RunUSD: model.Dollar / 20}, price: cents, calls: 2, words: "cost $0.024 of $0.05, and the next call may cost $0.03"},
		"no price, and dollars":    {budget: Budget{RunUSD: model.Dollar}, price: model.Price{}, calls: 0, words: "price is not known"},
		"no price, and tokens":     {budget: Budget{RunTokens: 4000}, price: model.Price{MaxOutput: 1000}, calls: 2, words: "used 2200 tokens"},
		"tokens of a tree":         {budget: Budget{TreeTokens: 5000}, price: cents, calls: 3, words: "runs of this corr have used 3300 tokens of 5000"},
		"dollars of a tree":        {budget: Budget{TreeUSD: model.Dollar / 20}, price: cents, calls: 2, words: "runs of this corr have cost $0.024 of $0.05"},
		"free models cost nothing": {budget: Budget{RunUSD: 1}, price: model.Price{Known: true}, calls: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := books(c.budget, new(localCounters))
			var used state.Usage
			req := &model.Request{Params: model.Params{MaxTokens: c.answer}}
			for i := 0; ; i++ {
				p := b.beginTurn(t.Context(), taskOf("corr"), &used, 1000, req)
				err := p.admit(c.price)
				if i == c.calls && c.words != "" {
					var e *envelope.Error
					if !errors.As(err, &e) || e.Code != envelope.CodeBudget || e.Retryable || !strings.Contains(e.Message, c.words) {
						t.Errorf("after %d calls: %v, want %s", i, err, c.words)
					}
					break
				}
				if err != nil {
					t.Fatalf("call %d: %v", i+1, err)
				}
				if i == 100 {
					break
				}
				res := answered(1000, 100)
				if !c.price.Known {
					res.Cost, res.Priced = 0, false
				}
				if c.price.Known && c.price.Input == 0 {
					res.Cost = 0
				}
				p.pay(res)
			}
		})
	}
}

// However many runs of one corr make calls at the same time, together they stay
// within the tree's budget; the reservation for a failed call is released.
func TestATreesBudgetHoldsForAllRuns(t *testing.T) {
	t.Parallel()
	shared := new(localCounters)
	var wg sync.WaitGroup
	for range 8 {
		b := books(Budget{TreeTokens: 50_000}, shared)
		wg.Go(func() {
			var used state.Usage
			for i := 0; ; i++ {
				p := b.beginTurn(t.Context(), taskOf("corr"), &used, 1000, &model.Request{})
				if p.admit(cents) != nil {
					return
				}
				if i%3 == 0 {
					p.back()
					continue
				}
				p.pay(answered(1000, 1000))
			}
		})
	}
	wg.Wait()
	total, err := shared.Add(t.Context(), 0, "agent.x", mesh.CountTokens, "corr")
	if err != nil || total > 50_000 || total < 36_000 {
		t.Errorf("spent %d of 50000, %v", total, err)
	}
	if other, _ := shared.Add(t.Context(), 0, "agent.x", mesh.CountTokens, "another"); other != 0 {
		t.Errorf("another corr has spent %d", other)
	}
}

// The usage of the run and of the tree is counted.
func TestUsageOfTheRunAndTheTreeIsCounted(t *testing.T) {
	t.Parallel()
	shared := new(localCounters)
	a, b := books(Budget{}, shared), books(Budget{}, shared)
	var one, two state.Usage
	a.beginTurn(t.Context(), taskOf("corr"), &one, 10, &model.Request{}).pay(answered(1000, 500))
	b.beginTurn(t.Context(), taskOf("corr"), &two, 10, &model.Request{}).pay(answered(2000, 0))
	b.beginTurn(t.Context(), taskOf("corr"), &two, 10, &model.Request{}).pay(&model.Response{Usage: model.Usage{InputTokens: 5}})
	if want := (state.Usage{InputTokens: 1000, OutputTokens: 500, ModelCalls: 1, CostNanoUSD: 20_000_000, TreeTokens: 1500, TreeCostNanoUSD: 20_000_000}); one != want {
		t.Errorf("the first run\n got %+v\nwant %+v", one, want)
	}
	if want := (state.Usage{InputTokens: 2005, ModelCalls: 2, CostNanoUSD: 20_000_000, UnpricedCalls: 1, TreeTokens: 3505, TreeCostNanoUSD: 40_000_000}); two != want {
		t.Errorf("the second run\n got %+v\nwant %+v", two, want)
	}
	// Without counters there is no tree.
	var alone state.Usage
	books(Budget{}, nil).beginTurn(t.Context(), taskOf("corr"), &alone, 10, &model.Request{}).pay(answered(1, 1))
	if alone.TreeTokens != 0 || alone.InputTokens != 1 {
		t.Errorf("%+v", alone)
	}
}

// The budget applies even if the provider reports no usage, by an estimate; the
// bus gets only the counts.
func TestABudgetHoldsWithoutReportedUsage(t *testing.T) {
	t.Parallel()
	for name, budget := range map[string]Budget{"tokens of a run": {RunTokens: 5000}, "tokens of a tree": {TreeTokens: 5000}, "dollars of a run": {RunUSD: model.Dollar / 20}, "dollars of a tree": {TreeUSD: model.Dollar / 20}} {
		b := books(budget, new(localCounters))
		var used state.Usage
		calls := 0
		for ; calls < 100; calls++ {
			p := b.beginTurn(t.Context(), taskOf("corr"), &used, 1000, &model.Request{})
			if err := p.admit(cents); err != nil {
				break
			}
			p.pay(&model.Response{Message: model.Assistant(strings.Repeat("x", 400)), Priced: true})
		}
		if calls < 2 || calls > 4 {
			t.Errorf("%s: %d calls", name, calls)
		}
		if used.InputTokens != 0 || used.CostNanoUSD != 0 || used.EstimatedTokens < 1000*int64(calls) || used.EstimatedNanoUSD == 0 {
			t.Errorf("%s: %+v", name, used)
		}
	}
	var used state.Usage
	books(Budget{}, nil).beginTurn(t.Context(), taskOf("corr"), &used, 1000, &model.Request{}).pay(&model.Response{Message: model.Assistant("x")})
	if want := (state.Usage{ModelCalls: 1}); used != want {
		t.Errorf("without a budget: %+v", used)
	}
}

// counter is the counter that a meter made, for a test.
type counter struct {
	metricnoop.Float64Counter
	name  string
	total float64
	by    attribute.Set
}

func (c *counter) Add(_ context.Context, n float64, o ...metric.AddOption) {
	c.total += n
	c.by = metric.NewAddConfig(o).Attributes()
}

type meter struct {
	metricnoop.Meter
	made *counter
}

func (m meter) Float64Counter(name string, _ ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	m.made.name = name
	return m.made, nil
}

type meters struct {
	metricnoop.MeterProvider
	made *counter
}

func (p meters) Meter(string, ...metric.MeterOption) metric.Meter { return meter{made: p.made} }

// What turns cost is a metric, by provider and model.
func TestCostIsMeasured(t *testing.T) {
	t.Parallel()
	m := new(counter)
	r := &reporter{agent: "Clerk"}
	if err := r.instruments(meters{made: m}); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithValue(t.Context(), reporterOfRun{}, r)
	var used state.Usage
	for _, res := range []*model.Response{answered(1000, 500), answered(1000, 0), {Usage: model.Usage{InputTokens: 5}}} {
		res.Provider, res.Model = "google", "gemini-x"
		books(Budget{}, nil).beginTurn(ctx, taskOf("corr"), &used, 10, &model.Request{}).pay(res)
	}
	want := attribute.NewSet(attribute.String("gen_ai.provider.name", "gcp.gemini"), attribute.String("gen_ai.response.model", "gemini-x"), attribute.String("gen_ai.agent.name", "Clerk"))
	if m.name != "aaif.agent.llm_call.cost" || m.total < 0.02999 || m.total > 0.03001 || !m.by.Equals(&want) {
		t.Errorf("%s %v by %v", m.name, m.total, m.by.ToSlice())
	}
}

type nobodysCounters struct{}

func (nobodysCounters) Add(context.Context, int64, string, string, ...string) (int64, error) {
	return 0, ErrNoCounters
}

// Without shared counters each process counts for itself.
func TestATreesBudgetWithoutCounters(t *testing.T) {
	t.Parallel()
	for _, c := range []Counters{nil, nobodysCounters{}} {
		var used state.Usage
		b := books(Budget{TreeTokens: 3000}, c)
		p := b.beginTurn(t.Context(), taskOf("corr"), &used, 1000, &model.Request{})
		if err := p.admit(cents); err != nil {
			t.Fatal(err)
		}
		p.pay(answered(1000, 1000))
		var e *envelope.Error
		if err := b.beginTurn(t.Context(), taskOf("corr"), &used, 1000, &model.Request{}).admit(cents); !errors.As(err, &e) || e.Code != envelope.CodeBudget {
			t.Errorf("%v", err)
		}
	}
}

// If the counters fail, no call is made.
func TestABudgetThatCannotBeCounted(t *testing.T) {
	t.Parallel()
	var used state.Usage
	b := books(Budget{TreeTokens: 1 << 20}, brokenCounters{})
	err := b.beginTurn(t.Context(), taskOf("corr"), &used, 10, &model.Request{}).admit(cents)
	var e *envelope.Error
	if !errors.As(err, &e) || e.Code != envelope.CodeUnavailable || !e.Retryable {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.beginTurn(ctx, taskOf("corr"), &used, 10, &model.Request{}).admit(cents); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A tree's limit can lower the operator's limit, but not raise it.
func TestBudgetOfATreeIsTheLowest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ own, tree, want int64 }{{0, 0, 0}, {0, 5, 5}, {9, 0, 9}, {9, 5, 5}, {5, 9, 5}} {
		b := books(Budget{TreeTokens: c.own, TreeUSD: model.USD(c.own)}, nil)
		got := b.within(c.tree, model.USD(c.tree))
		if got.budget.TreeTokens != c.want || int64(got.budget.TreeUSD) != c.want || b.budget.TreeTokens != c.own || (got.counters == nil) != (c.want == 0) {
			t.Errorf("own %d, tree %d: %+v", c.own, c.tree, got.budget)
		}
	}
}

// taskOf makes a task of a corr that was not admitted by a node.
func taskOf(corr string) *mesh.Task {
	e := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "agent.x.run", nil)
	e.Corr = corr
	return &mesh.Task{Envelope: e}
}

// patchyCounters fail for one owner as often as fails says, and cannot take anything
// back if stuck is set.
type patchyCounters struct {
	localCounters
	owner string
	fails int
	err   error
	first func() // called before a failure; may be nil
	stuck bool
}

func (c *patchyCounters) Add(ctx context.Context, n int64, owner, kind string, ids ...string) (int64, error) {
	if owner == c.owner && c.fails > 0 {
		c.fails--
		if c.first != nil {
			c.first()
		}
		return 0, c.err
	}
	if n < 0 && c.stuck {
		return 0, errors.New("cannot take back")
	}
	return c.localCounters.Add(ctx, n, owner, kind, ids...)
}

// If one of a tree's counters fails, nothing stays counted on the others.
func TestAReservationThatFailsOnOneCounterLeavesNothingOnTheOthers(t *testing.T) {
	t.Parallel()
	counts := []mesh.Counter{{Owner: "agent.one", ID: "tree"}, {Owner: "agent.two", ID: "corr"}, {Owner: "agent.three", ID: "corr"}}
	for name, c := range map[string]struct {
		budget Budget
		err    error
		stuck  bool
		log    string // a part of what is logged; "": nothing
	}{
		"tokens":            {budget: Budget{TreeTokens: 1 << 20}, err: errors.New("away")},
		"dollars":           {budget: Budget{TreeUSD: model.Dollar}, err: errors.New("away")},
		"uncertain":         {budget: Budget{TreeTokens: 1 << 20}, err: state.ErrUncertain, log: "what was set aside may stay counted"},
		"cannot be undone":  {budget: Budget{TreeTokens: 1 << 20}, err: errors.New("away"), stuck: true, log: "what was set aside stays counted"},
		"tokens before USD": {budget: Budget{TreeTokens: 1 << 20, TreeUSD: model.Dollar}, err: errors.New("away")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := &patchyCounters{owner: "agent.two", fails: 1, err: c.err, stuck: c.stuck}
			var log strings.Builder
			b := newTreasury(Options{Budget: c.budget, Counters: shared, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			var used state.Usage
			buy := func() *purchase {
				p := b.beginTurn(t.Context(), taskOf("corr"), &used, 1000, &model.Request{})
				p.counts = counts
				return p
			}
			p := buy()
			var e *envelope.Error
			if err := p.admit(cents); !errors.As(err, &e) || e.Code != envelope.CodeUnavailable {
				t.Fatal(err)
			}
			p.back()
			if c.log == "" && log.Len() > 0 || !strings.Contains(log.String(), c.log) {
				t.Errorf("logged %q, want %q", log.String(), c.log)
			}
			if c.stuck {
				return
			}
			p = buy()
			if err := p.admit(cents); err != nil {
				t.Fatal(err)
			}
			p.pay(answered(1000, 100))
			for _, c := range counts {
				tokens, _ := shared.Add(t.Context(), 0, c.Owner, mesh.CountTokens, c.ID)
				usd, _ := shared.Add(t.Context(), 0, c.Owner, mesh.CountUSD, c.ID)
				if tokens != 1100 || model.USD(usd) != answered(1000, 100).Cost {
					t.Errorf("%s has counted %d tokens and $%s", c.Owner, tokens, model.USD(usd))
				}
			}
		})
	}
}

// What was reserved is released also if the task ends while it is reserved.
func TestAReservationThatIsCutOffLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	shared := &patchyCounters{owner: "agent.two", fails: 1, err: context.Canceled, first: cancel}
	var used state.Usage
	p := books(Budget{TreeTokens: 1 << 20}, shared).beginTurn(ctx, taskOf("corr"), &used, 1000, &model.Request{})
	p.counts = []mesh.Counter{{Owner: "agent.one", ID: "tree"}, {Owner: "agent.two", ID: "corr"}}
	if err := p.admit(cents); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	p.back()
	if tokens, err := shared.Add(t.Context(), 0, "agent.one", mesh.CountTokens, "tree"); tokens != 0 || err != nil {
		t.Errorf("%d tokens stay counted, %v", tokens, err)
	}
}

package route_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/route"
)

func usd(s string) *model.USD {
	u, err := model.ParseUSD(s)
	if err != nil {
		panic(err)
	}
	return &u
}

func catalog(t *testing.T, text string) *route.Catalog {
	t.Helper()
	c, err := route.ReadCatalog([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBuiltinCatalogue(t *testing.T) {
	t.Parallel()
	c := route.Builtin()
	providers := map[string]int{}
	for _, e := range c.Entries {
		providers[e.Provider]++
		if e.Input != nil && *e.Input > model.Dollar/10 || e.Output != nil && *e.Output > model.Dollar/2 {
			t.Errorf("%s/%s costs more than any model: is the price that of a million?", e.Provider, e.Model)
		}
		if e.ContextTokens != 0 && (e.ContextTokens < 4096 || e.MaxOutputTokens > e.ContextTokens) {
			t.Errorf("%s/%s: window %d, output %d", e.Provider, e.Model, e.ContextTokens, e.MaxOutputTokens)
		}
	}
	for _, p := range aaif.Providers() {
		if p != aaif.ProviderCustom && providers[string(p)] == 0 {
			t.Errorf("nothing is known of %s", p)
		}
	}
	f := c.Lookup("openai", "gpt-4o")
	if f.ContextTokens != 128000 || *f.Input != *usd("0.0025") || *f.Output != *usd("0.01") {
		t.Errorf("gpt-4o: %+v", f)
	}
}

func TestCatalogueFindsDatedNames(t *testing.T) {
	t.Parallel()
	c := catalog(t, `{"date": "2026-01-02", "models": [
		{"provider": "openai", "model": "gpt-4o", "quality": 1},
		{"provider": "openai", "model": "gpt-4o-2024-05-13", "quality": 2},
		{"provider": "openai", "model": "gpt-4o-*", "quality": 3},
		{"provider": "openai", "model": "gpt-*-mini*", "quality": 4},
		{"provider": "x", "model": "*", "quality": 5},
		{"provider": "anthropic", "model": "claude-sonnet-4", "quality": 6},
		{"provider": "bedrock", "model": "*anthropic.claude-opus-5-v*", "quality": 7}]}`)
	for name, want := range map[string]float64{
		"openai gpt-4o":                           1,
		"openai gpt-4o-2024-08-06":                1,
		"openai gpt-4o-latest":                    1,
		"openai gpt-4o-2024-05-13":                2,
		"openai gpt-4o-audio":                     3,
		"openai gpt-4o-mini":                      4, // the longer pattern
		"openai gpt-5-mini-2026-01-01":            4,
		"openai gpt-5":                            0,
		"anthropic claude-sonnet-4-20250514":      6,
		"anthropic claude-sonnet-4@20250514":      6,
		"anthropic claude-sonnet-4-5":             0, // another model, not a date
		"bedrock us.anthropic.claude-opus-5-v1:0": 7,
		"x anything/at:all":                       5,
		"nobody gpt-4o":                           0,
	} {
		provider, model, _ := strings.Cut(name, " ")
		if got := c.Lookup(provider, model).Quality; got != want {
			t.Errorf("%s: entry %v, want %v", name, got, want)
		}
	}
}

func TestOperatorsCatalogueOverridesAndExtends(t *testing.T) {
	t.Parallel()
	base := catalog(t, `{"date": "2026-01-01", "models": [
		{"provider": "openai", "model": "gpt-4o", "context_tokens": 128000, "input_usd_per_1k": 0.0025, "output_usd_per_1k": 0.01, "cached_input_usd_per_1k": 0.00125, "quality": 60},
		{"provider": "ollama", "model": "*", "input_usd_per_1k": 0, "output_usd_per_1k": 0}]}`)
	own := catalog(t, `{"date": "2026-02-01", "models": [
		{"provider": "openai", "model": "gpt-4o", "input_usd_per_1k": 0.002, "output_usd_per_1k": 0.008},
		{"provider": "ollama", "model": "llama3.1", "context_tokens": 32768},
		{"provider": "lab", "model": "small", "context_tokens": 4096}]}`)
	c := base.With(own)
	if f := c.Lookup("openai", "gpt-4o"); f.ContextTokens != 128000 || *f.Input != *usd("0.002") || f.CachedInput != nil || f.Quality != 60 {
		t.Errorf("overridden: %+v", f)
	}
	if f := c.Lookup("ollama", "llama3.1"); f.ContextTokens != 32768 || f.Input == nil || *f.Input != 0 {
		t.Errorf("a pattern's facts hold where the operator says nothing: %+v", f)
	}
	if f := c.Lookup("lab", "small"); f.ContextTokens != 4096 {
		t.Errorf("extended: %+v", f)
	}
	if c.Date != "2026-02-01" || len(c.Entries) != 4 {
		t.Errorf("date %s, %d entries", c.Date, len(c.Entries))
	}
	if f := base.Lookup("openai", "gpt-4o"); *f.Input != *usd("0.0025") {
		t.Error("the catalogue below was changed")
	}
}

func TestCatalogueIsStrict(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                              "catalogue",
		`[]`:                            "catalogue",
		`{"date": "soon"}`:              "date",
		`{"date": "2026-01-01", "x":1}`: "x",
		`{"date": "2026-01-01", "models": [{"provider": "a"}]}`:                                                                  "models[0]: provider and model",
		`{"date": "2026-01-01", "models": [{"provider": "a", "model": "b"}, {"provider": "a", "model": "b"}]}`:                   "models[1]: a/b is there twice",
		`{"date": "2026-01-01", "models": [{"provider": "a", "model": "b", "context_tokens": -1}]}`:                              "models[0]",
		`{"date": "2026-01-01", "models": [{"provider": "a", "model": "b", "input_usd_per_1k": 1}]}`:                             "one of input goes with",
		`{"date": "2026-01-01", "models": [{"provider": "a", "model": "b", "input_usd_per_1k": -1, "output_usd_per_1k": 1}]}`:    "negative",
		`{"date": "2026-01-01", "models": [{"provider": "a", "model": "b", "price": 1}]}`:                                        "price",
		`{"date": "2026-01-01", "models": [{"provider": "a", "model": "b", "input_usd_per_1k": "1", "output_usd_per_1k": "1"}]}`: "dollars",
	} {
		if _, err := route.ReadCatalog([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	f := route.Facts{Input: usd("0.003"), Output: usd("0.015"), CachedInput: usd("0.0003"), CacheWrite: usd("0.00375"),
		Long: &route.Long{Above: 200_000, Input: usd("0.006"), Output: usd("0.0225")}}
	for want, u := range map[string]model.Usage{
		"0":         {},
		"0.0045":    {InputTokens: 1000, OutputTokens: 100},
		"0.00315":   {InputTokens: 1000, OutputTokens: 100, CachedInputTokens: 500},
		"0.0046875": {InputTokens: 1000, OutputTokens: 200, CachedInputTokens: 500, CacheWriteTokens: 50},
		"0.0003":    {InputTokens: 1000, CachedInputTokens: 5000}, // a count above the total gives no discount
		"0.6":       {InputTokens: 200_000},
		"1.200006":  {InputTokens: 200_001},
	} {
		if got, ok := f.Cost(u); !ok || got.String() != want {
			t.Errorf("%+v costs %s, %v, want %s", u, got, ok, want)
		}
	}
	if _, ok := (route.Facts{}).Cost(model.Usage{InputTokens: 1}); ok {
		t.Error("a cost without a price")
	}
}

// A budget reserves what a call may cost at most: input that is written to the
// cache of a long request costs the most.
func TestPriceIsTheHighest(t *testing.T) {
	t.Parallel()
	f := route.Facts{Input: usd("0.003"), Output: usd("0.015"), CacheWrite: usd("0.00375"), MaxOutputTokens: 100,
		Long: &route.Long{Above: 200_000, Input: usd("0.006"), Output: usd("0.0225"), CacheWrite: usd("0.0075")}}
	if got, want := f.Price(), (model.Price{Known: true, Input: *usd("0.0075"), Output: *usd("0.0225"), MaxOutput: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (route.Facts{}).Price(); got != (model.Price{}) {
		t.Errorf("a price of nothing: %+v", got)
	}
}

// An operator may state the prices of the cache only, as of a contract.
func TestOperatorsCachePricesStay(t *testing.T) {
	t.Parallel()
	base := catalog(t, `{"date": "2026-01-01", "models": [
		{"provider": "a", "model": "m", "input_usd_per_1k": 0.003, "output_usd_per_1k": 0.015, "cached_input_usd_per_1k": 0.0003, "cache_write_usd_per_1k": 0.00375}]}`)
	for own, want := range map[string]string{
		`"cached_input_usd_per_1k": 0.001`:                          "0.003 0.015 0.001 0.00375",
		`"cache_write_usd_per_1k": 0.002`:                           "0.003 0.015 0.0003 0.002",
		`"context_tokens": 5`:                                       "0.003 0.015 0.0003 0.00375",
		`"cached_input_usd_per_1k": 0, "cache_write_usd_per_1k": 0`: "0.003 0.015 0 0",
	} {
		f := base.With(catalog(t, `{"date": "2026-01-01", "models": [{"provider": "a", "model": "m", `+own+`}]}`)).Lookup("a", "m")
		if got := fmt.Sprint(*f.Input, *f.Output, *f.CachedInput, *f.CacheWrite); got != want {
			t.Errorf("%s: %s, want %s", own, got, want)
		}
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	if !route.Matches("openai/gpt-4o", "openai", "gpt-4o-2024-08-06") || !route.Matches("gpt-4o", "openai", "gpt-4o-latest") || route.Matches("gpt-4o", "openai", "gpt-4o-mini") {
		t.Error("dated names")
	}
	for pattern, want := range map[string]bool{"openai/gpt-4o": true, "gpt-4o": true, "openai/*": true, "*4o": true, "gpt-4": false, "anthropic/*": false} {
		if got := route.Matches(pattern, "openai", "gpt-4o"); got != want {
			t.Errorf("%s: %v", pattern, got)
		}
	}
}

func FuzzReadCatalog(f *testing.F) {
	if data, err := os.ReadFile("catalog.json"); err == nil {
		f.Add(data[:min(len(data), 2000)])
	}
	f.Add([]byte(`{"date":"2026-01-01","models":[{"provider":"a","model":"*b*","input_usd_per_1k":1e-3,"output_usd_per_1k":0,"regions":["EU"],"long_input":{"above_tokens":1,"input_usd_per_1k":1,"output_usd_per_1k":1}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := route.ReadCatalog(data)
		if err != nil {
			return
		}
		for _, e := range c.Entries {
			if _, ok := c.Find(e.Provider, e.Model); !ok {
				t.Errorf("%s/%s is not found", e.Provider, e.Model)
			}
			cost, ok := c.Lookup(e.Provider, e.Model).Cost(model.Usage{InputTokens: 3, OutputTokens: 5})
			if ok && cost < 0 {
				t.Errorf("%s/%s costs %s", e.Provider, e.Model, cost)
			}
		}
		_ = slices.Clone(route.Builtin().With(c).Entries)
	})
}

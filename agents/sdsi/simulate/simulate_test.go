package simulate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/embedding/ngrams"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/agents/sdsi/simulate"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
)

func flight(t testing.TB) *template.Template {
	t.Helper()
	tpl, err := template.Parse([]byte(`{"schema_id":"f_v1","scenario":"f","keys":[{"key_name":"origin","key_type":"string","required":true,"semantic_description":"From where."}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// run simulates half a year, with 30,000 requests unless gen sets the number.
func run(t testing.TB, gen simulate.Generator, rules evolve.Config) *simulate.Report {
	t.Helper()
	if testing.Short() {
		t.Skip("it simulates half a year")
	}
	if gen.Requests == 0 {
		gen.Requests = 30_000
	}
	gen, err := gen.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(t.Context(), simulate.Config{Learn: learn.Config{Embedder: ngrams.Embedder{}, Rules: rules}, Template: flight(t)}, gen.Traffic(), &gen)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sorted sorts the words of a name, because the first wording of a wish is random.
func sorted(name string) string {
	words := strings.Split(name, "_")
	slices.Sort(words)
	return strings.Join(words, "_")
}

func states(r *simulate.Report, key string) string {
	var out []string
	for _, k := range r.Keys {
		if sorted(k.Name) == sorted(key) {
			for _, s := range k.Spans {
				out = append(out, string(s.State))
			}
		}
	}
	return strings.Join(out, " ")
}

// alwaysThere returns the keys of the lasting wishes in a report of the default wishes.
func alwaysThere(t *testing.T, r *simulate.Report) {
	t.Helper()
	for _, key := range []string{"window_seat", "vegetarian_meal", "suitcases"} {
		if got := states(r, key); got != "experimental stable" {
			t.Errorf("%s: %q", key, got)
		}
	}
}

// The promise of the draft: a common wish becomes a key, the key of a passing wish is withdrawn,
// and the template does not grow for ever.
func TestTheTemplateConverges(t *testing.T) {
	t.Parallel()
	r := run(t, simulate.Generator{}, evolve.Config{})
	alwaysThere(t, r)
	if got := states(r, "football_match_transfer"); got != "experimental stable deprecated withdrawn retired" {
		t.Errorf("a fashion: %q", got)
	}
	if got := states(r, "travelling_small_dog"); strings.Contains(got, "stable") || !strings.HasPrefix(got, "experimental deprecated withdrawn retired") {
		t.Errorf("a rare wish: %q", got)
	}
	if got := states(r, "pay_by_invoice"); !strings.HasPrefix(got, "pending") || strings.Contains(got, "experimental") {
		t.Errorf("a sensitive wish: %q", got)
	}
	if r.MostTrials > 10 || r.MostKeys > 8 || r.After.Rest() > 0.3 || r.After.Rest() >= r.Before.Rest() || r.LargestPool > r.Limits.MaxBytes {
		t.Errorf("trials %d, keys %d, no key for %.2f, then %.2f, %d bytes", r.MostTrials, r.MostKeys, r.Before.Rest(), r.After.Rest(), r.LargestPool)
	}
}

// Attackers have no effect on other clients as long as they have fewer identities than a word
// needs.
func TestAttacksFail(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{simulate.Flood, simulate.Poison} {
		r := run(t, simulate.Generator{Requests: 60_000, Attacks: []simulate.Attack{{Kind: kind}}}, evolve.Config{})
		alwaysThere(t, r)
		if len(r.Attacks) != 1 || len(r.Attacks[0].Keys) != 0 || r.Attacks[0].Wishes < 10_000 {
			t.Errorf("%s: %+v", kind, r.Attacks)
		}
		if r.MostKeys > 8 {
			t.Errorf("%s: %d keys", kind, r.MostKeys)
		}
	}
}

// Three identities count as three clients, which is enough for a word. Then an operator must
// approve every key, or a word must need more clients.
func TestManyIdentitiesNeedAnOperator(t *testing.T) {
	t.Parallel()
	three := simulate.Generator{Attacks: []simulate.Attack{{Kind: simulate.Poison, Identities: 3}}}
	if r := run(t, three, evolve.Config{}); len(r.Attacks[0].Told) == 0 {
		t.Error("the attack does nothing: this tests nothing")
	}
	if r := run(t, three, evolve.Config{Approve: evolve.ApproveAll}); len(r.Attacks[0].Keys) == 0 || len(r.Attacks[0].Told) != 0 || r.MostKeys != 0 {
		t.Errorf("%+v", r.Attacks[0])
	}
	if r := run(t, three, evolve.Config{Anonymity: 5}); len(r.Attacks[0].Told) != 0 || states(r, "window_seat") != "experimental stable" {
		t.Errorf("%+v", r.Attacks[0])
	}
}

// Eighteen successive words for one thing do not leave eighteen keys.
func TestSlangComesAndGoes(t *testing.T) {
	t.Parallel()
	r := run(t, simulate.Generator{Attacks: []simulate.Attack{{Kind: simulate.Drift}}}, evolve.Config{})
	if r.MostKeys > 12 || r.MostTrials > 10 {
		t.Errorf("%d keys, %d trials", r.MostKeys, r.MostTrials)
	}
	if got := states(r, "snug_recliner"); got != "experimental stable deprecated withdrawn retired" {
		t.Errorf("%q", got)
	}
}

func TestAnOperatorApproves(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	gen, err := simulate.Generator{Requests: 20_000, Days: 60}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	r, err := simulate.Run(t.Context(), simulate.Config{Learn: learn.Config{Embedder: ngrams.Embedder{}}, Template: flight(t), Approve: true,
		Progress: func(n int, _ time.Time) { last = n }}, gen.Traffic(), &gen)
	if err != nil {
		t.Fatal(err)
	}
	if got := states(r, "pay_by_invoice") + states(r, "pay_by_company"); !strings.HasPrefix(got, "pending experimental") || last != 20_000 {
		t.Errorf("%q, progress %d", got, last)
	}
}

// Requests from a file have the same results as the same requests from a generator, each time.
func TestRequestsOfAFile(t *testing.T) {
	t.Parallel()
	gen, err := simulate.Generator{Requests: 5000, Days: 20}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	for r, err := range gen.Traffic() {
		raw, e := json.Marshal(r)
		if err != nil || e != nil {
			t.Fatal(err, e)
		}
		file.Write(append(raw, '\n'))
	}
	cfg := simulate.Config{Learn: learn.Config{Embedder: ngrams.Embedder{}}, Template: flight(t)}
	a, err := simulate.Run(t.Context(), cfg, simulate.Requests(&file), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := simulate.Run(t.Context(), cfg, gen.Traffic(), &gen)
	if err != nil {
		t.Fatal(err)
	}
	a.Took, b.Took = 0, 0
	if !reflect.DeepEqual(a, b) || len(a.Keys) < 4 {
		t.Errorf("a file: %+v\na generator: %+v", a.Keys, b.Keys)
	}
}

func TestRequestsRefuses(t *testing.T) {
	t.Parallel()
	const good = `{"at":"2030-01-01T00:00:00Z","client":"a","wishes":["x y"]}` + "\n"
	for name, c := range map[string]struct{ file, want string }{
		"no JSON":        {good + "nonsense\n", "line 2"},
		"a wrong member": {good + `{"at":"2030-01-01T00:00:00Z","client":"a","wish":"x"}`, `"wish"`},
		"no client":      {`{"at":"2030-01-01T00:00:00Z"}`, `"client" and "at" are required`},
		"no time":        {`{"client":"a"}`, `"client" and "at" are required`},
		"two":            {strings.TrimSpace(good) + good, "more than one"},
		"out of order":   {good + `{"at":"2029-01-01T00:00:00Z","client":"a"}`, "line 2: 2029"},
		"a long line":    {good + strings.Repeat(" ", 2<<20), "too long"},
		"nothing":        {"\n\n", "no requests"},
	} {
		_, err := simulate.Run(t.Context(), simulate.Config{Learn: learn.Config{Embedder: ngrams.Embedder{}}, Template: flight(t)}, simulate.Requests(strings.NewReader(c.file)), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestGeneratorsRefuse(t *testing.T) {
	t.Parallel()
	for _, g := range []simulate.Generator{{Requests: -1}, {Days: 1 << 20}, {Clients: -2}, {Noise: 2}, {Wishes: []simulate.Wish{{Share: 0.1}}},
		{Wishes: []simulate.Wish{{Says: []string{"x"}, Share: 1.5}}}, {Wishes: []simulate.Wish{{Says: []string{"x"}, Share: 0.5, From: 3, To: 2}}}, {Attacks: []simulate.Attack{{Kind: "x"}}}} {
		if _, err := g.WithDefaults(); err == nil {
			t.Errorf("%+v is accepted", g)
		}
	}
}

// Noise alone makes no key, and an attack needs no wishes of others.
func TestNoWishes(t *testing.T) {
	t.Parallel()
	for _, kind := range append([]string{""}, simulate.Attacks...) {
		gen := simulate.Generator{Requests: 500, Days: 5, Clients: 1, Wishes: []simulate.Wish{}}
		if kind != "" {
			gen.Attacks = []simulate.Attack{{Kind: kind}}
		}
		gen, err := gen.WithDefaults()
		if err != nil {
			t.Fatal(err)
		}
		r, err := simulate.Run(t.Context(), simulate.Config{Learn: learn.Config{Embedder: ngrams.Embedder{}}, Template: flight(t)}, gen.Traffic(), &gen)
		if err != nil || kind != simulate.Drift && len(r.Keys) != 0 {
			t.Errorf("%s: %+v, %v", kind, r, err)
		}
	}
}

func TestASimulationCanBeStopped(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	gen, err := simulate.Generator{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cfg := simulate.Config{Learn: learn.Config{Embedder: ngrams.Embedder{}}, Template: flight(t), Progress: func(int, time.Time) { cancel() }}
	if r, err := simulate.Run(ctx, cfg, gen.Traffic(), &gen); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", r, err)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add(`{"at":"2030-01-01T00:00:00Z","client":"a","wishes":["window seat"]}` + "\n\n" + `{"at":"2030-01-09T00:00:00Z","client":"b"}`)
	f.Add(`{"at":"9999-12-31T23:59:59Z","client":"a"}`)
	f.Fuzz(func(t *testing.T, file string) {
		var last time.Time
		for r, err := range simulate.Requests(strings.NewReader(file)) {
			if err != nil {
				return
			}
			if r.At.Before(last) || r.Client == "" {
				t.Fatalf("%+v", r)
			}
			last = r.At
		}
	})
}

func BenchmarkRun(b *testing.B) {
	gen, err := simulate.Generator{Requests: b.N + 1, Days: 60}.WithDefaults()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := simulate.Run(b.Context(), simulate.Config{Learn: learn.Config{Embedder: ngrams.Embedder{}}, Template: flight(b)}, gen.Traffic(), &gen); err != nil {
		b.Fatal(err)
	}
}

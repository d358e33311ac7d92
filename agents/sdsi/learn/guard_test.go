package learn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/embedding/ngrams"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A key about payment, one that the model calls sensitive, and one that it cannot judge
// wait for an operator.
func TestWhatIsSensitiveWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wish     string
		classify func(context.Context, template.Key) (string, error)
		want     evolve.State
	}{
		"harmless":           {"a window seat", nil, evolve.Experimental},
		"of another script":  {"вернуть деньги", nil, evolve.Pending},
		"the model reads it": {"место у окна", func(context.Context, template.Key) (string, error) { return "", nil }, evolve.Experimental},
		"about payment":      {"pay by invoice", nil, evolve.Pending},
		"the model says so":  {"a window seat", func(context.Context, template.Key) (string, error) { return "I say so", nil }, evolve.Pending},
		"it says no":         {"a window seat", func(context.Context, template.Key) (string, error) { return "", nil }, evolve.Experimental},
		"it is away":         {"a window seat", func(context.Context, template.Key) (string, error) { return "", errors.New("away") }, evolve.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			l := r.learner(func(cfg *learn.Config) { cfg.Classify = c.classify })
			for i := range 6 {
				wait(t, says(l, fmt.Sprint("task", i), client(i), c.wish))
			}
			l.Look(t.Context())
			keys := r.stored("").Keys(r.clock())
			if len(keys) != 1 || keys[0].State != c.want {
				t.Errorf("%+v, want %s", keys, c.want)
			}
		})
	}
}

// learnsWindowSeat puts the key window_seat on trial, which six clients ask for.
func learnsWindowSeat(t *testing.T, l *learn.Learner) {
	t.Helper()
	for i := range 6 {
		wait(t, says(l, fmt.Sprint("task", i), client(i), "a window seat"))
	}
	l.Look(t.Context())
}

// Values that look like long numbers, such as dates, amounts and postcodes, are judged: without a model
// as they are, because nothing of them leaves the process, and by a model without these numbers.
func TestDatesAndAmountsAreJudged(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]template.Model{
		"without a model": nil,
		"by a model": prompted(func(p template.Prompt) string {
			if strings.Contains(p.Text, "2026") || strings.Contains(p.Text, "1999") || !strings.Contains(p.Text, "[number]") {
				t.Errorf("the model gets %s", p.Text)
			}
			return `{"aligned":true,"sure":true}`
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			l := r.learner(func(cfg *learn.Config) {
				if m != nil {
					cfg.With(m)
				}
				cfg.Classify = nil
				cfg.Induce = func(context.Context, evolve.Cluster, *template.Template) (template.Key, error) {
					return template.Key{Name: "travel_date", Type: template.String, Description: "The day. Example mapping: 'travel date' -> date."}, nil
				}
			})
			for i := range 6 {
				wait(t, says(l, fmt.Sprint("task", i), client(i), "a travel date"))
			}
			l.Look(t.Context())
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); l.Run(ctx) }()
			for i, value := range []string{`"2026-05-04"`, `"1999.99"`, `1999.99`, `"2026-05-05"`, `20260506`} {
				wait(t, l.Observe("ferry_booking", client(i), sdsi.Seen{ID: fmt.Sprint("use", i), Keys: []evolve.Use{{Key: "travel_date"}},
					Values: map[string]json.RawMessage{"travel_date": json.RawMessage(value)}, Fragments: map[string]string{"travel_date": "travel date"}}))
			}
			natstest.Eventually(t, "five judgements", func() bool { return r.stored("").Keys(r.clock())[0].Metrics.Judged == 5 })
			stop()
			natstest.Within(t, "the end", ended)
			if m := r.stored("").Keys(r.clock())[0].Metrics; m.AlignmentAccuracy != 1 {
				t.Errorf("%+v", m)
			}
		})
	}
}

// prompted is a model of one function.
type prompted func(template.Prompt) string

func (p prompted) Complete(_ context.Context, prompt template.Prompt) (json.RawMessage, error) {
	return json.RawMessage(p(prompt)), nil
}

// A judge of values gets no personal data either: it is removed from the words and from the value.
// With Reject, a value that has some is not judged.
func TestJudgesGetNoPersonalData(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	judged := make(chan string, 16)
	judges := func(cfg *learn.Config) {
		cfg.Judge = func(_ context.Context, j learn.Judgement) (bool, bool, error) {
			judged <- j.Fragment + " = " + string(j.Value)
			return true, true, nil
		}
	}
	l := r.learner(judges)
	learnsWindowSeat(t, l)
	strict := r.learner(func(cfg *learn.Config) { judges(cfg); cfg.Scrub = learn.Reject })
	strict.View(t.Context(), "ferry_booking", client(1))
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { l.Run(ctx) })
	all.Go(func() { strict.Run(ctx) })
	sends := func(l *learn.Learner, i int, value, words string) {
		wait(t, l.Observe("ferry_booking", client(i), sdsi.Seen{ID: fmt.Sprint("use", i), Keys: []evolve.Use{{Key: "window_seat"}},
			Values: map[string]json.RawMessage{"window_seat": json.RawMessage(value)}, Fragments: map[string]string{"window_seat": words}}))
	}
	for i, c := range []struct{ value, want string }{
		{`"for ada@example.org"`, `"for [email]"`},
		{`"for ada\u0040example.org"`, `"for [email]"`},
		{`["aisle",{"for":"ada@example.org"}]`, `["aisle",{"for":"[email]"}]`},
		{`{"ada@example.org":1}`, `{"[email]":1}`},
		{`{"for":"ada@example.org","for":1}`, `{"for":1}`},
		{`4712345678`, `"[number]"`},
		{`4.712345678e9`, `"[number]e9"`},
		{`true`, `true`},
		{`["by the window ",{"far":2.50}]`, `["by the window ",{"far":2.50}]`},
	} {
		sends(l, 100+i, `"`+strings.Repeat("at the window ", 1000)+`"`, "too long")
		sends(l, i, c.value, "a window seat for ada@example.org")
		want := "a window seat for [email] = " + c.want
		if got := natstest.Within(t, "a judgement", judged); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for i, value := range []string{`"for ada@example.org"`, `4712345678`, `{"ada@example.org":1}`, `["2026-05-04"]`, `"aisle"`} {
		sends(strict, 200+i, value, "a seat")
	}
	if got := natstest.Within(t, "a judgement", judged); got != `a seat = "aisle"` {
		t.Errorf("%q", got)
	}
	stop()
	all.Wait()
}

// A request that arrives again, at this worker or another one, is not judged again.
func TestARepeatedRequestIsJudgedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	judged := make(chan string, 16)
	change := func(cfg *learn.Config) {
		cfg.Judge = func(_ context.Context, j learn.Judgement) (bool, bool, error) {
			judged <- j.Fragment
			return true, true, nil
		}
	}
	workers := []*learn.Learner{r.learner(change), r.learner(change)}
	learnsWindowSeat(t, workers[0])
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, l := range workers {
		l.View(t.Context(), "ferry_booking", client(1))
		all.Go(func() { l.Run(ctx) })
	}
	sends := func(l *learn.Learner, id, words string) {
		wait(t, l.Observe("ferry_booking", client(1), sdsi.Seen{ID: id, Keys: []evolve.Use{{Key: "window_seat"}},
			Values: map[string]json.RawMessage{"window_seat": json.RawMessage("true")}, Fragments: map[string]string{"window_seat": words}}))
	}
	expect := func(want string) {
		t.Helper()
		if got := natstest.Within(t, "a judgement", judged); got != want {
			t.Errorf("judged %q, want %q", got, want)
		}
	}
	sends(workers[0], "one", "window seat")
	expect("window seat")
	for i, l := range workers {
		sends(l, "one", "window seat")
		sends(l, fmt.Sprint("other", i), "seat at the window")
		expect("seat at the window")
	}
	stop()
	all.Wait()
	if len(judged) > 0 {
		t.Errorf("%d more judgements", len(judged))
	}
}

// Without a model, a number has to be in the client's words, however it is written.
func TestNumbersAreJudgedByTheirValue(t *testing.T) {
	t.Parallel()
	cfg, err := learn.Config{Embedder: ngrams.Embedder{}}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	k := template.Key{Name: "dogs", Type: template.Integer, Description: "How many are wished for. Example mapping: '2 dogs' -> 2."}
	for value, want := range map[string]bool{"2": true, "2.0": true, "20e-1": true, "3": false, "2.5": false} {
		aligned, sure, err := cfg.Judge(t.Context(), learn.Judgement{Key: k, Value: json.RawMessage(value), Fragment: "2 dogs"})
		if err != nil || !sure || aligned != want {
			t.Errorf("%s: %v, %v, %v", value, aligned, sure, err)
		}
	}
}

// A client that sends very many values does not displace the values of others.
func TestABusyClientTakesNoJudgementFromOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	judged := make(chan string, 512)
	hold := make(chan struct{})
	l := r.learner(func(cfg *learn.Config) {
		cfg.Judge = func(_ context.Context, j learn.Judgement) (bool, bool, error) {
			<-hold
			judged <- j.Fragment
			return true, true, nil
		}
	})
	learnsWindowSeat(t, l)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	sends := func(i int, from sdsi.Sender, fragment string) {
		wait(t, l.Observe("ferry_booking", from, sdsi.Seen{ID: fmt.Sprint("use", i, from.Entity), Keys: []evolve.Use{{Key: "window_seat"}},
			Values: map[string]json.RawMessage{"window_seat": json.RawMessage("true")}, Fragments: map[string]string{"window_seat": fragment}}))
	}
	for i := range 100 {
		sends(i, client(99), "busy")
	}
	for i := range 6 {
		sends(i, client(i), "last")
	}
	close(hold)
	busy, others := 0, 0
	for others < 6 {
		if natstest.Within(t, "a judgement of each of the others", judged) == "busy" {
			busy++
		} else {
			others++
		}
	}
	if busy > 10 {
		t.Errorf("%d values of one client were judged", busy)
	}
	stop()
	natstest.Within(t, "the end", ended)
}

// The values of a stable key are judged as long as the key exists, so a model is called for some of
// a day's values only.
func TestOfAStableKeyASampleIsJudged(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newRig(t)
	var judged atomic.Int32
	change := func(cfg *learn.Config) {
		cfg.Judge = func(context.Context, learn.Judgement) (bool, bool, error) {
			judged.Add(1)
			return true, true, nil
		}
	}
	learnsWindowSeat(t, r.learner(change))
	raw, revision, err := r.pools.Get(t.Context(), ferries, "ferry_booking")
	if err != nil {
		t.Fatal(err)
	}
	p, err := evolve.Open(raw)
	if err == nil {
		err = p.Vouch("window_seat", "human.ops", r.clock())
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		p.Observe(evolve.Observation{Client: evolve.Client(fmt.Sprint(i)), Keys: []evolve.Use{{Key: "window_seat"}}}, r.clock())
	}
	r.pass(8 * 24 * time.Hour)
	p.Advance(r.clock())
	if keys := p.Keys(r.clock()); keys[0].State != evolve.Stable {
		t.Fatalf("%+v", keys)
	}
	if raw, err = p.Encode(r.clock()); err == nil {
		_, err = r.pools.Swap(t.Context(), ferries, "ferry_booking", raw, revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := r.learner(change)
	l.View(t.Context(), "ferry_booking", client(0))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	for i := range learn.JudgedADay + 20 {
		wait(t, l.Observe("ferry_booking", client(i), sdsi.Seen{ID: fmt.Sprint("use", i), Keys: []evolve.Use{{Key: "window_seat"}},
			Values: map[string]json.RawMessage{"window_seat": json.RawMessage("true")}, Fragments: map[string]string{"window_seat": "a window seat"}}))
	}
	natstest.Eventually(t, "the judgements", func() bool { return r.stored("").Keys(r.clock())[0].Metrics.Judged >= learn.JudgedADay })
	stop()
	natstest.Within(t, "the end", ended)
	if n := judged.Load(); n != learn.JudgedADay {
		t.Errorf("%d values were judged", n)
	}
}

// A sender without a signature belongs to no cohort, whatever name it claims.
func TestACohortNeedsASignature(t *testing.T) {
	t.Parallel()
	for unsigned, want := range map[bool]string{false: "", true: "partners"} {
		r := newRig(t)
		l := r.learner(func(c *learn.Config) {
			c.Unsigned, c.Cohorts = unsigned, []string{"partners"}
			c.Cohort = func(string) string { return "partners" }
		})
		wait(t, says(l, "1", sdsi.Sender{Entity: "agent.partner"}, "a window seat"))
		if got := r.stored(want).Size(); got != 1 {
			t.Errorf("unsigned %v: %d clusters of cohort %q", unsigned, got, want)
		}
	}
}

// Only words that were checked are published, not those that clients say while a model makes the key.
func TestWordsThatWereNotCheckedAreNotPublished(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]template.Key{
		"a key of the template": {Name: "cabins", Type: template.String, Description: "Kind of cabin."},
		"a new key":             {Name: "room", Type: template.String, Description: "Where to sleep."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var l *learn.Learner
			l = r.learner(func(cfg *learn.Config) {
				tpl := ferry(t)
				tpl.Keys = append(tpl.Keys, template.Key{Name: "cabins", Type: template.String, Description: "Kind of cabin."})
				cfg.Templates, cfg.Rules.Similarity = []*template.Template{tpl}, 0.3
				cfg.Induce = func(context.Context, evolve.Cluster, *template.Template) (template.Key, error) {
					for i := range 3 {
						wait(t, says(l, fmt.Sprint("late", i), client(10+i), "a cabin password"))
					}
					return key, nil
				}
			})
			for i := range 6 {
				wait(t, says(l, fmt.Sprint("task", i), client(i), "a cabin"))
			}
			l.Look(t.Context())
			p := r.stored("")
			if clusters := p.Clusters(r.clock()); len(clusters) != 1 || !slices.Contains(clusters[0].Examples, "cabin password") {
				t.Fatalf("%+v", clusters)
			}
			if keys := p.Keys(r.clock()); len(keys) != 1 || keys[0].Description != key.Description+" Said as: 'cabin'." || keys[0].State == evolve.Pending {
				t.Errorf("%+v", keys)
			}
		})
	}
}

// A worker with a later template ends a refinement of a description that has been replaced.
func TestALaterTemplateEndsRefinements(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	worker := func(description string) *learn.Learner {
		return r.learner(func(cfg *learn.Config) {
			tpl := ferry(t)
			tpl.Keys = append(tpl.Keys, template.Key{Name: "cabin", Type: template.String, Description: description})
			cfg.Templates = []*template.Template{tpl}
		})
	}
	l := worker("Kind of cabin.")
	for i := range 6 {
		wait(t, says(l, fmt.Sprint("task", i), client(i), "a cabin"))
	}
	l.Look(t.Context())
	for _, c := range []struct {
		description string
		want        int
	}{{"Kind of cabin.", 1}, {"Inside or outside.", 0}} {
		worker(c.description).Look(t.Context())
		if keys := r.stored("").Keys(r.clock()); len(keys) != c.want {
			t.Errorf("%s: %+v", c.description, keys)
		}
	}
}

// A security-relevant key is changed only with an operator's approval (SDSI 7): even a better
// description waits, although the clients' texts are harmless.
func TestASensitiveKeyIsNotRefined(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		description string
		want        evolve.State
	}{
		"harmless":      {"Kind of cabin.", evolve.Stable},
		"by its words":  {"Kind of cabin, which decides the price.", evolve.Pending},
		"to the model":  {"Kind of cabin: who has the key of the bridge.", evolve.Pending},
		"it cannot say": {"Kind of cabin: unclear.", evolve.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			l := r.learner(func(cfg *learn.Config) {
				tpl := ferry(t)
				tpl.Keys = append(tpl.Keys, template.Key{Name: "cabins", Type: template.String, Description: c.description})
				cfg.Templates = []*template.Template{tpl}
				cfg.Classify = func(_ context.Context, k template.Key) (string, error) {
					switch {
					case strings.Contains(k.Description, "bridge"):
						return "it opens the bridge", nil
					case strings.Contains(k.Description, "unclear"):
						return "", errors.New("away")
					}
					return "", nil
				}
			})
			for i := range 6 {
				wait(t, says(l, fmt.Sprint("task", i), client(i), "a cabin"))
			}
			l.Look(t.Context())
			if keys := r.stored("").Keys(r.clock()); len(keys) != 1 || keys[0].Name != "cabins" || !keys[0].Refines || keys[0].State != c.want {
				t.Errorf("%+v, want %s", keys, c.want)
			}
		})
	}
}

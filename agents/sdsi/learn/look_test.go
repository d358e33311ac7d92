package learn_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/embedding/ngrams"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A pool that cannot be read does not delay the agent's other pools; its own changes wait.
func TestAPoolThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{bad: "ferry_booking"}
		l := inMemory(t, m)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		says(l, "1", client(1), "a window seat")
		time.Sleep(time.Minute)
		for i := range 6 {
			<-l.Observe("tram_ticket", client(i), sdsi.Seen{ID: fmt.Sprint("task", i), Others: []string{"a window seat"}})
		}
		time.Sleep(time.Minute)
		if v, _, _ := l.View(t.Context(), "tram_ticket", client(1)); v == nil || len(v.Patches(ferry(t), "x", time.Now())) != 1 {
			t.Error("no key comes of the wish in the other scenario")
		}
		m.mu.Lock()
		m.bad = ""
		m.mu.Unlock()
		time.Sleep(time.Minute)
		raw, _, _ := m.Get(ctx, ferries, "ferry_booking")
		if p, err := evolve.Open(raw); err != nil || p.Size() != 1 {
			t.Errorf("what was said meanwhile is lost: %v", err)
		}
		stop()
		<-ended
	})
}

// While the key of one cluster cannot be stored, the model is not called for the keys of others.
func TestAModelIsNotAskedForWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		asked := 0
		l, err := learn.New(learn.Config{Entity: ferries, Templates: []*template.Template{ferry(t)}, Pools: m, Embedder: ngrams.Embedder{},
			Induce: func(_ context.Context, c evolve.Cluster, _ *template.Template) (template.Key, error) {
				m.mu.Lock()
				defer m.mu.Unlock()
				asked++
				m.bad = "ferry_booking"
				return evolve.Rules(c)
			}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			<-says(l, fmt.Sprint("task", i), client(i), "a window seat please", "two big bicycles", "vegetarian food")
		}
		l.Look(t.Context())
		if asked != 1 {
			t.Errorf("the model was asked %d times", asked)
		}
		m.mu.Lock()
		m.bad = ""
		m.mu.Unlock()
		time.Sleep(time.Minute)
	})
}

// While a server of the agent has not listed its tools, no key is made: the wish waits, and neither
// a model is asked nor an operator.
func TestAWishWaitsForTheNamesOfCapabilities(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all atomic.Bool
		var asked, looked atomic.Int32
		m, log := &memory{}, &natstest.Buffer{}
		l, err := learn.New(learn.Config{Entity: ferries, Templates: []*template.Template{ferry(t)}, Pools: m, Embedder: ngrams.Embedder{},
			Logger:    slog.New(slog.NewTextHandler(log, nil)),
			Sensitive: evolve.Sensitive{Capabilities: func() ([]string, bool) { looked.Add(1); return nil, all.Load() }},
			Induce: func(_ context.Context, c evolve.Cluster, _ *template.Template) (template.Key, error) {
				asked.Add(1)
				return evolve.Rules(c)
			}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		for i := range 6 {
			<-says(l, fmt.Sprint("task", i), client(i), "a window seat please")
		}
		keys := func() []evolve.Key {
			raw, _, _ := m.Get(ctx, ferries, "ferry_booking")
			p, err := evolve.Open(raw)
			if err != nil {
				t.Fatal(err)
			}
			return p.Keys(time.Now())
		}
		time.Sleep(10 * time.Minute)
		if got := keys(); len(got) != 0 || asked.Load() != 0 {
			t.Errorf("asked %d times: %+v", asked.Load(), got)
		}
		if n := looked.Load(); n > 200 {
			t.Errorf("the pool was updated without a pause: %d times", n)
		}
		if n := strings.Count(log.String(), "has not listed its tools"); n != 1 {
			t.Errorf("the log says %d times that wishes wait:\n%s", n, log)
		}
		all.Store(true)
		time.Sleep(time.Minute)
		if got := keys(); len(got) != 1 || got[0].State != evolve.Experimental || asked.Load() != 1 {
			t.Errorf("asked %d times: %+v", asked.Load(), got)
		}
		stop()
		<-ended
	})
}

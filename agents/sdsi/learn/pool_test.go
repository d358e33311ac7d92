package learn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/embedding/ngrams"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
)

// memory is a store without a server. bad is the id of a pool that can be neither read nor
// stored.
type memory struct {
	mu       sync.Mutex
	bad      string
	pools    map[string][]byte
	revision map[string]uint64
}

func (m *memory) Get(_ context.Context, _, id string) ([]byte, uint64, error) {
	time.Sleep(time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == m.bad {
		return nil, 0, errors.New("no answer")
	}
	return m.pools[id], m.revision[id], nil
}

func (m *memory) Swap(_ context.Context, _, id string, pool []byte, revision uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == m.bad {
		return 0, errors.New("no answer")
	}
	if m.revision[id] != revision {
		return 0, jetstream.ErrChanged
	}
	if m.pools == nil {
		m.pools, m.revision = map[string][]byte{}, map[string]uint64{}
	}
	m.pools[id] = pool
	m.revision[id]++
	return m.revision[id], nil
}

func (m *memory) OptOuts(context.Context, string) ([]byte, uint64, error) { return nil, 0, nil }

func inMemory(t *testing.T, m *memory) *learn.Learner {
	t.Helper()
	tram := ferry(t)
	tram.Scenario, tram.SchemaID = "tram_ticket", "tram_v1"
	l, err := learn.New(learn.Config{Entity: ferries, Templates: []*template.Template{ferry(t), tram}, Pools: m, Embedder: ngrams.Embedder{}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// All payloads that arrive while a new worker reads a pool wait for that: a payload that did not
// wait would be counted for no key.
func TestTheFirstViewIsWaitedFor(t *testing.T) {
	t.Parallel()
	p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10}, ngrams.Embedder{}.Name())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // as in a bubble of synctest
	for i := range 2 {
		p.Observe(evolve.Observation{Client: evolve.Client(fmt.Sprint(i)), Fragments: []evolve.Fragment{{Text: "a window seat", Vector: []float32{1}}}}, now)
	}
	c := p.Ripe(now)[0]
	k, err := evolve.Rules(c)
	if err == nil {
		err = p.Propose(c, k, ferry(t), "", now)
	}
	if err != nil {
		t.Fatal(err)
	}
	raw, err := p.Encode(now)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			l := inMemory(t, &memory{pools: map[string][]byte{"tram_ticket": raw}, revision: map[string]uint64{"tram_ticket": 1}})
			var all sync.WaitGroup
			begin := make(chan struct{})
			for i := range 64 {
				all.Go(func() {
					<-begin
					if v, _, _ := l.View(t.Context(), "tram_ticket", client(i)); v.Empty() {
						t.Error("it is not waited for")
					}
				})
			}
			close(begin)
			all.Wait()
		})
	}
}

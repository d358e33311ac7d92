package learn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/embedding/ngrams"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
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

// held is an embedder that answers when it is let, with vectors as large as they may be.
type held struct {
	calls atomic.Int64
	goOn  chan struct{}
}

func (h *held) Name() string { return "held" }

func (h *held) Embed(_ context.Context, texts []string) ([][]float32, error) {
	h.calls.Add(1)
	<-h.goOn
	return slices.Repeat([][]float32{large}, len(texts)), nil
}

var large = append(make([]float32, 4095), 1)

func heldLearner(t *testing.T, m *memory, h *held, log *natstest.Buffer) *learn.Learner {
	t.Helper()
	l, err := learn.New(learn.Config{Entity: ferries, Templates: []*template.Template{ferry(t)}, Pools: m, Embedder: h, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// While the embedder is slow, payloads beyond a number are counted without their texts: each text that
// waits costs a goroutine, and a request to a hosted embedder.
func TestASlowEmbedderHasFewRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &held{goOn: make(chan struct{})}
		log := &natstest.Buffer{}
		l := heldLearner(t, &memory{}, h, log)
		var done []<-chan struct{}
		for i := range 300 {
			done = append(done, says(l, fmt.Sprint("task", i), client(i), "a window seat please"))
		}
		synctest.Wait()
		if n := h.calls.Load(); n != 256 {
			t.Errorf("%d requests at once, want 256", n)
		}
		if n := strings.Count(log.String(), "too slow"); n != 1 {
			t.Errorf("logged %d times in the same minute", n)
		}
		time.Sleep(time.Minute)
		done = append(done, says(l, "a minute later", client(1), "a window seat please"))
		if n := strings.Count(log.String(), "too slow"); n != 2 {
			t.Errorf("logged %d times in two minutes", n)
		}
		close(h.goOn)
		for _, d := range done {
			<-d
		}
		done = []<-chan struct{}{says(l, "one more", client(1), "a window seat please")}
		<-done[0]
		if n := h.calls.Load(); n != 257 {
			t.Errorf("%d requests, want one more", n)
		}
	})
}

// Changes that wait for the store are bounded in bytes, because vectors are large: those that are being
// stored and those that wait for that, together.
func TestChangesThatWaitAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &held{goOn: make(chan struct{})}
		close(h.goOn)
		m := &memory{bad: "ferry_booking"}
		log := &natstest.Buffer{}
		l := heldLearner(t, m, h, log)
		texts := slices.Repeat([]string{"a window seat please"}, evolve.MaxFragments)
		const each = evolve.MaxFragments * 4 * 4096
		payload := 0
		dropped := func(payloads int) (dropped int) {
			for range payloads {
				done := says(l, fmt.Sprint("task", payload), client(payload), texts...)
				payload++
				synctest.Wait()
				select {
				case <-done:
					dropped++
				default:
				}
			}
			return dropped
		}
		if n := dropped(64<<20/each + 50); n < 40 || n > 50 {
			t.Errorf("%d of 50 that are too much were dropped", n)
		}
		time.Sleep(10 * time.Second) // the store is asked again, and does not answer
		if n := dropped(50); n != 50 {
			t.Errorf("%d of 50 more were dropped", n)
		}
		if l.Try(t.Context()) == nil {
			t.Error("a pool that cannot be stored has done what it was asked")
		}
		m.mu.Lock()
		m.bad = ""
		m.mu.Unlock()
		time.Sleep(time.Minute) // all is stored, and nothing waits any more
		m.mu.Lock()
		stored := m.revision["ferry_booking"]
		m.mu.Unlock()
		<-says(l, "later", client(1), texts...)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.revision["ferry_booking"] <= stored || strings.Contains(log.String(), "is lost") {
			t.Errorf("revision %d after %d; the log is %s", m.revision["ferry_booking"], stored, log)
		}
	})
}

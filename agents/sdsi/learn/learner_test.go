package learn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/embedding/ngrams"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

const ferries = "agent.ferries"

const ferryTemplate = `{"schema_id":"ferry_v1","scenario":"ferry_booking","language":"en","keys":[
	{"key_name":"harbour_from","key_type":"string","required":true,"semantic_description":"Where the crossing begins."}]}`

func ferry(t testing.TB) *template.Template {
	t.Helper()
	tpl, err := template.Parse([]byte(ferryTemplate))
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// rig is a server with pools, and a clock.
type rig struct {
	testing.TB
	srv   *natsd.Server
	pools *jetstream.Pools

	mu     sync.Mutex
	now    time.Time
	events []evolve.Event
}

func newRig(t testing.TB) *rig {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{Only: []string{jetstream.BucketSDSI}}); err != nil {
		t.Fatal(err)
	}
	return &rig{TB: t, srv: srv, pools: jetstream.NewPools(js, subject.Map{}), now: time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)}
}

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *rig) learner(change func(*learn.Config)) *learn.Learner {
	r.Helper()
	cfg := learn.Config{Entity: ferries, Templates: []*template.Template{ferry(r)}, Pools: r.pools, Embedder: ngrams.Embedder{}, Now: r.clock, Patience: 20 * time.Second,
		Tell: func(_, _ string, e evolve.Event) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
			return nil
		}}
	if change != nil {
		change(&cfg)
	}
	l, err := learn.New(cfg)
	if err != nil {
		r.Fatal(err)
	}
	return l
}

// stored returns the stored pool.
func (r *rig) stored(cohort string) *evolve.Pool {
	r.Helper()
	raw, _, err := r.pools.Get(context.Background(), ferries, learn.PoolID("ferry_booking", cohort))
	if err != nil || raw == nil {
		r.Fatalf("no pool: %v", err)
	}
	p, err := evolve.Decode(raw, evolve.Config{Personal: true})
	if err != nil {
		r.Fatal(err)
	}
	return p
}

func client(i int) sdsi.Sender { return sdsi.Sender{Entity: fmt.Sprint("agent.c", i), Verified: true} }

func says(l *learn.Learner, id string, from sdsi.Sender, texts ...string) <-chan struct{} {
	return l.Observe("ferry_booking", from, sdsi.Seen{ID: id, Others: texts})
}

func wait(t testing.TB, done ...<-chan struct{}) {
	t.Helper()
	for _, d := range done {
		if d != nil {
			natstest.Within(t, "what was said", d)
		}
	}
}

// Three workers feed one pool at once: nothing is lost, and nothing counts twice.
func TestSeveralWorkersFeedOnePool(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	workers := []*learn.Learner{r.learner(nil), r.learner(nil), r.learner(nil)}
	var done []<-chan struct{}
	for i := range 60 {
		done = append(done, says(workers[i%3], fmt.Sprint("task", i), client(i), "a window seat please"))
		if i%4 == 0 { // a durable task that another worker repeats
			done = append(done, says(workers[(i+1)%3], fmt.Sprint("task", i), client(i), "a window seat please"))
		}
	}
	wait(t, done...)
	clusters := r.stored("").Clusters(r.clock())
	if len(clusters) != 1 || clusters[0].Votes != 60 || clusters[0].Clients != 60 || clusters[0].Heat != 600 {
		t.Errorf("%+v", clusters)
	}
}

// However many workers manage a pool, a cluster becomes one key, the model is called once, and each
// event is published once.
func TestAKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var mu sync.Mutex
	asked := 0
	induce := func(c *learn.Config) {
		c.Induce = func(_ context.Context, c evolve.Cluster, _ *template.Template) (template.Key, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return evolve.Rules(c)
		}
	}
	workers := []*learn.Learner{r.learner(induce), r.learner(induce), r.learner(induce), r.learner(induce)}
	for i := range 6 {
		wait(t, says(workers[i%4], fmt.Sprint("task", i), client(i), "a window seat please"))
	}
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() { w.Look(t.Context()) })
	}
	all.Wait()
	if asked != 1 {
		t.Errorf("the model was asked %d times", asked)
	}
	keys := r.stored("").Keys(r.clock())
	if len(keys) != 1 || keys[0].Name != "window_seat" || keys[0].State != evolve.Experimental {
		t.Fatalf("%+v", keys)
	}
	for range 2 {
		r.pass(8 * 24 * time.Hour)
		for _, w := range workers {
			all.Go(func() { w.Look(t.Context()) })
		}
		all.Wait()
	}
	var numbers []uint64
	for _, e := range r.events {
		if !slices.Contains(numbers, e.Number) {
			numbers = append(numbers, e.Number)
		}
	}
	if len(numbers) != 1 || len(r.stored("").Untold()) != 0 {
		t.Errorf("told: %+v", r.events)
	}
	// The clients of every worker get the key.
	for _, w := range workers {
		v, _, _ := w.View(t.Context(), "ferry_booking", client(99))
		if got := v.Patches(ferry(t), "x", r.clock()); len(got) != 1 {
			t.Errorf("%+v", got)
		}
	}
}

// An unknown member with the value true or false is a wish for a key of that name, as the same
// words in "other" would be.
func TestAnUnknownBooleanIsAKeyOfItsName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.learner(nil)
	for i, text := range []string{"smoking: false", "smoking: true", "smoking", "smoking: false", "smoking: false", "smoking: true"} {
		wait(t, says(l, fmt.Sprint("task", i), client(i), text))
	}
	l.Look(t.Context())
	keys := r.stored("").Keys(r.clock())
	if len(keys) != 1 || keys[0].Name != "smoking" || keys[0].Type != template.Boolean {
		t.Errorf("%+v", keys)
	}
}

// Senders without signatures are one client, whatever names they claim.
func TestUnsignedSendersAreOneClient(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.learner(nil)
	for i := range 20 {
		wait(t, says(l, fmt.Sprint("task", i), sdsi.Sender{Entity: fmt.Sprint("agent.c", i)}, "a window seat please"))
	}
	if c := r.stored("").Clusters(r.clock()); len(c) != 1 || c[0].Clients != 1 || c[0].Votes != 1 {
		t.Errorf("%+v", c)
	}
	open := r.learner(func(c *learn.Config) { c.Unsigned = true })
	for i := range 5 {
		wait(t, says(open, fmt.Sprint("more", i), sdsi.Sender{Entity: fmt.Sprint("agent.c", i)}, "a window seat please"))
	}
	if c := r.stored("").Clusters(r.clock()); c[0].Clients != 6 {
		t.Errorf("%+v", c)
	}
}

// Personal data is removed before a text is stored; with Reject nothing of such a text is stored.
func TestPersonalDataIsNotStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.learner(nil)
	wait(t, says(l, "1", client(1), "call me at +47 22 33 44 55 or ada@example.org", "IBAN NO93 8601 1117 947, card 4111 1111 1111 1111"))
	raw, _, err := r.pools.Get(t.Context(), ferries, "ferry_booking")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"22 33", "example.org", "ada", "8601", "4111", "agent.c1"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("%s is stored: %s", secret, raw)
		}
	}
	if !strings.Contains(string(raw), "[email]") {
		t.Errorf("%s", raw)
	}
	// Digits of other scripts, and other spaces and dashes between them.
	wait(t, says(l, "3", client(3), "call ٠١٥٢٣٤٥٦٧", "call ０１７０１２３４５", "call 06\u00a012\u00a034\u00a056\u00a078", "call 12–34–56–78", "card 4111‑1111‑1111‑1111"))
	raw, _, _ = r.pools.Get(t.Context(), ferries, "ferry_booking")
	for _, secret := range []string{"٥٢٣٤", "７０１２", "12\u00a034", "34–56", "1111"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("%s is stored: %s", secret, raw)
		}
	}
	strict := r.learner(func(c *learn.Config) { c.Scrub = learn.Reject })
	wait(t, says(strict, "2", client(2), "write to bob@example.org about kayaks"))
	raw, _, _ = r.pools.Get(t.Context(), ferries, "ferry_booking")
	if strings.Contains(string(raw), "kayaks") {
		t.Errorf("%s", raw)
	}
}

// A long text is searched as a whole before it is cut: half an address is not recognized.
func TestPersonalDataOfLongTextsIsNotStored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		scrub func(string) (string, bool)
		kept  bool
	}{
		"across the cut":             {strings.Repeat("kayaks ", 28) + "ada@example.org", learn.Scrub, true}, // it begins at byte 196
		"behind the cut":             {strings.Repeat("kayaks ", 40) + "ada@example.org", learn.Reject, false},
		"across the cut of the desk": {clip.Text("kayaks as in https://"+strings.Repeat("x", 970)+" ada@example.org", template.MaxFragmentBytes), learn.Scrub, true},
	} {
		r := newRig(t)
		l := r.learner(func(cfg *learn.Config) { cfg.Scrub = c.scrub })
		wait(t, says(l, "1", client(1), c.text))
		raw, _, err := r.pools.Get(t.Context(), ferries, "ferry_booking")
		if err != nil || strings.Contains(string(raw), "kayaks") != c.kept || strings.Contains(string(raw), " ada") {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
}

// Cohorts have pools of their own; an excluded sender has none.
func TestCohorts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.learner(func(c *learn.Config) {
		c.Cohorts = []string{"partners"}
		c.Cohort = func(entity string) string {
			if strings.HasSuffix(entity, "7") {
				return "partners"
			}
			return ""
		}
		c.Exclude = func(entity string) bool { return entity == "agent.c3" }
	})
	wait(t, says(l, "1", client(7), "a window seat"), says(l, "2", client(1), "vegetarian meal"), says(l, "3", client(3), "a kayak"))
	for cohort, want := range map[string]string{"partners": "window seat", "": "vegetarian"} {
		raw, _, _ := r.pools.Get(t.Context(), ferries, learn.PoolID("ferry_booking", cohort))
		for _, word := range []string{"window seat", "vegetarian", "kayak"} {
			if strings.Contains(string(raw), word) != (word == want) {
				t.Errorf("cohort %q: %s", cohort, raw)
			}
		}
	}
	for sender, want := range map[int]string{7: "partners", 1: ""} {
		if _, cohort, _ := l.View(t.Context(), "ferry_booking", client(sender)); cohort != want {
			t.Errorf("client %d has the view of cohort %q", sender, cohort)
		}
	}
}

// If the client says which words a value comes from, these are compared with the words that the key
// was made from.
func TestValuesAreJudged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.learner(nil)
	for i := range 6 {
		wait(t, says(l, fmt.Sprint("task", i), client(i), "a window seat please"))
	}
	l.Look(t.Context())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	for i, fragment := range []string{"window seat", "seat at the window", "a dog", "the window seat"} {
		wait(t, l.Observe("ferry_booking", client(i), sdsi.Seen{ID: fmt.Sprint("use", i), Keys: []evolve.Use{{Key: "window_seat"}},
			Values: map[string]json.RawMessage{"window_seat": json.RawMessage("true")}, Fragments: map[string]string{"window_seat": fragment}}))
	}
	natstest.Eventually(t, "four judgements", func() bool { return r.stored("").Keys(r.clock())[0].Metrics.Judged == 4 })
	stop()
	natstest.Within(t, "the end", ended)
	if m := r.stored("").Keys(r.clock())[0].Metrics; m.AlignmentAccuracy != 0.75 || m.Present != 4 || m.TypeCorrectness != 1 {
		t.Errorf("%+v", m)
	}
}

// An unavailable store delays results for at most the patience, and the texts are stored when it is
// available again.
func TestTheStoreIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	away := &faulty{Pools: r.pools}
	away.fail(errors.New("no answer"))
	l := r.learner(func(c *learn.Config) { c.Pools, c.Patience = away, 50*time.Millisecond })
	wait(t, says(l, "1", client(1), "a window seat"))
	away.fail(nil)
	natstest.Eventually(t, "the store", func() bool {
		raw, _, err := r.pools.Get(t.Context(), ferries, "ferry_booking")
		return err == nil && strings.Contains(string(raw), "window")
	})
}

// A store that is away when a worker starts delays its first results, and their texts are stored
// when it answers. Keys that the worker does not know yet are not counted as absent, and their values
// are not stored.
func TestTheStoreIsAwayFromTheStart(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newRig(t)
	learnsWindowSeat(t, r.learner(func(c *learn.Config) {
		c.Induce = func(context.Context, evolve.Cluster, *template.Template) (template.Key, error) {
			return template.Key{Name: "window_seat", Type: template.String, Description: "Which seat."}, nil
		}
	}))
	away := &faulty{Pools: r.pools}
	away.fail(errors.New("no answer"))
	l := r.learner(func(c *learn.Config) { c.Pools, c.Patience, c.Unsigned = away, 50*time.Millisecond, true })
	desk, err := sdsi.NewDesk(sdsi.DeskConfig{Entity: ferries, Templates: []*template.Template{ferry(t)}})
	if err != nil {
		t.Fatal(err)
	}
	desk.Learn(l)
	ready, ended := make(chan struct{}), make(chan error, 1)
	agent := mesh.Agent{Entity: ferries, Ready: func() { close(ready) },
		Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) { return json.RawMessage(`{}`), nil })}
	if err := desk.Attach(&agent); err != nil {
		t.Fatal(err)
	}
	node := func(entity string) *mesh.Node {
		n, err := mesh.New(natstest.Conn(t, r.srv), mesh.Config{Entity: entity, Heartbeat: -1})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- node(ferries).Serve(ctx, agent) }()
	natstest.Within(t, "the agent", ready)
	p := template.Payload{SchemaID: "ferry_v1", Payload: json.RawMessage(`{"harbour_from":"Oslo","window_seat":"by Ada","other":"a kayak"}`)}
	if _, err := sdsi.NewClient(node("agent.c9")).Exchange(t.Context(), ferries, p, sdsi.ExchangeOptions{}); err != nil {
		t.Fatal(err)
	}
	away.fail(nil)
	natstest.Eventually(t, "the text", func() bool {
		raw, _, err := r.pools.Get(t.Context(), ferries, "ferry_booking")
		return err == nil && strings.Contains(string(raw), "kayak")
	})
	if m := r.stored("").Keys(r.clock())[0].Metrics; m.Payloads != 0 {
		t.Errorf("%+v", m)
	}
	if raw, _, _ := r.pools.Get(t.Context(), ferries, "ferry_booking"); strings.Contains(string(raw), "Ada") {
		t.Errorf("the value of a learned key is stored: %s", raw)
	}
	stop()
	natstest.Within(t, "the end", ended)
}

// faulty is a store that fails.
type faulty struct {
	learn.Pools
	mu  sync.Mutex
	err error
}

func (f *faulty) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *faulty) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *faulty) Get(ctx context.Context, entity, id string) ([]byte, uint64, error) {
	if err := f.failure(); err != nil {
		return nil, 0, err
	}
	return f.Pools.Get(ctx, entity, id)
}

func (f *faulty) Swap(ctx context.Context, entity, id string, pool []byte, revision uint64) (uint64, error) {
	if err := f.failure(); err != nil {
		return 0, err
	}
	return f.Pools.Swap(ctx, entity, id, pool, revision)
}

// A stored pool that cannot be read is not replaced.
func TestADamagedPoolStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := r.pools.Swap(t.Context(), ferries, "ferry_booking", []byte(`{"version":9}`), 0); err != nil {
		t.Fatal(err)
	}
	var log natstest.Buffer
	l := r.learner(func(c *learn.Config) {
		c.Patience = 50 * time.Millisecond
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	natstest.Eventually(t, "nothing is learned, and no result waits", func() bool {
		v, _, _ := l.View(t.Context(), "ferry_booking", client(1))
		return v == nil
	})
	wait(t, says(l, "1", client(1), "a window seat"))
	raw, _, err := r.pools.Get(t.Context(), ferries, "ferry_booking")
	if err != nil || string(raw) != `{"version":9}` || !strings.Contains(log.String(), "version 9") {
		t.Errorf("%s %v\n%s", raw, err, log.String())
	}
}

func BenchmarkObserve(b *testing.B) {
	r := newRig(b)
	l := r.learner(nil)
	texts := []string{"a window seat please", "vegetarian meal", "a dog comes along", "two bicycles", "quiet cabin", "late check in"}
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		i := 0
		for pb.Next() {
			i++
			<-says(l, "", client(i), texts[i%len(texts)])
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "inserts/s")
}

package learn

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
)

// A Learner manages the pools of one agent. It is safe for concurrent use.
type Learner struct {
	cfg     Config
	local   bool // the judge is the default one: no value leaves the process
	store   atomic.Pointer[Pools]
	pools   map[poolID]*pool
	judging chan judging
	texts   chan struct{}  // has one element for each observation that is being embedded
	kick    chan struct{}  // signals a ripe cluster
	unread  rate.Sometimes // logs that texts are not learned from
}

// A poolID names a pool of an agent.
type poolID struct{ scenario, cohort string }

// PoolID returns the id of a scenario's pool in [jetstream.Pools].
func PoolID(scenario, cohort string) string {
	if cohort == "" {
		return scenario
	}
	return scenario + "\n" + cohort // scenarios contain no line breaks
}

// Use sets the store. Before that the learner learns nothing.
func (l *Learner) Use(p Pools) { l.store.Store(&p) }

// client returns the name of a sender in a pool, and whether the pool may learn from it.
func (p *pool) client(from sdsi.Sender) (client string, ok bool) {
	cfg := &p.learner.cfg
	if cfg.Exclude(from.Entity) || p.out.Load().Has(from.Entity) {
		return evolve.Client(""), false
	}
	if !from.Verified && !cfg.Unsigned {
		return evolve.Client(""), true
	}
	return evolve.Client(from.Entity), true
}

func (l *Learner) pool(scenario string, from sdsi.Sender) *pool {
	cohort := ""
	if from.Verified || l.cfg.Unsigned {
		cohort = l.cfg.Cohort(from.Entity)
	}
	if p := l.pools[poolID{scenario, cohort}]; p != nil {
		return p
	}
	return l.pools[poolID{scenario, ""}]
}

// View implements [sdsi.Learner].
func (l *Learner) View(ctx context.Context, scenario string, from sdsi.Sender) (v *evolve.View, cohort, client string) {
	p := l.pool(scenario, from)
	if p == nil || l.store.Load() == nil {
		return nil, "", ""
	}
	if v = p.seen(ctx); v == nil {
		if p.damaged.Load() {
			return nil, "", ""
		}
		v = &evolve.View{} // it cannot be read for now; texts wait for it
	}
	client, _ = p.client(from)
	return v, p.id.cohort, client
}

// Told implements [sdsi.Learner].
func (l *Learner) Told(scenario string, from sdsi.Sender, keys []string) {
	p := l.pool(scenario, from)
	if p == nil || len(keys) == 0 {
		return
	}
	if client, ok := p.client(from); ok {
		p.submit(change{plain: true, from: from.Entity, apply: func(e *evolve.Pool, _ time.Time) bool { return e.Received(client, keys) }})
	}
}

// Observe implements [sdsi.Learner].
func (l *Learner) Observe(scenario string, from sdsi.Sender, seen sdsi.Seen) <-chan struct{} {
	p := l.pool(scenario, from)
	if p == nil {
		return nil
	}
	client, ok := p.client(from)
	if !ok {
		return nil
	}
	o := evolve.Observation{ID: seen.ID, Client: client, Keys: seen.Keys, Refused: seen.Refused}
	for i, text := range seen.Others {
		if i == evolve.MaxFragments {
			break
		}
		if clean, keep := l.clean(text); keep && clean != "" {
			o.Fragments = append(o.Fragments, evolve.Fragment{Text: clean})
		}
	}
	c := change{from: from.Entity, plain: len(o.Fragments)+len(o.Keys) == 0, done: make(chan struct{})}
	counted := false // written before done is closed
	c.apply = func(e *evolve.Pool, now time.Time) bool {
		counted = e.Observe(o, now)
		return counted
	}
	if values := l.sample(p, from, client, seen); len(values) > 0 {
		go func() {
			<-c.done
			if counted { // not a repeated request, nor one of a client that has opted out
				l.judge(values)
			}
		}()
	}
	if len(o.Fragments) == 0 {
		p.submit(c)
		if c.plain {
			return nil
		}
		return p.patient(c.done)
	}
	select {
	case l.texts <- struct{}{}:
	default:
		l.unread.Do(func() { p.log().Warn("texts of other are not learned from", "err", "the embedder is too slow") })
		o.Fragments = nil // the payload is still counted
		p.submit(c)
		return p.patient(c.done)
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := l.embed(ctx, o.Fragments); err != nil {
			l.unread.Do(func() { p.log().Warn("texts of other are not learned from", "err", err) })
			o.Fragments = nil // the payload is still counted
		}
		<-l.texts
		for _, f := range o.Fragments {
			c.size += len(f.Text) + 4*len(f.Vector)
		}
		p.submit(c)
	}()
	return p.patient(c.done)
}

// maxEmbedding is how many observations are embedded at once.
const maxEmbedding = 256

// clean returns the part of a text that may be stored. It scrubs the whole text and then truncates
// it, because Scrub does not recognize half an address. If the text was truncated before, clean
// removes its last word.
func (l *Learner) clean(text string) (clean string, keep bool) {
	if strings.HasSuffix(text, "…") {
		text = text[:strings.LastIndexByte(text, ' ')+1]
	}
	// A client that sends "smoking": false needs a key "smoking" as much as one that sends true.
	clean, keep = l.cfg.Scrub(template.WithoutTruth(text))
	return clip.Text(clean, evolve.MaxFragmentBytes), keep
}

// patient returns a channel that closes when done closes, or after [Config.Patience].
func (p *pool) patient(done <-chan struct{}) <-chan struct{} {
	either := make(chan struct{})
	go func() {
		defer close(either)
		wait := time.NewTimer(p.learner.cfg.Patience)
		defer wait.Stop()
		select {
		case <-done:
		case <-wait.C:
		}
	}()
	return either
}

// embed sets the vectors of fragments.
func (l *Learner) embed(ctx context.Context, fragments []evolve.Fragment) error {
	texts := make([]string, len(fragments))
	for i, f := range fragments {
		texts[i] = f.Text
	}
	vectors, err := l.cfg.Embedder.Embed(ctx, texts)
	if err != nil {
		return err
	}
	if len(vectors) != len(fragments) {
		return errors.New("the embedder has returned another number of vectors")
	}
	for i, v := range vectors {
		fragments[i].Vector = v
	}
	return nil
}

// Run manages the pools until ctx ends: it makes keys from ripe clusters, advances the states of
// keys, publishes events, and judges values. Several workers may run at the same time.
func (l *Learner) Run(ctx context.Context) {
	var wait sync.WaitGroup
	wait.Go(func() { l.judgeAll(ctx) })
	tick := time.NewTicker(l.cfg.Interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, p := range l.sorted() {
			p.advance(ctx)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-l.kick:
		}
	}
	wait.Wait()
	for _, p := range l.sorted() {
		p.drain()
	}
}

func (l *Learner) sorted() []*pool {
	return slices.SortedFunc(maps.Values(l.pools), func(a, b *pool) int {
		return slices.Compare([]string{a.id.scenario, a.id.cohort}, []string{b.id.scenario, b.id.cohort})
	})
}

func (p *pool) log() *slog.Logger {
	log := p.learner.cfg.Logger.With("entity", p.learner.cfg.Entity, "scenario", p.id.scenario)
	if p.id.cohort != "" {
		log = log.With("cohort", p.id.cohort)
	}
	return log
}

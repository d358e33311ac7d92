package simulate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/embedding"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
)

// Config configures a simulation. Learn and Template are required.
type Config struct {
	// Learn has the rules and the functions that make and judge keys; its fields for a mesh are not
	// used.
	Learn learn.Config
	// Template is the scenario's template.
	Template *template.Template
	// Careless is the share of wishes that a client puts into a wrong key. Default 0.02.
	Careless float64
	// Approve simulates an operator who approves each waiting key after a day.
	Approve bool
	// Progress, if set, is called now and then.
	Progress func(requests int, at time.Time)
}

// tick is how often a worker updates the pool.
const tick = time.Hour

// clientRenews is how often a client requests the template again.
const clientRenews = 24 * time.Hour

// simulation is a running simulation.
type simulation struct {
	cfg      Config
	pool     *evolve.Pool
	view     *evolve.View
	now      time.Time
	next     time.Time // of the next tick
	random   *rand.Rand
	clients  map[string]*client
	matches  map[matchKey]bool // whether a key covers words
	examples map[string][][]float32
	vectors  map[string][]float32
	report   *Report
	today    *Day
	keys     map[string]*Key // by name
	// attackers are those of the generator; spotted is the generation of the view that was searched
	// last.
	attackers []attacker
	spotted   uint64
	samplers  map[string]*evolve.Sampler // of the values to judge, by key
}

// client is a simulated client's knowledge.
type client struct {
	id    string
	keys  []template.Key
	asked time.Time
}

type matchKey struct{ description, words string }

// maxRemembered bounds the caches of computed values.
const maxRemembered = 1 << 17

// Run runs a simulation. gen is the generator of the traffic; it is nil if the traffic comes from a
// file.
func Run(ctx context.Context, cfg Config, traffic Traffic, gen *Generator) (*Report, error) {
	var err error
	if cfg.Learn, err = cfg.Learn.WithDefaults(); err != nil {
		return nil, err
	}
	if cfg.Template == nil {
		return nil, errors.New("simulate: the template is missing")
	}
	cfg.Careless = cmp.Or(cfg.Careless, 0.02)
	s := &simulation{cfg: cfg, spotted: 1, random: rand.New(rand.NewPCG(6, 2)), clients: map[string]*client{}, report: &Report{Limits: cfg.Learn.Rules, LastKey: -1},
		matches: map[matchKey]bool{}, examples: map[string][][]float32{}, vectors: map[string][]float32{}, keys: map[string]*Key{}, samplers: map[string]*evolve.Sampler{}}
	if s.pool, err = evolve.New(cfg.Learn.Rules, cfg.Learn.Embedder.Name()); err != nil {
		return nil, err
	}
	if gen != nil {
		s.attackers = gen.attackers()
	}
	s.view = s.pool.View()
	began := time.Now()
	for r, err := range traffic {
		if err != nil {
			return nil, err
		}
		if err := s.until(ctx, r.At); err != nil {
			return nil, err
		}
		if err := s.request(ctx, r); err != nil {
			return nil, err
		}
		if s.report.Requests%10_000 == 0 && cfg.Progress != nil {
			cfg.Progress(s.report.Requests, s.now)
		}
	}
	if s.report.Requests == 0 {
		return nil, errors.New("there are no requests")
	}
	s.finish(time.Since(began))
	return s.report, nil
}

// until advances the clock, and simulates the worker's updates of the pool meanwhile.
func (s *simulation) until(ctx context.Context, at time.Time) error {
	if s.now.IsZero() {
		s.report.Start, s.next = at, at.Add(tick)
	}
	for !at.Before(s.next) {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.now = s.next
		s.next = s.next.Add(tick)
		if err := s.advancePool(ctx); err != nil {
			return err
		}
	}
	s.now = at
	if day := s.day(); s.today == nil || s.today.Day != day {
		s.report.Days = append(s.report.Days, Day{Day: day})
		s.today = &s.report.Days[len(s.report.Days)-1]
	}
	return nil
}

func (s *simulation) day() int { return int(s.now.Sub(s.report.Start) / (24 * time.Hour)) }

// advancePool updates the pool as a worker does.
func (s *simulation) advancePool(ctx context.Context) error {
	s.pool.Advance(s.now)
	for _, c := range s.pool.Ripe(s.now) {
		if !s.pool.Claim(c.ID, s.now, tick/2) {
			continue
		}
		k, why, err := s.cfg.Learn.Candidate(ctx, c, s.cfg.Template)
		if err == nil {
			err = s.pool.Propose(c, k, s.cfg.Template, why, s.now)
		}
		if err != nil && !errors.Is(err, evolve.ErrNoKey) {
			return err
		}
	}
	keys := s.pool.Keys(s.now)
	if s.cfg.Approve {
		for _, k := range keys {
			if k.State == evolve.Pending && s.now.Sub(k.Since) >= 24*time.Hour {
				if err := s.pool.Approve(k.Name, "simulated", s.now); err != nil {
					return err
				}
			}
		}
	}
	s.view = s.pool.View()
	s.follow(s.pool.Keys(s.now))
	if s.now.Sub(s.report.Start)%(6*time.Hour) == 0 {
		raw, err := s.pool.Encode(s.now)
		if err != nil {
			return err
		}
		s.report.LargestPool = max(s.report.LargestPool, len(raw))
	}
	return nil
}

// request simulates one request: the client fills in the template as far as it knows it, and the
// pool counts the payload.
func (s *simulation) request(ctx context.Context, r Request) error {
	s.report.Requests++
	s.today.Requests++
	if s.cfg.Learn.Exclude(r.Client) {
		return nil
	}
	c := s.clients[r.Client]
	if c == nil {
		c = &client{id: evolve.Client(r.Client)}
		s.clients[r.Client] = c
	}
	if s.now.Sub(c.asked) >= clientRenews {
		s.tell(c)
	}
	o := evolve.Observation{Client: c.id}
	for _, words := range r.Wishes {
		words, keep := s.cfg.Learn.Scrub(words)
		if !keep || words == "" {
			continue
		}
		s.count(&r, func(t *Tally) { t.Wishes++ })
		key, err := s.choose(ctx, c, words)
		if err != nil {
			return err
		}
		if key == nil {
			v, err := s.vector(ctx, words)
			if err != nil {
				return err
			}
			o.Fragments = append(o.Fragments, evolve.Fragment{Text: words, Vector: v})
			s.count(&r, func(t *Tally) { t.Other++ })
			continue
		}
		if slices.ContainsFunc(o.Keys, func(u evolve.Use) bool { return u.Key == key.Name }) {
			continue
		}
		o.Keys = append(o.Keys, evolve.Use{Key: key.Name})
		if key.Experimental || s.sampled(key.Name, c.id) {
			aligned, sure, err := s.cfg.Learn.Judge(ctx, learn.Judgement{Key: *key, Value: valueOf(key, words), Fragment: words})
			if err != nil {
				return err
			}
			if sure {
				s.pool.Judge(key.Name, c.id, aligned, s.now)
			}
		}
	}
	s.pool.Observe(o, s.now)
	if len(o.Fragments) > 0 {
		s.tell(c) // with the result
	}
	return nil
}

func (s *simulation) count(r *Request, f func(*Tally)) {
	if r.attack != "" {
		f(s.report.attack(r.attack))
		return
	}
	f(&s.today.Tally)
}

// sampled reports whether a value of a key after its trial is judged.
func (s *simulation) sampled(key, client string) bool {
	if s.samplers[key] == nil {
		s.samplers[key] = &evolve.Sampler{}
	}
	return s.samplers[key].Take(client, learn.JudgedADay, s.now)
}

// tell gives a client the current keys.
func (s *simulation) tell(c *client) {
	c.asked, c.keys = s.now, nil
	var names []string
	for _, p := range s.view.Patches(s.cfg.Template, c.id, s.now) {
		c.keys = append(c.keys, p.NewKeys...)
	}
	for _, k := range c.keys {
		if !k.Deprecated {
			names = append(names, k.Name)
		}
	}
	s.pool.Received(c.id, names)
}

// choose returns the key that a client chooses for its words; nil: none.
func (s *simulation) choose(ctx context.Context, c *client, words string) (*template.Key, error) {
	var open []int
	for i, k := range c.keys {
		if k.Deprecated {
			continue
		}
		open = append(open, i)
		covered, err := s.covers(ctx, k.Description, words)
		if err != nil {
			return nil, err
		}
		if covered {
			return &c.keys[i], nil
		}
	}
	if len(open) > 0 && s.random.Float64() < s.cfg.Careless {
		return &c.keys[open[s.random.IntN(len(open))]], nil
	}
	return nil, nil
}

// covers reports whether an example in a key's description is similar to words.
func (s *simulation) covers(ctx context.Context, description, words string) (bool, error) {
	id := matchKey{description, words}
	if yes, ok := s.matches[id]; ok {
		return yes, nil
	}
	v, err := s.vector(ctx, words)
	if err != nil {
		return false, err
	}
	examples, ok := s.examples[description]
	if !ok {
		if texts := learn.ExamplesIn(description); len(texts) > 0 {
			if examples, err = s.cfg.Learn.Embedder.Embed(ctx, texts); err != nil {
				return false, err
			}
		}
		s.examples[description] = examples
	}
	yes := slices.ContainsFunc(examples, func(e []float32) bool { return embedding.Cosine(e, v) >= covering })
	if len(s.matches) >= maxRemembered {
		clear(s.matches)
	}
	s.matches[id] = yes
	return yes, nil
}

// covering is the least similarity at which a client chooses a key for its words. It lies between
// that of a judge, who only asks whether a value can be meant, and that of a cluster.
const covering = 0.7

func (s *simulation) vector(ctx context.Context, words string) ([]float32, error) {
	if v := s.vectors[words]; v != nil {
		return v, nil
	}
	vs, err := s.cfg.Learn.Embedder.Embed(ctx, []string{words})
	if err != nil {
		return nil, err
	}
	if len(vs) != 1 {
		return nil, fmt.Errorf("the embedder returned %d vectors for a text", len(vs))
	}
	if len(s.vectors) >= maxRemembered {
		clear(s.vectors)
	}
	s.vectors[words] = vs[0]
	return vs[0], nil
}

// valueOf returns the value of a key that a client makes from its words.
func valueOf(k *template.Key, words string) json.RawMessage {
	if k.Type == template.Boolean {
		return json.RawMessage("true")
	}
	for _, w := range template.Words(words) {
		if strings.Trim(w.Text, "0123456789") == "" && (k.Type == template.Integer || k.Type == template.Number) {
			return json.RawMessage(w.Text)
		}
	}
	if k.Type == template.Integer || k.Type == template.Number {
		return json.RawMessage("1")
	}
	raw, _ := json.Marshal(words) // marshalling a string cannot fail
	return raw
}

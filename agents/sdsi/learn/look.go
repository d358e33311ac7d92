package learn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/agents/embedding"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
)

// advance advances the states of a pool's keys, makes keys from its ripe clusters, and publishes
// its events.
func (p *pool) advance(ctx context.Context) {
	if p.learner.store.Load() == nil {
		return
	}
	ready := p.learner.cfg.Sensitive.Ready()
	var ripe []evolve.Cluster
	var waits bool
	var late atomic.Bool // advance has returned: apply must not claim a cluster
	err := p.try(ctx, change{again: true, apply: func(e *evolve.Pool, now time.Time) bool {
		if late.Load() {
			return false
		}
		changed := e.Refit(p.template, now)
		changed = e.Advance(now) || changed
		ripe, waits = nil, false
		for _, c := range e.Ripe(now) {
			if !ready { // the key would wait for an operator, for no other reason
				waits = true
				break
			}
			if e.Claim(c.ID, now, claimFor) {
				ripe = append(ripe, c)
			}
		}
		return changed || len(ripe) > 0
	}})
	if err != nil {
		late.Store(true)
		if ctx.Err() == nil {
			p.log().Warn("no key comes of the pool for now", "err", err)
		}
		return
	}
	if waits && !p.waits {
		p.log().Warn("no key comes of the pool for now: a server of the agent has not listed its tools yet, and a key may expose one")
	}
	p.waits = waits
	for _, c := range ripe {
		if ctx.Err() != nil {
			return
		}
		err := p.propose(ctx, c)
		if err != nil {
			level := p.log().Warn
			if errors.Is(err, evolve.ErrNoKey) {
				level = p.log().Info
			}
			level("no key comes of a cluster for now", "cluster", c.ID, "err", err)
		}
		if errors.Is(err, errLate) {
			return // calls of a model for the others would be wasted
		}
	}
	p.tell(ctx)
}

// propose makes a key from a cluster, and proposes it to the pool.
func (p *pool) propose(ctx context.Context, c evolve.Cluster) error {
	cfg := p.learner.cfg
	ctx, cancel := context.WithTimeout(ctx, claimFor/2)
	defer cancel()
	k, why, err := cfg.Candidate(ctx, c, p.template)
	if err != nil {
		return err
	}
	var failed error
	if err := p.try(ctx, change{apply: func(e *evolve.Pool, now time.Time) bool {
		failed = e.Propose(c, k, p.template, why, now)
		return failed == nil
	}}); err != nil {
		return err
	}
	return failed
}

// tell publishes the events that no worker has published yet. If a worker dies before it has stored
// how far it came, an event is published twice, with the same Event.Number.
func (p *pool) tell(ctx context.Context) {
	var events []evolve.Event
	if p.try(ctx, change{apply: func(e *evolve.Pool, _ time.Time) bool { events = e.Untold(); return false }}) != nil {
		return
	}
	told := uint64(0)
	for _, e := range events {
		if err := p.learner.cfg.Tell(p.id.scenario, p.id.cohort, e); err != nil {
			p.log().Warn("event not sent", "number", e.Number, "err", err)
			break
		}
		args := []any{"event", e.Kind, "key", e.Key, "number", e.Number}
		if e.Why != "" {
			args = append(args, "why", e.Why)
		}
		if e.By != "" {
			args = append(args, "by", e.By)
		}
		if e.Kind == evolve.KindProposed {
			p.log().Warn("a key waits for an operator: aeemesh schema pending "+p.learner.cfg.Entity, args...)
		} else {
			p.log().Info("schema template", args...)
		}
		told = e.Number
	}
	if told > 0 {
		_ = p.try(ctx, change{apply: func(e *evolve.Pool, _ time.Time) bool { e.Told(told); return true }}) // if this fails, the events are published again
	}
}

// judging is a value that waits to be judged.
type judging struct {
	pool   *pool
	from   string
	client string
	Judgement
}

// sample returns the values of a payload that are to be judged: up to a bound, because a sample is
// enough. A client that sends very many values neither displaces the values of others nor costs
// more calls of a model.
func (l *Learner) sample(p *pool, from sdsi.Sender, client string, seen sdsi.Seen) (values []judging) {
	if len(seen.Fragments) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view == nil {
		return nil
	}
	for name, fragment := range seen.Fragments {
		k, _ := p.view.Key(name, client)
		words, keep := l.cfg.Scrub(fragment)
		if !keep || k.Name == "" {
			continue
		}
		if value, ok := l.shown(seen.Values[name]); ok && p.sampled(k, client) {
			values = append(values, judging{p, from.Entity, client, Judgement{k, value, words}})
		}
	}
	return values
}

// judge queues values. If the queue is full it drops them.
func (l *Learner) judge(values []judging) {
	for _, v := range values {
		select {
		case l.judging <- v:
		default:
		}
	}
}

// maxJudgedBytes bounds a value that a model judges.
const maxJudgedBytes = 4 << 10

// shown returns a value as the judge gets it; ok is false if it gets none. A judge that may be a
// model's gets the value without what [Config.Scrub] removes, as it gets the client's words.
func (l *Learner) shown(value json.RawMessage) (clean json.RawMessage, ok bool) {
	if l.local {
		return value, true
	}
	if len(value) > maxJudgedBytes {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber() // as it is written
	var v any
	if d.Decode(&v) != nil {
		return nil, false
	}
	if v, ok = l.scrubbed(v); !ok {
		return nil, false
	}
	clean, err := json.Marshal(v)
	return clean, err == nil
}

// scrubbed returns a decoded value without personal data in its texts, numbers and names of members;
// ok is false if nothing of one of them may be kept.
func (l *Learner) scrubbed(v any) (clean any, ok bool) {
	switch v := v.(type) {
	case string:
		return l.scrub(v)
	case json.Number:
		if text, ok := l.scrub(v.String()); !ok || text != v.String() {
			return text, ok
		}
	case []any:
		for i := range v {
			if v[i], ok = l.scrubbed(v[i]); !ok {
				return nil, false
			}
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, of := range v {
			if name, ok = l.scrub(name); !ok {
				return nil, false
			}
			if out[name], ok = l.scrubbed(of); !ok {
				return nil, false
			}
		}
		return out, true
	}
	return v, true
}

// scrub is [Config.Scrub], and leaves the white space of a text that it does not change otherwise.
func (l *Learner) scrub(text string) (clean string, keep bool) {
	clean, keep = l.cfg.Scrub(text)
	if keep && strings.TrimSpace(clean) == strings.TrimSpace(text) {
		return text, true
	}
	return clean, keep
}

// maxSamplers bounds the keys whose values a pool samples. It is more than the pool has keys.
const maxSamplers = 256

// JudgedADay is how many values of a key a worker lets judge on a day, after the key's trial. Keys
// on trial have no such bound, because they end soon.
const JudgedADay = 100

// sampled reports whether a value of a client is to be judged; p.mu is held.
func (p *pool) sampled(k template.Key, client string) bool {
	key, most := k.Name, JudgedADay
	if k.Experimental {
		most = 0
	}
	s := p.samplers[key]
	if s == nil {
		if s = (&evolve.Sampler{}); p.samplers == nil || len(p.samplers) >= maxSamplers {
			p.samplers = map[string]*evolve.Sampler{}
		}
		p.samplers[key] = s
	}
	return s.Take(client, most, p.learner.cfg.Now())
}

func (l *Learner) judgeAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-l.judging:
			asking, cancel := context.WithTimeout(ctx, 30*time.Second)
			aligned, sure, err := l.cfg.Judge(asking, j.Judgement)
			cancel()
			if err != nil {
				j.pool.log().Warn("a value was not judged", "key", j.Key.Name, "err", err)
			} else if sure {
				j.pool.submit(change{plain: true, from: j.from, apply: func(e *evolve.Pool, now time.Time) bool {
					e.Judge(j.Key.Name, j.client, aligned, now)
					return true
				}})
			}
		}
	}
}

// Alike is the least similarity at which words count as the meaning of a key. It is lower than that
// of a cluster, because the key's description contains other words, too.
const Alike = 0.5

// compareWith returns a judge that needs no model: it compares the client's words with those that
// the key was made from. It is sure of booleans and of texts; a number must be among the words.
func compareWith(e embedding.Embedder) func(context.Context, Judgement) (aligned, sure bool, err error) {
	return func(ctx context.Context, j Judgement) (aligned, sure bool, err error) {
		examples := ExamplesIn(j.Key.Description)
		if len(examples) == 0 {
			return false, false, nil
		}
		vectors, err := e.Embed(ctx, append([]string{j.Fragment}, examples...))
		if err != nil || len(vectors) != len(examples)+1 {
			return false, false, err
		}
		best := 0.0
		for _, v := range vectors[1:] {
			best = max(best, embedding.Cosine(v, vectors[0]))
		}
		return best >= Alike && comesFromWords(j.Value, j.Key.Type, j.Fragment), true, nil
	}
}

// comesFromWords reports whether a value can come from words. If the words have digits, a number must be
// one of them; false never can.
func comesFromWords(value json.RawMessage, typ template.Type, fragment string) bool {
	if typ != template.Integer && typ != template.Number {
		return string(value) != "false" || typ != template.Boolean
	}
	hasDigits := false
	number, err := strconv.ParseFloat(string(value), 64)
	for _, w := range template.Words(fragment) {
		if said, bad := strconv.ParseFloat(w.Text, 64); bad == nil && err == nil && said == number {
			return true
		}
		hasDigits = hasDigits || w.Text[0] >= '0' && w.Text[0] <= '9'
	}
	return !hasDigits // a model may have read a word such as "two" as a number
}

// ExamplesIn returns the quoted words of a description's mapping examples.
func ExamplesIn(description string) (out []string) {
	from := -1
	for i := 0; i < len(description) && len(out) < 6; i++ {
		if description[i] != '\'' {
			continue
		}
		if from >= 0 {
			if text := description[from:i]; text != "" && len(text) <= 200 {
				out = append(out, text)
			}
			from = -1
		} else {
			from = i + 1
		}
	}
	return out
}

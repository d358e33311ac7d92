package evolve

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// crowd observes n payloads of 40 clients in a day; every second one has the key.
func crowd(p *Pool, n int, now time.Time) {
	for i := range n {
		client := Client(fmt.Sprint("agent.c", i%40))
		o := Observation{Client: client}
		if i/40%2 == 0 {
			o.Keys = []Use{{Key: "window_seat"}}
			p.Judge("window_seat", client, true, now)
		}
		p.Observe(o, now)
	}
}

// No single client, however much it sends, determines the state of a key.
func TestNoClientMovesAKeyAlone(t *testing.T) {
	t.Parallel()
	const loud = "agent.loud"
	for name, c := range map[string]struct {
		crowd   int // payloads of the others a day
		attack  func(p *Pool, now time.Time)
		want    State
		unmoved func(m Metrics) bool
	}{
		"payloads without the key": {400, func(p *Pool, now time.Time) { p.Observe(Observation{Client: Client(loud)}, now) },
			Stable, func(m Metrics) bool { return m.UsageFrequency > 0.4 }},
		"values of a wrong type": {400, func(p *Pool, now time.Time) {
			p.Observe(Observation{Client: Client(loud), Keys: []Use{{"window_seat", true}}, Refused: true}, now)
		}, Stable, func(m Metrics) bool { return m.TypeCorrectness >= 0.9 }},
		"values that mean nothing": {400, func(p *Pool, now time.Time) { p.Judge("window_seat", Client(loud), false, now) },
			Stable, func(m Metrics) bool { return m.AlignmentAccuracy >= 0.8 }},
		"nobody else uses it": {0, func(p *Pool, now time.Time) {
			for i := range 40 {
				p.Observe(Observation{Client: Client(fmt.Sprint("agent.c", i))}, now)
			}
			p.Observe(Observation{Client: Client(loud), Keys: []Use{{Key: "window_seat"}}}, now)
		}, Deprecated, func(m Metrics) bool { return m.UsageFrequency < 0.05 }},
	} {
		p := onTrial(t, Config{})
		for d := range 7 {
			now := start.Add(time.Duration(d)*day + time.Hour)
			crowd(p, c.crowd, now)
			for range 3000 {
				c.attack(p, now)
			}
			crowd(p, c.crowd, now)
		}
		at := start.Add(7 * day)
		p.Advance(at)
		if got := state(p, "window_seat", at); got != c.want || !c.unmoved(p.Keys(at)[0].Metrics) {
			t.Errorf("%s: %s, %+v", name, got, p.Keys(at)[0].Metrics)
		}
	}
}

// A few clients that send an ordinary number of values all count.
func TestFewClientsCount(t *testing.T) {
	t.Parallel()
	p := onTrial(t, Config{})
	for i := range 30 {
		o := Observation{Client: Client(fmt.Sprint("agent.c", i%2))}
		if i%3 == 0 {
			o.Keys = []Use{{Key: "window_seat"}}
		}
		p.Observe(o, start.Add(time.Hour))
	}
	if m := p.Keys(start)[0].Metrics; m.Payloads != 30 || m.Present != 10 {
		t.Errorf("%+v", m)
	}
}

// The table is bounded, and tracks a client with more than its share among any number of others.
func TestSharesFollowTheBusiest(t *testing.T) {
	t.Parallel()
	l := limit{least: 5, part: 32, follow: 64}
	var s shares
	loud := 0
	for i := range 20_000 {
		if s.take("loud", l, start) {
			loud++
		}
		s.take(fmt.Sprint("c", i), l, start)
		if !s.fits(l) {
			t.Fatalf("%+v", s)
		}
	}
	if loud > s.N/20 || loud < s.N/64 {
		t.Errorf("%d of %d", loud, s.N)
	}
	if !s.take("loud", l, start.Add(day)) || s.N != 1 {
		t.Errorf("the next day: %+v", s)
	}
	if !s.forget("loud") || slices.ContainsFunc(s.Top, func(p portion) bool { return p.Client == "loud" }) {
		t.Error("it is not forgotten")
	}
}

// A bounded sample takes no more values on a day, from however many clients.
func TestASampleIsBounded(t *testing.T) {
	t.Parallel()
	s := Sampler{}
	for d := range 2 {
		taken := 0
		for i := range 1000 {
			if s.Take(fmt.Sprint("c", i%300), 100, start.Add(time.Duration(d)*day)) {
				taken++
			}
		}
		if taken != 100 {
			t.Errorf("day %d: %d values", d, taken)
		}
	}
	all := Sampler{}
	for i := range 1000 {
		if !all.Take(fmt.Sprint("c", i), 0, start) {
			t.Fatalf("without a bound value %d is not taken", i)
		}
	}
}

// A name that differs only in a plural, or in the order of its words, means the same key.
func TestAPluralRefines(t *testing.T) {
	t.Parallel()
	p := newPool(t, Config{})
	for i, text := range []string{"vegetarian meal", "vegetarian meals", "meal vegetarian"} {
		many(p, 6, wish(i, text), start.Add(time.Duration(i)*time.Hour))
		propose(t, p, start.Add(time.Duration(i)*time.Hour+6*time.Minute))
	}
	if keys := p.Keys(start); len(keys) != 1 || keys[0].Name != "vegetarian_meal" {
		t.Errorf("%+v", keys)
	}
	for _, pair := range [][2]string{{"glass", "glas"}, {"bus", "bu"}, {"red_seat", "seat"}, {"less", "les"}} {
		if sameName(pair[0], pair[1]) {
			t.Errorf("%v", pair)
		}
	}
}

// A new key is not refused because of retired ones.
func TestRetiredKeysMakeRoom(t *testing.T) {
	t.Parallel()
	p := newPool(t, Config{})
	for i := range maxLives * 3 / 4 {
		k := onTrial(t, Config{}).doc.Lives[0]
		k.Key.Name, k.State = fmt.Sprint("key_", i), Retired
		p.doc.Lives = append(p.doc.Lives, k)
	}
	many(p, 6, wish(1, "a window seat"), start)
	if propose(t, p, start.Add(6*time.Minute)) != 1 {
		t.Errorf("no room beside %d retired keys", len(p.doc.Lives))
	}
}

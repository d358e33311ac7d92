package evolve

import (
	"strings"
	"testing"
	"time"
)

// The pool removes a cluster that was assigned to a key when it gets no votes for long, and at the
// latest with the key. Otherwise such clusters would fill the pool, and prevent new ones.
func TestAbsorbedWishesGo(t *testing.T) {
	t.Parallel()
	p := newPool(t, Config{Personal: true})
	many(p, 6, wish(1, "a cabin"), start.Add(-6*time.Minute)) // refines the template's key cabin
	propose(t, p, start)
	many(p, 6, wish(2, "the cabins"), start.Add(-6*time.Minute)) // the key is there
	many(p, 6, wish(3, "dogs"), start.Add(-6*time.Minute))
	propose(t, p, start)
	many(p, 6, wish(4, "the dogs with me"), start.Add(-6*time.Minute)) // in other words
	for i := range 10 {
		p.says("agent.frequent", wish(3, "dogs"), start.Add(time.Duration(i)*time.Minute))
	}
	propose(t, p, start.Add(10*time.Minute))
	taken := func(key string) (n int) {
		for _, c := range p.Clusters(start) {
			if c.Key == key {
				n++
			}
		}
		return n
	}
	if taken("cabin") != 2 || taken("dogs") != 3 {
		t.Fatalf("%+v", p.Clusters(start))
	}
	at := start.Add(31 * day)
	many(p, 1, wish(3, "dogs"), at)
	p.Advance(at)
	if taken("cabin") != 1 || taken("dogs") != 1 {
		t.Errorf("after a month without them: %d and %d", taken("cabin"), taken("dogs"))
	}
	// A cluster with recent votes is removed with the key.
	for i := range 10 {
		p.says("agent.frequent", wish(3, "dogs"), at.Add(time.Duration(i)*time.Minute))
	}
	propose(t, p, at.Add(10*time.Minute))
	l := p.life("dogs", "")
	if taken("dogs") != 2 || l == nil {
		t.Fatalf("%+v", p.Clusters(at))
	}
	own := &cluster{ID: p.next(), Owner: "another", Key: "dogs", At: at.Unix()}
	p.doc.Clusters = append(p.doc.Clusters, own)
	p.doc.Lives = append(p.doc.Lives, &life{Key: l.Key, Owner: "another", Cluster: own.ID, State: Stable})
	if p.end(l, KindEnded, "", at); taken("dogs") != 1 || p.cluster(own.ID) == nil {
		t.Errorf("after the end of the key: %+v", p.Clusters(at))
	}
}

// The description of a key that an operator has approved is not changed without an operator (SDSI
// 7).
func TestAnApprovedKeyIsNotRefined(t *testing.T) {
	t.Parallel()
	for approved, want := range map[bool]int{false: 2, true: 1} {
		p := newPool(t, Config{})
		many(p, 6, wish(1, "small dogs"), start.Add(-6*time.Minute))
		why := ""
		if approved {
			why = "the model says so"
		}
		c := p.Ripe(start)[0]
		k, err := Rules(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Propose(c, k, base(t), why, start); err != nil {
			t.Fatal(err)
		}
		if approved {
			if err := p.Approve("small_dogs", "human.ops", start); err != nil {
				t.Fatal(err)
			}
		}
		many(p, 6, wish(2, "dogs that are small"), start.Add(-6*time.Minute))
		propose(t, p, start)
		if k := p.Keys(start)[0]; k.State != Experimental || strings.Count(k.Description, "xample mapping") != want {
			t.Errorf("approved %v: %+v", approved, k)
		}
	}
}

package evolve

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// Propose adds a key that was made from a cluster (SDSI 6.2.2). The key goes on trial, waits for a
// place on trial, or waits for an operator; in the last case sensitive is the reason. If the base
// template or the pool has a key of this name, Propose improves that key's description instead.
// about is the cluster as it was when the key was made and checked: no later words of clients get
// into the description. The error wraps [ErrNoKey] if k cannot become a key; the cluster then
// continues to collect votes.
func (p *Pool) Propose(about Cluster, k template.Key, base *template.Template, sensitive string, now time.Time) error {
	c := p.cluster(about.ID)
	if c == nil || !c.ripe(p.cfg, now) {
		return fmt.Errorf("%w: it has cooled down, or has a key", ErrNoKey)
	}
	k, err := checkCandidate(k, about)
	if err != nil {
		return err
	}
	p.Refit(base, now)
	if sensitive == "" && p.cfg.Approve == ApproveAll {
		sensitive = "every change waits for an operator"
	}
	if there := Like(base, k.Name); there != nil {
		p.refineBase(c, there, about, sensitive, now)
		return nil
	}
	if there := p.life(k.Name, c.Owner); there != nil {
		c.Key = there.Key.Name
		if there.Owner == c.Owner {
			p.refine(there, about, sensitive, now)
		}
		return nil
	}
	l := &life{Key: k, Owner: c.Owner, Cluster: c.ID}
	if err := p.admit(l, base, now); err != nil {
		return err
	}
	c.Key = k.Name
	p.doc.Lives = append(p.doc.Lives, l)
	p.begin(l, sensitive, now)
	return nil
}

// Refit ends the refinements that say nothing about a template any more, because it has another
// description of their key, or no such key: they would keep what clients ask for from refining the
// new description, or from becoming a key. It keeps those that an operator has rejected. Call it
// with the current template, at regular intervals. It reports whether anything has changed.
func (p *Pool) Refit(base *template.Template, now time.Time) bool {
	before := p.doc.Next
	for _, l := range slices.Clone(p.doc.Lives) {
		if l.Refines && (l.State == Stable || l.State == Pending) && !l.refines(base) {
			p.end(l, KindEnded, "the template does not have the description any more that it improves", now)
		}
	}
	return p.doc.Next != before
}

// admit returns an error if there is no room for a further key. It removes a key to make room, if the
// new one then has a place: a retired one, or, for a key for all clients, the own key of a client with
// the least use.
func (p *Pool) admit(l *life, base *template.Template, now time.Time) error {
	owned, own := 0, 0
	for _, x := range p.doc.Lives {
		if x.Owner != "" {
			owned++
			if x.Owner == l.Owner && x.State != Rejected && x.State != Retired && !p.covered(x) {
				own++
			}
		}
	}
	switch {
	case l.Owner != "" && own >= p.cfg.MaxPersonal:
		return fmt.Errorf("%w: the client has %d keys of its own", ErrNoKey, own)
	case len(base.Keys)+p.cfg.MaxKeys > template.MaxKeys:
		return fmt.Errorf("%w: the template has %d keys, at most %d are possible", ErrNoKey, len(base.Keys), template.MaxKeys)
	}
	crowded := l.Owner != "" && owned >= maxLives/2
	if at := slices.IndexFunc(p.doc.Lives, func(x *life) bool {
		return x.State == Retired && (crowded && x.Owner != "" || !crowded && len(p.doc.Lives) >= maxLives*3/4)
	}); at >= 0 {
		crowded = false
		p.end(p.doc.Lives[at], "", "", now)
	} else if l.Owner == "" && len(p.doc.Lives) >= maxLives && owned > maxLives/4 {
		if least := p.leastUsed(); least != nil {
			p.end(least, KindEnded, "a key for all clients needs its place", now)
		}
	}
	all := 0
	for _, x := range p.doc.Lives {
		if x.Owner == "" {
			all++
		}
	}
	switch {
	case len(p.doc.Lives) >= maxLives:
		return fmt.Errorf("%w: the pool has %d keys, in all states", ErrNoKey, maxLives)
	case l.Owner == "" && all >= maxLives*3/4: // a quarter is for clients' own keys
		return fmt.Errorf("%w: the pool has %d keys of all clients, in all states", ErrNoKey, all)
	case crowded: // half the places; a key for all clients may take some of them, above
		return fmt.Errorf("%w: the clients have %d keys of their own, in all states", ErrNoKey, owned)
	}
	return nil
}

// leastUsed returns the own key of a client that the fewest payloads have had; nil if there is none.
// It passes over rejected keys: they are not to be proposed again for a while.
func (p *Pool) leastUsed() (least *life) {
	fewest := 0
	for _, x := range p.doc.Lives {
		n := 0
		for _, d := range x.Days {
			n += d.Present
		}
		if x.Owner != "" && x.State != Rejected && (least == nil || n < fewest) {
			least, fewest = x, n
		}
	}
	return least
}

// refineBase proposes a better description of a key of the template.
func (p *Pool) refineBase(c *cluster, base *template.Key, about Cluster, sensitive string, now time.Time) {
	c.Key = base.Name
	text := refined(*base, about)
	if base.Name == template.Other || c.Owner != "" {
		return
	}
	if there := p.life(base.Name, ""); there != nil {
		if there.Refines {
			p.refine(there, about, sensitive, now)
		}
		return
	}
	if text == base.Description || len(p.doc.Lives) >= maxLives {
		return
	}
	k := *base
	k.Description, k.Descriptions = text, nil
	l := &life{Key: k, Refines: true, Cluster: c.ID}
	p.doc.Lives = append(p.doc.Lives, l)
	if sensitive != "" {
		p.move(l, Pending, KindProposed, sensitive, now)
	} else {
		p.move(l, Stable, KindRefined, "clients ask for it in other words", now)
	}
}

// refine improves the description of a key, or a refinement, that clients get, unless an operator has
// approved it, or would have to.
func (p *Pool) refine(l *life, about Cluster, sensitive string, now time.Time) {
	if text := refined(l.Key, about); text != l.Key.Description && l.State.advertised() && sensitive == "" && l.Approved == "" {
		l.Key.Description = text
		p.move(l, l.State, KindRefined, "clients ask for it in other words", now)
	}
}

// begin sets the first state of a new or approved key.
func (p *Pool) begin(l *life, sensitive string, now time.Time) {
	switch {
	case sensitive != "" && l.Approved == "":
		p.move(l, Pending, KindProposed, sensitive, now)
	case l.Refines:
		p.move(l, Stable, KindRefined, "approved", now)
	case p.full(l.Owner):
		p.move(l, Queued, KindQueued, "as many keys are on trial as may be", now)
	default:
		p.move(l, Experimental, KindTrial, "", now)
	}
}

// full reports whether one more key on trial would be too many: for the owner of the key, or, if it
// is a key for all, for any client.
func (p *Pool) full(owner string) bool {
	trials, keys, own := 0, 0, map[string]int{}
	for _, l := range p.doc.Lives {
		switch {
		case l.Refines:
		case l.Owner != "" && l.State == Experimental:
			if !p.covered(l) {
				own[l.Owner]++
			}
		case l.Owner == "" && l.State.advertised():
			keys++
			if l.State == Experimental {
				trials++
			}
		}
	}
	if owner != "" {
		return trials+own[owner] >= p.cfg.MaxTrials
	}
	most := 0
	for _, n := range own {
		most = max(most, n)
	}
	return trials+most >= p.cfg.MaxTrials || keys >= p.cfg.MaxKeys
}

// life returns the key of this name that a client would see: a key for all, or its own.
func (p *Pool) life(name, owner string) *life {
	for _, l := range p.doc.Lives {
		if sameName(l.Key.Name, name) && (l.Owner == "" || l.Owner == owner) {
			return l
		}
	}
	return nil
}

// Like returns the key of a template whose name equals a name except for plurals and word order, or
// whose property is the name. A proposal with that name would improve this key's description. It
// returns nil if there is none.
func Like(t *template.Template, name string) *template.Key {
	if k := t.Key(name); k != nil {
		return k
	}
	for i := range t.Keys {
		if sameName(t.Keys[i].Name, name) || t.Keys[i].Property == name {
			return &t.Keys[i]
		}
	}
	return nil
}

// sameName reports whether two names are equal except for plurals and the order of their words.
func sameName(a, b string) bool {
	if a == b {
		return true
	}
	parts := func(name string) []string {
		words := strings.Split(name, "_")
		for i, w := range words {
			if len(w) > 3 && !strings.HasSuffix(w, "ss") {
				words[i] = strings.TrimSuffix(w, "s")
			}
		}
		slices.Sort(words)
		return words
	}
	return slices.Equal(parts(a), parts(b))
}

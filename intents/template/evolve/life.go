package evolve

import (
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// A State is the state of a key (SDSI 6.2.3).
type State string

// The states of a key.
const (
	Pending      State = "pending"      // waits for an operator
	Queued       State = "queued"       // waits until another trial has ended
	Experimental State = "experimental" // on trial
	Stable       State = "stable"
	Deprecated   State = "deprecated" // will be withdrawn after the grace period
	Withdrawn    State = "withdrawn"  // is still accepted, but not advertised any more
	Rejected     State = "rejected"   // rejected by an operator; is not proposed again for a while
	Retired      State = "retired"    // was withdrawn; is not proposed again for a while
)

// advertised reports whether clients get the key.
func (s State) advertised() bool { return s == Experimental || s == Stable || s == Deprecated }

// life is a key of the pool with its state and its counts.
type life struct {
	Key      template.Key `json:"key"`
	Refines  bool         `json:"refines,omitempty"` // it improves the description of a key of the template, and adds no key
	Owner    string       `json:"owner,omitempty"`   // the client whose own key it is; "": a key for all
	Cluster  uint64       `json:"cluster"`
	State    State        `json:"state"`
	Since    int64        `json:"since"`   // when the state began
	Expires  int64        `json:"expires"` // when the patch expires
	Number   uint64       `json:"number"`  // the number of the last change
	Why      string       `json:"why,omitempty"`
	Approved string       `json:"approved,omitempty"` // the operator who has approved it
	Vouched  string       `json:"vouched,omitempty"`  // the operator who has checked its values
	Days     []daily      `json:"days,omitempty"`
	Sample   []sampled    `json:"sample,omitempty"`
	Typing   shares       `json:"typing,omitzero"`  // today's values whose types are counted
	Judging  shares       `json:"judging,omitzero"` // today's judgements
}

func (p *Pool) move(l *life, to State, kind, why string, now time.Time) {
	if l.State != to {
		l.State, l.Since = to, now.Unix()
	}
	l.Key.Experimental, l.Key.Deprecated = to == Experimental && !l.Refines, to == Deprecated && !l.Refines
	if to == Retired || to == Rejected { // no decision needs the counts any more
		l.uncount()
	}
	l.Why, l.Number = why, p.doc.Next
	p.renew(l, now)
	p.event(now, Event{Kind: kind, Key: l.Key.Name, Why: why, Client: l.Owner})
}

// uncount removes the counts of a key, and reports whether there were any.
func (l *life) uncount() bool {
	there := len(l.Days)+len(l.Sample)+len(l.Typing.Top)+len(l.Judging.Top) > 0
	l.Days, l.Sample, l.Typing, l.Judging = nil, nil, shares{}, shares{}
	return there
}

// renew sets when the patch expires: a client that does not request the template again stops using
// the key then.
func (p *Pool) renew(l *life, now time.Time) {
	switch l.State {
	case Deprecated:
		l.Expires = l.Since + p.cfg.Grace.seconds()
	default:
		l.Expires = now.Unix() + p.cfg.Window.seconds()
	}
}

// Advance changes the states of keys whose time has come (SDSI 6.2.3), and reports whether anything
// has changed. Call it at regular intervals.
func (p *Pool) Advance(now time.Time) bool {
	before := p.doc.Next
	for _, l := range slices.Clone(p.doc.Lives) {
		p.advance(l, now)
	}
	for _, l := range slices.Clone(p.doc.Lives) {
		if slices.ContainsFunc(p.doc.Lives, func(all *life) bool { return all.State == Stable && all.covers(l) }) {
			p.end(l, KindEnded, "all clients get it", now)
		}
	}
	for _, l := range slices.Clone(p.doc.Lives) { // in the order in which they were proposed
		switch {
		case l.State != Queued:
		case !p.full(l.Owner):
			p.move(l, Experimental, KindTrial, "", now)
		case now.Unix()-l.Since >= p.cfg.Window.seconds():
			p.end(l, KindEnded, "no place came free", now)
		}
	}
	changed := p.doc.Next != before
	return p.cool(now) || changed
}

// accepted reports whether payloads may have the key.
func (s State) accepted() bool { return s.advertised() || s == Withdrawn }

// covers reports whether it is a key for all, on trial or stable, that clients get instead of an own
// key: values of the own key are values of this one.
func (l *life) covers(own *life) bool {
	return l.Owner == "" && own.Owner != "" && !l.Refines && (l.State == Experimental || l.State == Stable) && l.Key.Name == own.Key.Name && l.Key.Type == own.Key.Type
}

// covered reports whether it is a client's own key that the client does not get because of a key for
// all. The client gets it again if the trial of that key fails.
func (p *Pool) covered(own *life) bool {
	return slices.ContainsFunc(p.doc.Lives, func(all *life) bool { return all.covers(own) })
}

// reaches reports whether a client may send the key: its own one, or one for all, unless the client's
// own key hides it.
func (p *Pool) reaches(client string, l *life) bool {
	return l.Owner == client || l.Owner == "" && !slices.ContainsFunc(p.doc.Lives, func(own *life) bool { return own.hides(l, client) })
}

// hides reports whether it is an own key that its client gets instead of a key for all: the types
// differ, or the key for all is being withdrawn. An own key that is withdrawn hides none.
func (l *life) hides(all *life, client string) bool {
	return l.Owner != "" && l.Owner == client && l.State.advertised() && l.Key.Name == all.Key.Name && !all.Refines && !all.covers(l)
}

func (p *Pool) advance(l *life, now time.Time) {
	age := now.Unix() - l.Since
	switch l.State {
	case Experimental:
		if age >= p.cfg.Trial.seconds() {
			p.decide(l, now)
		}
	case Stable:
		if l.Refines {
			break
		}
		if m := l.metrics(p.cfg, now); age >= p.cfg.Window.seconds() {
			if why := p.unfit(m); why != "" {
				p.move(l, Deprecated, KindDeprecated, why, now)
			}
		}
	case Deprecated:
		if age >= p.cfg.Grace.seconds() {
			p.move(l, Withdrawn, KindWithdrawn, l.Why, now)
		}
	case Withdrawn:
		if age >= p.cfg.Compat.seconds() {
			p.move(l, Retired, KindEnded, l.Why, now)
		}
	case Pending:
		if age >= p.cfg.Window.seconds() {
			p.end(l, KindEnded, "no operator has decided", now)
		}
	case Rejected, Retired:
		if age >= p.cfg.Retire.seconds() {
			p.end(l, "", "", now)
		}
	}
	if l.State.advertised() && l.State != Deprecated && l.Expires-now.Unix() < p.cfg.Window.seconds()/2 {
		p.renew(l, now)
		l.Number = p.next()
	}
}

// decide ends a trial if the metrics permit a decision.
func (p *Pool) decide(l *life, now time.Time) {
	m := l.metrics(p.cfg, now)
	switch why := p.unfit(m); {
	case why != "":
		p.move(l, Deprecated, KindDeprecated, why, now)
	case m.Payloads >= p.cfg.MinPayloads && m.UsageFrequency >= p.cfg.PromoteUsage && m.TypeCorrectness >= p.cfg.PromoteTypes &&
		(m.Judged >= p.cfg.MinJudged && m.AlignmentAccuracy >= p.cfg.PromoteAccuracy || m.Judged < p.cfg.MinJudged && l.Vouched != ""):
		p.move(l, Stable, KindPromoted, fmt.Sprintf("usage %.0f %%, accuracy %s, types %.0f %%", 100*m.UsageFrequency, percent(m.AlignmentAccuracy), 100*m.TypeCorrectness), now)
	case now.Unix()-l.Since >= p.cfg.Window.seconds():
		p.move(l, Deprecated, KindDeprecated, "the trial came to no decision", now)
	}
}

// unfit returns why the metrics require a deprecation; "" if they do not.
func (p *Pool) unfit(m Metrics) string {
	switch {
	case m.Payloads < p.cfg.MinPayloads:
		return ""
	case m.UsageFrequency < p.cfg.DeprecateUsage:
		return fmt.Sprintf("usage %.1f %%, below %g %%", 100*m.UsageFrequency, 100*p.cfg.DeprecateUsage)
	case m.Judged >= p.cfg.MinJudged && m.AlignmentAccuracy < p.cfg.DeprecateAccuracy:
		return fmt.Sprintf("accuracy %.0f %%, below %g %%", 100*m.AlignmentAccuracy, 100*p.cfg.DeprecateAccuracy)
	case m.TypeCorrectness >= 0 && m.TypeCorrectness < p.cfg.DeprecateTypes:
		return fmt.Sprintf("types %.0f %%, below %g %%", 100*m.TypeCorrectness, 100*p.cfg.DeprecateTypes)
	}
	return ""
}

// end removes a key, its cluster, and the clusters that were assigned to the key, so that the same
// wish must collect votes anew.
func (p *Pool) end(l *life, kind, why string, now time.Time) {
	p.doc.Lives = slices.DeleteFunc(p.doc.Lives, func(x *life) bool { return x == l })
	made := p.made()
	p.doc.Clusters = slices.DeleteFunc(p.doc.Clusters, func(c *cluster) bool {
		return c.Key == l.Key.Name && !made[c.ID] && (c.Owner == l.Owner || l.Owner == "")
	})
	if kind != "" {
		p.event(now, Event{Kind: kind, Key: l.Key.Name, Why: why, Client: l.Owner})
	}
}

// made returns the clusters from which the pool's keys were made. Other clusters with a key were
// assigned to it later.
func (p *Pool) made() map[uint64]bool {
	ids := make(map[uint64]bool, len(p.doc.Lives))
	for _, l := range p.doc.Lives {
		ids[l.Cluster] = true
	}
	return ids
}

// cool removes clusters without recent votes. A cluster from which a key was made stays as long as
// the key.
func (p *Pool) cool(now time.Time) bool {
	before, made := len(p.doc.Clusters), p.made()
	p.doc.Clusters = slices.DeleteFunc(p.doc.Clusters, func(c *cluster) bool {
		last := c.At
		if n := len(c.Votes); n > 0 {
			last = max(last, c.Votes[n-1].At)
		}
		return !made[c.ID] && now.Unix()-last > max(p.cfg.Recent.seconds(), p.cfg.Window.seconds())
	})
	return len(p.doc.Clusters) != before
}

package evolve

import (
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// A State is where a key is in its life (SDSI 6.2.3).
type State string

// The states of a key.
const (
	Pending      State = "pending"      // an operator decides
	Queued       State = "queued"       // waits until another trial has ended
	Experimental State = "experimental" // on trial
	Stable       State = "stable"
	Deprecated   State = "deprecated" // is withdrawn after the grace period
	Withdrawn    State = "withdrawn"  // is accepted, and advertised no more
	Rejected     State = "rejected"   // by an operator; is not proposed again for a while
	Retired      State = "retired"    // was withdrawn; is not proposed again for a while
)

// advertised reports whether clients are told of the key.
func (s State) advertised() bool { return s == Experimental || s == Stable || s == Deprecated }

// life is a key and what is known of it.
type life struct {
	Key      template.Key `json:"key"`
	Refines  bool         `json:"refines,omitempty"` // it describes a key of the template, and adds none
	Owner    string       `json:"owner,omitempty"`   // the client whose own key it is
	Cluster  uint64       `json:"cluster"`
	State    State        `json:"state"`
	Since    int64        `json:"since"`   // of the state
	Expires  int64        `json:"expires"` // of the patch
	Number   uint64       `json:"number"`  // of the last change
	Why      string       `json:"why,omitempty"`
	Approved string       `json:"approved,omitempty"` // by an operator
	Vouched  string       `json:"vouched,omitempty"`  // the operator who has looked at its values
	Days     []daily      `json:"days,omitempty"`
	Sample   []sampled    `json:"sample,omitempty"`
	Typing   shares       `json:"typing,omitzero"`  // of today's values whose type is counted
	Judging  shares       `json:"judging,omitzero"` // of today's judgements
}

func (p *Pool) move(l *life, to State, kind, why string, now time.Time) {
	if l.State != to {
		l.State, l.Since = to, now.Unix()
	}
	l.Key.Experimental, l.Key.Deprecated = to == Experimental && !l.Refines, to == Deprecated && !l.Refines
	if to == Retired || to == Rejected { // nothing depends on it any more
		l.uncount()
	}
	l.Why, l.Number = why, p.doc.Next
	p.renew(l, now)
	p.event(now, Event{Kind: kind, Key: l.Key.Name, Why: why, Client: l.Owner})
}

// uncount removes what was counted of a key, and reports whether there was something.
func (l *life) uncount() bool {
	there := len(l.Days)+len(l.Sample)+len(l.Typing.Top)+len(l.Judging.Top) > 0
	l.Days, l.Sample, l.Typing, l.Judging = nil, nil, shares{}, shares{}
	return there
}

// renew sets when the patch expires: a client that does not ask again stops using the key.
func (p *Pool) renew(l *life, now time.Time) {
	switch l.State {
	case Deprecated:
		l.Expires = l.Since + p.cfg.Grace.seconds()
	default:
		l.Expires = now.Unix() + p.cfg.Window.seconds()
	}
}

// Advance moves the keys whose time has come (SDSI 6.2.3), and reports whether something
// has changed. Call it now and then.
func (p *Pool) Advance(now time.Time) bool {
	before := p.doc.Next
	for _, l := range slices.Clone(p.doc.Lives) {
		p.advance(l, now)
	}
	for _, l := range slices.Clone(p.doc.Lives) { // in the order of their proposals
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

// decide ends a trial, if the metrics say how.
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

// unfit says why the metrics call for a deprecation; "": they do not.
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

// end removes a key with its cluster and those that it has taken in, so that a new demand has
// to begin anew.
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

// made returns the clusters of which there is a key. The other clusters that name a key were
// taken in by it.
func (p *Pool) made() map[uint64]bool {
	ids := make(map[uint64]bool, len(p.doc.Lives))
	for _, l := range p.doc.Lives {
		ids[l.Cluster] = true
	}
	return ids
}

// cool removes the clusters that get no votes any more. That of which a key was made stays for
// as long as the key.
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

package evolve

import (
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// by notes who brought about the latest event.
func (p *Pool) by(operator string) { p.doc.Events[len(p.doc.Events)-1].By = operator }

// Approve lets a key that waits for an operator, or for a place, begin its trial. Of a key on
// trial it says that the operator has looked at its values: it can be promoted although no
// values were judged.
func (p *Pool) Approve(key, by string, now time.Time) error {
	l, err := p.find(key, Pending, Queued, Experimental)
	if err != nil {
		return err
	}
	switch l.State {
	case Pending, Queued:
		l.Approved = by
		p.begin(l, "", now)
	case Experimental:
		l.Approved = by
		p.move(l, Experimental, KindTrial, "an operator has looked at its values", now)
	default:
		return fmt.Errorf("the key %s is %s: only what is pending, queued or experimental can be approved", key, l.State)
	}
	p.by(by)
	return nil
}

// Reject ends a key's way: one that clients know of is deprecated, and the others are
// remembered, so that they are not proposed again for [Config.Retire].
func (p *Pool) Reject(key, by, why string, now time.Time) error {
	l, err := p.find(key, Pending, Queued, Experimental, Stable)
	if err != nil {
		return err
	}
	to := Rejected
	switch l.State {
	case Experimental, Stable:
		if !l.Refines {
			to = Deprecated
		}
	case Pending, Queued:
	default:
		return fmt.Errorf("the key %s is %s already", key, l.State)
	}
	p.move(l, to, KindRejected, why, now)
	p.by(by)
	return nil
}

// ErrUnknownKey is wrapped by the error about a key that the pool does not have.
var ErrUnknownKey = fmt.Errorf("the pool has no such key")

// find returns a key by its name: of several clients' own keys one in one of the states.
func (p *Pool) find(key string, states ...State) (found *life, err error) {
	for _, l := range p.doc.Lives {
		if l.Key.Name == key && (found == nil || slices.Contains(states, l.State) && !slices.Contains(states, found.State)) {
			found = l
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownKey, key)
	}
	return found, nil
}

// A Key is a key of the pool, for a person.
type Key struct {
	template.Key
	State    State     `json:"state"`
	Refines  bool      `json:"refines,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Since    time.Time `json:"since"`
	Why      string    `json:"why,omitempty"`
	Approved string    `json:"approved,omitempty"`
	Metrics  Metrics   `json:"metrics"`
}

// Keys returns the keys in all states, in the order of their proposals.
func (p *Pool) Keys(now time.Time) []Key {
	out := make([]Key, 0, len(p.doc.Lives))
	for _, l := range p.doc.Lives {
		out = append(out, Key{Key: l.Key, State: l.State, Refines: l.Refines, Owner: l.Owner, Since: time.Unix(l.Since, 0).UTC(), Why: l.Why, Approved: l.Approved, Metrics: l.metrics(p.cfg, now)})
	}
	return out
}

package evolve

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// by notes who brought about the latest event.
func (p *Pool) by(operator string) { p.doc.Events[len(p.doc.Events)-1].By = operator }

// ErrUnchanged is wrapped by the error about a decision that a pool knows already.
var ErrUnchanged = errors.New("nothing has changed")

// Approve lets a key that waits for an operator begin its trial, or wait for a place. Of a key
// that has begun it changes nothing; the error then wraps [ErrUnchanged].
func (p *Pool) Approve(key, by string, now time.Time) error {
	l, err := p.find(key, Pending)
	if err != nil {
		return err
	}
	switch l.State {
	case Pending:
		l.Approved = by
		p.begin(l, "", now)
	case Queued, Experimental, Stable:
		return fmt.Errorf("%w: the key %s is %s already", ErrUnchanged, key, l.State)
	default:
		return fmt.Errorf("the key %s is %s: only a pending key can be approved", key, l.State)
	}
	p.by(by)
	return nil
}

// Vouch says that an operator has looked at the values of a key on trial: the key can be
// promoted although no values were judged. Said twice, or of a key that is stable, it changes
// nothing; the error then wraps [ErrUnchanged].
func (p *Pool) Vouch(key, by string, now time.Time) error {
	l, err := p.find(key, Experimental)
	switch {
	case err != nil:
		return err
	case l.State == Stable:
		return fmt.Errorf("%w: the key %s is %s already", ErrUnchanged, key, l.State)
	case l.State != Experimental:
		return fmt.Errorf("the key %s is %s: only a key on trial has values to look at", key, l.State)
	case l.Vouched != "":
		return fmt.Errorf("%w: %s has looked at the values of %s", ErrUnchanged, l.Vouched, key)
	}
	l.Vouched = by
	p.move(l, Experimental, KindTrial, "an operator has looked at its values", now)
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
		return fmt.Errorf("%w: the key %s is %s already", ErrUnchanged, key, l.State)
	}
	p.move(l, to, KindRejected, why, now)
	p.by(by)
	return nil
}

// ErrUnknownKey is wrapped by the error about a key that the pool does not have.
var ErrUnknownKey = errors.New("the pool has no such key")

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
	Approved string    `json:"approved,omitempty"` // by whom
	Vouched  string    `json:"vouched,omitempty"`  // who has looked at its values
	Metrics  Metrics   `json:"metrics"`
}

// Keys returns the keys in all states, in the order of their proposals.
func (p *Pool) Keys(now time.Time) []Key {
	out := make([]Key, 0, len(p.doc.Lives))
	for _, l := range p.doc.Lives {
		out = append(out, Key{Key: l.Key, State: l.State, Refines: l.Refines, Owner: l.Owner, Since: time.Unix(l.Since, 0).UTC(), Why: l.Why, Approved: l.Approved, Vouched: l.Vouched, Metrics: l.metrics(p.cfg, now)})
	}
	return out
}

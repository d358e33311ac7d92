package evolve

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// by records the operator who caused the latest event.
func (p *Pool) by(operator string) { p.doc.Events[len(p.doc.Events)-1].By = operator }

// ErrUnchanged is wrapped by the error for a decision that was made before.
var ErrUnchanged = errors.New("nothing has changed")

// Approve approves a key that waits for an operator: its trial begins, or it waits for a place. If
// the key is already queued, on trial or stable, Approve changes nothing, and the error wraps
// [ErrUnchanged].
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

// Vouch records that an operator has checked the values of a key on trial, so that the key can be
// promoted without judged values. If this was recorded before, or if the key is stable, Vouch
// changes nothing, and the error wraps [ErrUnchanged].
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

// Reject rejects a key. A key on trial and a stable key become Deprecated. A refinement, and a key
// that clients have not received yet, become Rejected, and are not proposed again for
// [Config.Retire].
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

// ErrUnknownKey is wrapped by the error for a key that the pool does not have.
var ErrUnknownKey = errors.New("the pool has no such key")

// find returns a key by its name. If clients have own keys with this name, it prefers one in one of
// the states, and then the key for all.
func (p *Pool) find(key string, states ...State) (found *life, err error) {
	best := 0
	for _, l := range p.doc.Lives {
		if l.Key.Name != key {
			continue
		}
		rank := 1
		if slices.Contains(states, l.State) {
			rank += 2
		}
		if l.Owner == "" {
			rank++
		}
		if rank > best {
			found, best = l, rank
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownKey, key)
	}
	return found, nil
}

// A Key describes a key of the pool for a person.
type Key struct {
	template.Key
	State    State     `json:"state"`
	Refines  bool      `json:"refines,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Since    time.Time `json:"since"`
	Why      string    `json:"why,omitempty"`
	Approved string    `json:"approved,omitempty"` // the operator who has approved it
	Vouched  string    `json:"vouched,omitempty"`  // the operator who has checked its values
	Metrics  Metrics   `json:"metrics"`
}

// Keys returns the keys in all states, in the order in which they were proposed.
func (p *Pool) Keys(now time.Time) []Key {
	out := make([]Key, 0, len(p.doc.Lives))
	for _, l := range p.doc.Lives {
		out = append(out, Key{Key: l.Key, State: l.State, Refines: l.Refines, Owner: l.Owner, Since: time.Unix(l.Since, 0).UTC(), Why: l.Why, Approved: l.Approved, Vouched: l.Vouched, Metrics: l.metrics(p.cfg, now)})
	}
	return out
}

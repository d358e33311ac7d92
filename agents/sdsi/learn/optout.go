package learn

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// OptOuts lists the clients from whom an agent learns nothing, in any scenario. [jetstream.Pools]
// stores the list of each agent. The nil list is empty.
type OptOuts struct {
	Version int      `json:"version"`
	Clients []string `json:"clients"` // entities, sorted
}

// MaxOptOuts is how many clients can opt out of one agent's learning.
const MaxOptOuts = 10_000

// ReadOptOuts decodes a list that [OptOuts.Encode] has written; nil is the empty list.
func ReadOptOuts(raw []byte) (*OptOuts, error) {
	o := &OptOuts{Version: 1}
	if raw == nil {
		return o, nil
	}
	if err := json.Unmarshal(raw, o); err != nil {
		return nil, fmt.Errorf("stored opt-outs: %w", err)
	}
	if o.Version != 1 {
		return nil, fmt.Errorf("stored opt-outs: version %d; this release reads version 1", o.Version)
	}
	slices.Sort(o.Clients)
	o.Clients = slices.Compact(o.Clients)
	return o, nil
}

// Has reports whether a client has opted out.
func (o *OptOuts) Has(client string) bool {
	if o == nil {
		return false
	}
	_, there := slices.BinarySearch(o.Clients, client)
	return there
}

// Set records that a client opts out, or in again. It reports whether the list has changed.
func (o *OptOuts) Set(client string, out bool) (changed bool, err error) {
	at, there := slices.BinarySearch(o.Clients, client)
	switch {
	case there == out:
		return false, nil
	case !out:
		o.Clients = slices.Delete(o.Clients, at, at+1)
	case len(o.Clients) >= MaxOptOuts:
		return false, fmt.Errorf("%d clients have opted out already, and no more can: exclude them by patterns, with learning.exclude", len(o.Clients))
	default:
		o.Clients = slices.Insert(o.Clients, at, client)
	}
	return true, nil
}

// maxOptOutBytes bounds the stored list, which must fit into one message.
const maxOptOutBytes = 900 << 10

// Encode returns the stored form of the list.
func (o *OptOuts) Encode() ([]byte, error) {
	raw, err := json.Marshal(o)
	if err == nil && len(raw) > maxOptOutBytes {
		err = fmt.Errorf("the opt-outs have %d bytes, at most %d are stored: exclude clients by patterns, with learning.exclude", len(raw), maxOptOutBytes)
	}
	return raw, err
}

// optOuts reads the clients that have opted out.
func (l *Learner) optOuts(ctx context.Context, store Pools) (*OptOuts, error) {
	raw, _, err := store.OptOuts(ctx, l.cfg.Entity)
	if err != nil {
		return nil, err
	}
	return ReadOptOuts(raw)
}

package journal

import (
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
)

const (
	// journalSize is how many envelopes a process remembers, sent and
	// received, for aee.context.fetch.
	journalSize = 1024
	// journalMax is the largest message that it remembers.
	journalMax = 64 << 10
)

// Store stores envelopes beyond the memory of one process; see Journal of package mesh.
type Store interface {
	Post(entity, id string, raw []byte) error
	Get(ctx context.Context, entity, id string) ([]byte, error)
}

// Journal keeps the encoded bytes of the last journalSize envelopes that this process
// sent and received. Each task adds envelopes, so adding keeps no decoded envelope alive
// and avoids allocations; Find is a linear search.
type Journal struct {
	store  Store       // nil: this process's memory only
	absent func() bool // the store is not there yet; nil: it is
	log    *slog.Logger

	next atomic.Uint64
	seed maphash.Seed
	slot [journalSize]journalSlot
}

type journalSlot struct {
	mu   sync.Mutex
	id   uint64 // hash of the envelope's id
	cbor bool
	raw  []byte // the received bytes, or the same as own
	own  []byte // a copy of sent bytes; its buffer is reused
}

// New makes an empty journal.
func New(store Store, log *slog.Logger) *Journal {
	j := &Journal{store: store, log: log, seed: maphash.MakeSeed()}
	if late, ok := store.(interface{ Absent() bool }); ok {
		j.absent = late.Absent
	}
	return j
}

// Received adds an envelope with its id. raw is its encoding, and must not be changed
// later.
func (j *Journal) Received(id string, raw []byte, cbor bool) {
	if len(raw) > journalMax {
		return
	}
	s := &j.slot[j.next.Add(1)%journalSize]
	s.mu.Lock()
	s.id, s.cbor, s.raw = maphash.String(j.seed, id), cbor, raw
	s.mu.Unlock()
}

// Sent is like Received, but copies raw, because the caller reuses it.
func (j *Journal) Sent(id string, raw []byte, cbor bool) {
	if len(raw) > journalMax {
		return
	}
	s := &j.slot[j.next.Add(1)%journalSize]
	s.mu.Lock()
	if cap(s.own) > 4<<10 && cap(s.own) > 4*len(raw) {
		s.own = nil // a rare large envelope must not hold its memory for ever
	}
	s.own = append(s.own[:0], raw...)
	s.id, s.cbor, s.raw = maphash.String(j.seed, id), cbor, s.own
	s.mu.Unlock()
}

// search returns the oldest envelope with the id that entity sent or received. So a peer that
// learns the id cannot replace the envelope with a later one.
func (j *Journal) search(entity, id string) *envelope.Envelope {
	next, hash := j.next.Load()+1, maphash.String(j.seed, id)
	for i := range uint64(journalSize) {
		s := &j.slot[(next+i)%journalSize]
		s.mu.Lock()
		if s.id != hash || s.raw == nil {
			s.mu.Unlock()
			continue
		}
		raw, cbor := append([]byte(nil), s.raw...), s.cbor
		s.mu.Unlock()
		// The stored envelopes were valid under the node's limits, which may be wider
		// than the default.
		limits := envelope.Limits{MaxBytes: journalMax, MaxDepth: maxDepth, MaxValues: journalMax}
		parse := envelope.ParseLimits
		if cbor {
			parse = envelope.ParseCBORLimits
		}
		if e, err := parse(raw, limits); err == nil && e.ID == id && (e.From == entity || e.To == entity) {
			return e
		}
	}
	return nil
}

// maxDepth is the deepest nesting that any limits allow.
const maxDepth = 1000

// RememberReceived adds e to the process's journal and, if there is one, to the mesh's
// journal under entity. raw is e's encoding, and must not be changed later.
func (j *Journal) RememberReceived(entity string, e *envelope.Envelope, raw []byte, cbor bool) {
	j.Received(e.ID, raw, cbor)
	j.post(entity, e, raw, cbor)
}

// RememberSent is like RememberReceived, but copies raw.
func (j *Journal) RememberSent(entity string, e *envelope.Envelope, raw []byte, cbor bool) {
	j.Sent(e.ID, raw, cbor)
	j.post(entity, e, raw, cbor)
}

// post adds e to the mesh's journal, if there is one.
func (j *Journal) post(entity string, e *envelope.Envelope, raw []byte, cbor bool) {
	if j.store == nil || j.absent != nil && j.absent() {
		return
	}
	var err error
	if cbor {
		raw, err = e.AppendJSON(nil)
	} else {
		raw = append([]byte(nil), raw...)
	}
	if err == nil {
		err = j.store.Post(entity, e.ID, raw)
	}
	if err != nil {
		j.log.Warn("envelope not journaled", "id", e.ID, "entity", entity, "err", err)
	}
}

// Find finds an envelope that entity sent or received.
func (j *Journal) Find(ctx context.Context, entity, id string) (*envelope.Envelope, error) {
	if e := j.search(entity, id); e != nil {
		return e, nil
	}
	if j.store == nil {
		return nil, nil
	}
	raw, err := j.store.Get(ctx, entity, id)
	if errors.Is(err, jetstream.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return envelope.ParseStored(raw)
}

// maxRefuted bounds the ids whose refutations a process remembers, and
// MaxRefutations those of one id.
const (
	maxRefuted     = 4096
	MaxRefutations = jetstream.MaxRefutations
	MaxReason      = 512 // bytes of a reason that are kept
)

// Refutations keeps the refutations of contexts by the context's id. When it is full, the
// oldest id is removed.
type Refutations struct {
	mu    sync.Mutex
	byID  map[string][]json.RawMessage
	order []string
}

// Add adds a record that refutes the context with an id; see [jetstream.AddRefutation].
func (r *Refutations) Add(id string, record []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[string][]json.RawMessage{}
	}
	if _, have := r.byID[id]; !have {
		r.order = append(r.order, id)
		if len(r.order) > maxRefuted {
			delete(r.byID, r.order[0])
			r.order = r.order[1:]
		}
	}
	r.byID[id] = jetstream.AddRefutation(r.byID[id], record)
}

// List returns the records about the context with an id.
func (r *Refutations) List(id string) (out [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range r.byID[id] {
		out = append(out, record)
	}
	return out
}

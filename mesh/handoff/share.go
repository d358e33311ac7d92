package handoff

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// Defaults of [ReceiverConfig].
const (
	DefaultPending = 1000
	DefaultShare   = 24 << 20
)

// shares count the stored bytes and records of each issuer, so that no issuer fills the store.
// They are read from the store at the first handoff, and again by [Receiver.Collect]; in between
// each receiver counts its own writes.
type shares struct {
	mu   sync.Mutex
	of   map[string]*share // by issuer; nil: not read yet
	kept map[string]holding
}

func newShares() *shares { return &shares{of: map[string]*share{}, kept: map[string]holding{}} }

// take replaces the counts by those of next.
func (s *shares) take(next *shares) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of, s.kept = next.of, next.kept
}

// known reports whether the store has been read.
func (s *shares) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of != nil
}

// share counts what is stored of one issuer.
type share struct {
	pending int   // records of handoffs that were not accepted
	bytes   int64 // of all its records
}

// holding is what one record adds to a share.
type holding struct {
	issuer  string
	pending bool
	bytes   int64
}

func (s *shares) set(id string, h holding) {
	s.drop(id)
	of := s.of[h.issuer]
	if of == nil {
		of = &share{}
		s.of[h.issuer] = of
	}
	of.add(h, 1)
	s.kept[id] = h
}

func (s *shares) drop(id string) {
	h, ok := s.kept[id]
	if !ok {
		return
	}
	delete(s.kept, id)
	if of := s.of[h.issuer]; of.add(h, -1) {
		delete(s.of, h.issuer)
	}
}

// add adds a holding n times, and reports whether the share is then empty.
func (s *share) add(h holding, n int) bool {
	if h.pending {
		s.pending += n
	}
	s.bytes += int64(n) * h.bytes
	return s.pending == 0 && s.bytes == 0
}

// pending reports whether the record's handoff has not been accepted.
func (h *record) pending() bool {
	switch h.migration().Phase {
	case state.PhaseAccepted, state.PhaseRunning:
		return false
	}
	return true
}

// reserve counts a record that is about to be written, and returns the function that undoes that.
// It fails with [ErrBusy] if the issuer has no room, except for the refusal of a stored handoff
// and for imports of this platform's operator.
func (r *Receiver) reserve(ctx context.Context, h, next *record, size int) (undo func(), err error) {
	checked := !next.own && next.pending() && (h.rev == 0 || next.migration().Phase != state.PhaseRefused)
	s := &r.shares
	if checked && !s.known() {
		if _, err := r.count(ctx, func(error) {}); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		return func() {}, nil
	}
	was, there := s.kept[h.id]
	s.set(h.id, holding{next.migration().Issuer, next.pending(), int64(size)})
	undo = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.restore(h.id, was, there)
	}
	issuer := next.migration().Issuer
	switch of := s.of[issuer]; {
	case !checked:
	case of.pending > r.cfg.Pending:
		err = fmt.Errorf("%w: at most %d handoffs of %.80s are kept that are not accepted yet", ErrBusy, r.cfg.Pending, issuer)
	case of.bytes > r.cfg.Share:
		err = fmt.Errorf("%w: what is kept of the handoffs of %.80s would come to %d bytes, the limit is %d", ErrBusy, issuer, of.bytes, r.cfg.Share)
	}
	if err != nil {
		s.restore(h.id, was, there)
	}
	return undo, err
}

// restore is the opposite of set. s.mu is held.
func (s *shares) restore(id string, was holding, there bool) {
	if s.drop(id); there {
		s.set(id, was)
	}
}

// mayIssue reports whether an entity may transfer any runs to this platform: it is served here, or
// matches Issuers.
func (r *Receiver) mayIssue(ctx context.Context, issuer string) error {
	if matchAny(r.cfg.Issuers, issuer) {
		return nil
	}
	entity, err := r.cfg.Agent(ctx, state.AgentID(issuer), issuer)
	switch {
	case errors.Is(err, transfer.ErrUnknownAgent), err == nil && entity != issuer:
		return fmt.Errorf("%w: %.80q may not transfer runs here", transfer.ErrTokenKey, issuer)
	}
	return err
}

// An ageing store gives a record a time to live of its own.
type ageing interface {
	PutFor(ctx context.Context, id state.ID, prev uint64, data []byte, life time.Duration) (uint64, error)
}

// life returns how long the record of a handoff that is not accepted is kept. All revisions of a
// record have the same life: if an earlier one outlived a later one, a refused handoff would be
// staged again. A record that begins as refused has only one revision. It is kept while its token
// is valid; if an operator refused a file, it is kept as long as the store keeps any, because the
// receipt may be needed later.
func (r *Receiver) life(h *record, phase state.Phase) time.Duration {
	switch phase {
	case state.PhaseAccepted, state.PhaseRunning:
		return 0
	case state.PhaseRefused:
		switch {
		case h.rev == 0 && h.own:
			return 0
		case h.rev == 0:
			return transfer.MaxTokenLife + 5*time.Minute
		}
	}
	return 2 * max(Stay, transfer.MaxTokenLife+5*time.Minute)
}

// lasting is a store whose records are kept for the duration life; 0: as long as the store keeps
// any.
type lasting struct {
	state.Store
	life time.Duration
}

// Put is [ageing.PutFor] if the store has that method.
func (l lasting) Put(ctx context.Context, id state.ID, prev uint64, data []byte) (uint64, error) {
	if store, ok := l.Store.(ageing); ok && l.life > 0 {
		return store.PutFor(ctx, id, prev, data, l.life)
	}
	return l.Store.Put(ctx, id, prev, data)
}

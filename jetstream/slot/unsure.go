package slot

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// unsure is an acquisition whose answer was lost: the slot may be this store's.
type unsure struct {
	value []byte
	until time.Time // its lease is over by then
}

// answerWait is how long the answer to an acquisition is awaited after its caller's context has
// ended.
const answerWait = time.Second

// outlast returns a context that ends that long after ctx.
func outlast(ctx context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if pause.For(longer, more) {
			cancel()
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// remember records an acquisition whose answer was lost.
func (s *Store) remember(nonce string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.unsure, func(_ string, u unsure) bool { return now.After(u.until) })
	if s.unsure == nil {
		s.unsure = map[string]unsure{}
	}
	s.unsure[nonce] = unsure{value, now.Add(s.lease + api.RequestTimeout)}
}

// found returns a slot of an earlier acquisition whose answer was lost, nil if there is none. It
// renews the slot, whose lease may be nearly over.
func (s *Store) found(ctx context.Context, entity string, slots map[int]slotState) *Slot {
	for n, state := range slots {
		s.mu.Lock()
		u, ours := s.unsure[state.record.Nonce]
		delete(s.unsure, state.record.Nonce)
		s.mu.Unlock()
		if !ours || !state.held {
			continue
		}
		slot := &Slot{Entity: entity, N: n, slots: s, value: u.value, revision: state.revision}
		err := slot.Renew(ctx)
		if err == nil {
			return slot
		}
		if !errors.Is(err, api.ErrChanged) {
			s.remember(state.record.Nonce, u.value)
		}
	}
	return nil
}

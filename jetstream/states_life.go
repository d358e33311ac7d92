package jetstream

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/state"
)

// PutFor is like [States.Put] for a checkpoint that expires after life, in whole seconds,
// unless another one replaces it. When it expires, the newest earlier revision that is
// still stored becomes the current one again: so a later revision must not expire before
// an earlier one.
func (s *States) PutFor(ctx context.Context, id state.ID, prev uint64, data []byte, life time.Duration) (uint64, error) {
	return s.PutNoted(ctx, id, prev, data, noteOf(data, life))
}

// noteOf reads the note of a document. The note of an unreadable document has no status,
// so it counts as a run that has not ended.
func noteOf(data []byte, life time.Duration) Note {
	h, err := state.ReadHeader(data)
	if err != nil {
		return Note{TTL: life}
	}
	return Note{Status: h.Status, Work: h.Work, Header: &h, TTL: life}
}

// lifeOf returns the time to live of a message, 0 if it has none of its own.
func lifeOf(h nats.Header) time.Duration {
	seconds, _ := strconv.ParseUint(h.Get(natsjs.MsgTTLHeader), 10, 32) // as headers writes it
	return time.Duration(seconds) * time.Second
}

// swappedOver returns the sequence that the server compared at a write: it stores a
// message with this header only if that was the last sequence of its subject. The header
// is stored with the message, so an old message cannot be replayed with the sequence of
// its time. The second header says what the server compared instead of the subject: it
// must be the pattern of the run's own subjects, both.
func swappedOver(h nats.Header, both string) (over uint64, ok bool) {
	if compared, elsewhere := h[natsjs.ExpectedLastSubjSeqSubjHeader]; elsewhere && (len(compared) != 1 || compared[0] != both) {
		return 0, false
	}
	over, err := strconv.ParseUint(h.Get(natsjs.ExpectedLastSubjSeqHeader), 10, 64)
	return over, err == nil
}

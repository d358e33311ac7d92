package jetstream

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/state"
)

// PutFor is [States.Put] for a checkpoint that is kept for life, in whole seconds,
// if no other is stored over it. When it goes, what is still kept of the
// run's revisions before it counts again: so a later revision must not have a
// shorter life than is left of an earlier one.
func (s *States) PutFor(ctx context.Context, id state.ID, prev uint64, data []byte, life time.Duration) (uint64, error) {
	return s.PutNoted(ctx, id, prev, data, noteOf(data, life))
}

// noteOf reads a note from a document; one that cannot be read has no status, and
// counts as a run that has not ended.
func noteOf(data []byte, life time.Duration) Note {
	h, err := state.ReadHeader(data)
	if err != nil {
		return Note{TTL: life}
	}
	return Note{Status: h.Status, Work: h.Work, TTL: life}
}

// swappedOver is the sequence that the server has held a write to: it stores no
// message with this header unless that was the last one on its subject. It is kept
// with the message, so nobody can store an old one anew with the sequence that it had
// then. With the second header the server would have looked at other subjects.
func swappedOver(h nats.Header) (over uint64, ok bool) {
	if _, elsewhere := h[natsjs.ExpectedLastSubjSeqSubjHeader]; elsewhere {
		return 0, false
	}
	over, err := strconv.ParseUint(h.Get(natsjs.ExpectedLastSubjSeqHeader), 10, 64)
	return over, err == nil
}

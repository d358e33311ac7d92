package mesh

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
)

const (
	// journalSize is how many envelopes a process remembers, sent and
	// received, for aee.context.fetch.
	journalSize = 1024
	// journalMax is the largest message that it remembers, whatever makes it
	// large: an envelope keeps hold of all the bytes it came in.
	journalMax = 64 << 10
)

// journal remembers the last envelopes of this process. Putting is one atomic
// step, because it is on every task's way; finding walks.
type journal struct {
	next atomic.Uint64
	slot [journalSize]atomic.Pointer[envelope.Envelope]
}

func newJournal() *journal { return &journal{} }

func (j *journal) put(e *envelope.Envelope, size int) {
	if size > journalMax {
		return
	}
	j.slot[j.next.Add(1)%journalSize].Store(e)
}

// find returns the oldest envelope with the id that entity sent or received:
// whoever learns an id cannot put another in its place.
func (j *journal) find(entity, id string) *envelope.Envelope {
	next := j.next.Load() + 1
	for i := range uint64(journalSize) {
		if e := j.slot[(next+i)%journalSize].Load(); e != nil && e.ID == id && (e.From == entity || e.To == entity) {
			return e
		}
	}
	return nil
}

// remember puts e into the journal of entity: the memory's, and the mesh's
// where there is one. Size is the length of the message.
func (n *Node) remember(entity string, e *envelope.Envelope, size int) {
	n.journal.put(e, size)
	if n.cfg.Journal == nil {
		return
	}
	raw, err := e.AppendJSON(nil)
	if err == nil {
		err = n.cfg.Journal.Post(entity, e.ID, raw)
	}
	if err != nil {
		n.log.Warn("envelope not journaled", "id", e.ID, "entity", entity, "err", err)
	}
}

// recall finds an envelope that entity sent or received.
func (n *Node) recall(ctx context.Context, entity, id string) (*envelope.Envelope, error) {
	if e := n.journal.find(entity, id); e != nil {
		return e, nil
	}
	if n.cfg.Journal == nil {
		return nil, nil
	}
	raw, err := n.cfg.Journal.Get(ctx, entity, id)
	if errors.Is(err, jetstream.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return envelope.Parse(raw)
}

// maxRefuted bounds the ids whose refutations a process remembers, and
// maxRefutations those of one id.
const (
	maxRefuted     = 4096
	maxRefutations = 32
	maxReason      = 512 // bytes of a reason that are kept
)

// refutations remembers what was said against contexts, the oldest forgotten
// first.
type refutations struct {
	mu    sync.Mutex
	byID  map[string][][]byte
	order []string
}

func (r *refutations) add(id string, record []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[string][][]byte{}
	}
	if _, have := r.byID[id]; !have {
		r.order = append(r.order, id)
		if len(r.order) > maxRefuted {
			delete(r.byID, r.order[0])
			r.order = r.order[1:]
		}
	}
	list := append(r.byID[id], record)
	r.byID[id] = list[max(0, len(list)-maxRefutations):]
}

func (r *refutations) list(id string) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([][]byte(nil), r.byID[id]...)
}

package orders

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// A Cancel is a cancel of one live task.
type Cancel struct {
	ID     string // of the task
	From   string
	Caller string // the from that the task must have; "": any
	Signed bool
	Cause  *envelope.Error // of the task's end
}

// Early keeps the last cancels of live tasks for a while: a cancel comes over another subscription
// than its task, and may overtake it. A worker keeps a cancel before it looks for the task, and looks
// for cancels once the task is among those that a cancel finds, so it misses none. A sender who
// invents ids cannot fill the memory. The zero value keeps none.
type Early struct {
	n    atomic.Int32 // of kept
	mu   sync.Mutex
	kept []earlyCancel // the oldest first
	byID map[string][]Cancel
}

type earlyCancel struct {
	id    string
	until time.Time
}

// A task may wait for its turn, and then for the mesh's replay window: longer than for seconds only
// on a worker that refuses tasks already.
const (
	earlyFor  = 30 * time.Second
	earlyMost = 256
)

// Keep keeps a cancel. It does not keep one without an id, or with an id that is too long.
func (e *Early) Keep(c Cancel, now time.Time) {
	if c.ID == "" || len(c.ID) > subject.MaxID {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire(now)
	if len(e.kept) == earlyMost {
		e.drop()
	}
	if e.byID == nil {
		e.byID = map[string][]Cancel{}
	}
	e.kept, e.byID[c.ID] = append(e.kept, earlyCancel{c.ID, now.Add(earlyFor)}), append(e.byID[c.ID], c)
	e.n.Store(int32(len(e.kept)))
}

// Of returns the cancels that are kept for a task that came at a time. It takes no lock while none
// is kept.
func (e *Early) Of(id string, came time.Time) []Cancel {
	if e.n.Load() == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire(came)
	return slices.Clone(e.byID[id])
}

// expire drops the cancels that are not kept any more. e.mu is held.
func (e *Early) expire(now time.Time) {
	for len(e.kept) > 0 && now.After(e.kept[0].until) {
		e.drop()
	}
	if len(e.kept) == 0 {
		e.kept, e.byID = nil, nil
	}
	e.n.Store(int32(len(e.kept)))
}

// drop drops the oldest cancel. e.mu is held.
func (e *Early) drop() {
	id := e.kept[0].id
	if e.kept = e.kept[1:]; len(e.byID[id]) == 1 {
		delete(e.byID, id)
	} else {
		e.byID[id] = e.byID[id][1:]
	}
}

package mesh

import (
	"context"
	"time"

	"github.com/aeemesh/aeemesh/mesh/internal/deadlines"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

// A package that uses Node or Task reads the types of all their fields, and compiles the methods
// of the generic ones among them anew: it took 50 kB of code and a seventh of a second, in each of 80
// packages. So the fields have these interfaces. Each has one implementation.

// taskQueue is a *sched.Queue.
type taskQueue interface {
	Taker() *sched.Taker
	Put(t *Task, level int) bool
	Take(w *sched.Taker, finished bool) (t *Task, ok bool)
	Remove(match func(*Task) bool) []*Task
	Len() int
	Close() []*Task
}

// taskDeadlines is a *deadlines.List.
type taskDeadlines interface {
	Add(e *deadlines.Entry[*Task], t *Task, due, held time.Time)
	Due(e *deadlines.Entry[*Task], due time.Time)
	Remove(e *deadlines.Entry[*Task])
	Matching(match func(*Task) bool) []*Task
	Stop()
}

// taskSlots is a *slots.Slots.
type taskSlots interface {
	Run(ctx context.Context)
	Signal()
	Room() int
	Wanted(instance string)
	Enter(ctx context.Context, t *Task, patience time.Duration) error
	Leave(t *Task)
	Away() bool
	Close()
}

// heartbeats is a *beats.Beats.
type heartbeats interface {
	Every() time.Duration
	Add(h *host) (remove func())
}

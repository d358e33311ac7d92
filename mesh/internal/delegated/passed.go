package delegated

import (
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// Passed holds the live tasks that a worker has delegated and whose deadline has not
// passed. So a cancel of such a task can be forwarded. Its zero value is ready.
type Passed struct {
	mu    sync.Mutex
	tasks map[string]*passedTask // by the id of the task that this worker received
}

type passedTask struct {
	from, corr, keyID string
	at                At
	deadline          time.Time
}

// At says where a delegated task is.
type At struct {
	To string // the receiver
	ID string // of its task
}

// maxPassed bounds the tasks in Passed. Beyond it an arbitrary one is dropped: a cancel no longer
// reaches its receiver, and the deadline ends it.
const maxPassed = 4096

// Add adds a task that was delegated. keyID is the key of its verified signature, left how long
// its sender still waits.
func (p *Passed) Add(task *envelope.Envelope, keyID string, at At, left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tasks == nil {
		p.tasks = map[string]*passedTask{}
	}
	now := time.Now()
	if len(p.tasks) >= maxPassed {
		for id, one := range p.tasks {
			if one.deadline.Before(now) || len(p.tasks) >= maxPassed {
				delete(p.tasks, id)
			}
		}
	}
	p.tasks[task.ID] = &passedTask{from: task.From, corr: task.Corr, keyID: keyID, at: at, deadline: now.Add(left)}
}

// Named returns the receivers of the tasks that a cancel names and that its author may cancel: the
// task's sender, or the agent itself. A task whose signature was verified accepts signed commands
// only. Named forgets tasks whose deadline has passed.
func (p *Passed) Named(what intents.CancelTask, from, agent string, signed bool) (out []At) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, t := range p.tasks {
		switch {
		case t.deadline.Before(now):
			delete(p.tasks, id)
		case (what.ID != "" && id == what.ID || what.Corr != "" && t.corr == what.Corr) && (t.from == from || from == agent) && (what.From == "" || what.From == t.from) && (signed || t.keyID == ""):
			out = append(out, t.at)
		}
	}
	return out
}

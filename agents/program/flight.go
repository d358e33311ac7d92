package program

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh"
)

// flight is a task that was given to the program and is not answered yet.
type flight struct {
	emit func(json.RawMessage) error
	done chan outcome // buffered, for one outcome
	over atomic.Bool  // the sender has its answer already

	streamed streamed

	until    time.Time   // when the task gives up its place, if it lingers
	giveUp   *time.Timer // set with until
	freeSlot func()      // set with until
}

type outcome struct {
	payload json.RawMessage
	err     error
}

// handsOn is the outcome of a task that the program delegates.
type handsOn struct{ mesh.Delegation }

func (h *handsOn) Error() string {
	return "the agent's program delegates the task to " + clip.Text(h.To, 128)
}

// errUnderWay refuses a second live task with the same id. A durable one waits
// instead: the mesh has admitted it, and it may be the next attempt of a task
// whose worker has just lost the run.
var errUnderWay = envelope.Errorf(envelope.CodeReplay, "a task with this id is under way")

// underWayPause is how long a durable task waits before it tries again.
const underWayPause = 20 * time.Millisecond

// errNotBegun means that the process has seen nothing of the task.
var errNotBegun = errors.New("the program ended before it was given the task")

// died is the answer to tasks that were under way when the program ended.
func died() *envelope.Error {
	return envelope.Errorf(envelope.CodeUnavailable, "the agent's program ended before it had answered; the task may have begun").WithBackoff(time.Second)
}

// do gives the task to the process, sends what it streams, and waits for the answer.
func (x *process) do(ctx context.Context, task *mesh.Task, line []byte) (json.RawMessage, error) {
	id := task.Envelope.ID
	f, err := x.enter(id, task.Emit)
	if err != nil {
		return nil, err
	}
	defer close(f.streamed.left)
	begun, err := x.write(ctx, line)
	if err != nil && (!begun || ctx.Err() == nil) {
		if x.leave(id, f); !begun {
			err = unbegun(task, err)
		}
		return nil, err
	}
	for {
		select {
		case <-f.streamed.more:
			x.sendStream(ctx, f)
		case o := <-f.done:
			x.sendStream(ctx, f) // its last part may have arrived with the answer
			return o.payload, o.err
		case <-ctx.Done():
			x.linger(id, f, task.HoldSlot)
			return nil, ctx.Err()
		}
	}
}

// linger keeps a task in the table, and its slot, although its sender has its
// answer, until the program has answered it, too, has ended, or Linger has passed.
func (x *process) linger(id string, f *flight, holdSlot func() (release func())) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.flights[id] != f {
		return
	}
	f.over.Store(true)
	f.until, f.freeSlot = time.Now().Add(x.p.cfg.Linger), holdSlot()
	f.giveUp = time.AfterFunc(x.p.cfg.Linger, func() {
		if x.leave(id, f) {
			x.p.counts.overrun.Add(1)
			x.p.notes.warn("program has not answered a task that has ended", "id", id)
		}
	})
}

// enter adds a task to the table of tasks under way, if a place is free. The
// mesh never runs more tasks than there are places; if no place is free,
// lingering tasks occupy some.
func (x *process) enter(id string, emit func(json.RawMessage) error) (*flight, error) {
	places := x.p.places() // before x.mu: Health locks the program's mutex first, and then x.mu
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.flights == nil {
		return nil, errNotBegun
	}
	if same := x.flights[id]; same != nil {
		if same.until.IsZero() {
			return nil, errUnderWay
		}
		return nil, &noPlace{until: same.until} // an earlier attempt of it lingers
	}
	if len(x.flights) >= places {
		if until := x.firstFree(); !until.IsZero() {
			return nil, &noPlace{until: until}
		}
	}
	f := &flight{emit: emit, done: make(chan outcome, 1), streamed: newStreamed()}
	x.flights[id] = f
	return f, nil
}

// noPlace is the error of a task that was not given to the program because
// other tasks linger. until is the latest time at which a place becomes free.
type noPlace struct{ until time.Time }

func (n *noPlace) Error() string { return "the program has not answered tasks that have ended" }

// refusal is the error for a sender, which should retry later.
func (n *noPlace) refusal() *envelope.Error {
	busy := envelope.Errorf(envelope.CodeBusy, "the agent's program has not answered tasks that have ended; it was not given this one")
	return busy.WithBackoff(max(time.Until(n.until), time.Millisecond))
}

// wait waits until a place may be free.
func (n *noPlace) wait(ctx context.Context) error {
	if !pause.For(ctx, max(time.Until(n.until), time.Millisecond)) {
		return ctx.Err()
	}
	return nil
}

// firstFree returns when the first lingering task gives up its place; zero if
// none lingers.
func (x *process) firstFree() (first time.Time) {
	for _, f := range x.flights {
		if !f.until.IsZero() && (first.IsZero() || f.until.Before(first)) {
			first = f.until
		}
	}
	return first
}

// leave removes a task from the table, if it is there.
func (x *process) leave(id string, f *flight) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.flights[id] != f {
		return false
	}
	x.remove(id, f)
	return true
}

func (x *process) remove(id string, f *flight) {
	f.endLinger()
	delete(x.flights, id)
	x.ended.add(id)
}

// endLinger frees what a lingering task keeps.
func (f *flight) endLinger() {
	if f.giveUp != nil {
		f.giveUp.Stop()
		f.freeSlot()
	}
}

// find returns the task that a line refers to. If there is none it returns nil,
// and reports whether the task ended recently. A line that ends the task
// removes it from the table.
func (x *process) find(id string, ends bool) (f *flight, late bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f = x.flights[id]
	if f == nil {
		return nil, x.ended.has(id)
	}
	if ends {
		x.remove(id, f)
	}
	return f, false
}

// abandon ends all tasks, because the process can send no more answers.
func (x *process) abandon() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.flights {
		f.endLinger()
		f.done <- outcome{err: died()}
	}
	x.flights = nil
}

func (x *process) inFlight() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.flights)
}

// writing is a line that is being written to the program.
type writing struct {
	line []byte
	done chan error // buffered, for one error
}

// write writes a line to the program. begun reports whether the program may
// have read a part of the line. If so the rest is written, too, even if write
// returns an error, because the next line must start on its own.
func (x *process) write(ctx context.Context, line []byte) (begun bool, err error) {
	timer := time.NewTimer(x.p.cfg.WriteTimeout)
	defer timer.Stop()
	w := &writing{line: line, done: make(chan error, 1)}
	select {
	case x.lines <- w:
	case <-timer.C:
		return false, envelope.Errorf(envelope.CodeUnavailable, "the agent's program does not read its input; it had not begun the task").WithBackoff(time.Second)
	case <-ctx.Done():
		return false, ctx.Err()
	case <-x.gone:
		return false, errNotBegun
	}
	select {
	case err := <-w.done:
		if err != nil {
			return true, died().WithCause(err)
		}
		return true, nil
	case <-timer.C:
		return true, envelope.Errorf(envelope.CodeUnavailable, "the agent's program does not read its input").WithBackoff(time.Second)
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

func (x *process) writeLoop() {
	for {
		select {
		case w := <-x.lines:
			_, err := x.pipes.Stdin.Write(w.line)
			w.done <- err
			if err != nil {
				x.broken <- errors.New("the program closed its standard input")
				return
			}
		case <-x.gone:
			return
		}
	}
}

// recent holds the ids of tasks that ended recently, to tell a late line from a
// line about an unknown task.
type recent struct {
	ring [256]string
	next int
	set  map[string]struct{}
}

func (r *recent) add(id string) {
	if r.has(id) {
		return
	}
	if r.set == nil {
		r.set = make(map[string]struct{}, len(r.ring))
	}
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = id
	r.set[id] = struct{}{}
	r.next = (r.next + 1) % len(r.ring)
}

func (r *recent) has(id string) bool { _, ok := r.set[id]; return ok }

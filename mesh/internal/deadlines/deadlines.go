package deadlines

import (
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

// An Entry is the place of one task in a [List]. It is a field of the task, so that a list
// allocates nothing. Its zero value is in no list.
type Entry[T any] struct {
	item       T
	due        time.Time
	named      time.Time // when Held is called; zero: it is not, or it was
	listed     bool
	prev, next *Entry[T]
}

// A List is the tasks that can be cancelled. Its methods may be called from many goroutines.
type List[T any] struct {
	// Overdue is called for tasks whose deadline has passed, and that are not in the list any
	// more.
	Overdue func(now time.Time, items []T)
	// Held is called for a task that is still in the list at the time that was passed to Add.
	Held func(item T)

	mu     sync.Mutex
	first  *Entry[T]
	alarm  sched.Alarm
	naming sched.Alarm
}

// Add adds a task with its deadline. held is when Held is called; zero: never.
func (l *List[T]) Add(e *Entry[T], item T, due, held time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*e = Entry[T]{item: item, due: due, named: held, listed: true, next: l.first}
	if e.next != nil {
		e.next.prev = e
	}
	l.first = e
	if l.alarm.F == nil {
		l.alarm.F, l.naming.F = l.expire, l.name
	}
	l.alarm.Set(due)
	if !held.IsZero() {
		l.naming.Set(held)
	}
}

// name calls Held for the tasks whose time has come.
func (l *List[T]) name() {
	now := time.Now()
	var due []T
	l.mu.Lock()
	l.naming.WentOff()
	for e := l.first; e != nil; e = e.next {
		switch {
		case e.named.IsZero():
		case e.named.After(now):
			l.naming.Set(e.named)
		default:
			e.named = time.Time{}
			due = append(due, e.item)
		}
	}
	l.mu.Unlock()
	for _, item := range due {
		l.Held(item)
	}
}

// Due changes the deadline of a task, if it is in the list.
func (l *List[T]) Due(e *Entry[T], due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.listed {
		e.due = due
		l.alarm.Set(due)
	}
}

// Remove removes a task, if it is in the list.
func (l *List[T]) Remove(e *Entry[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(e)
}

func (l *List[T]) remove(e *Entry[T]) {
	if !e.listed {
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.listed, e.prev, e.next = false, nil, nil
}

// expire removes the tasks that are past their deadline and passes them to Overdue.
func (l *List[T]) expire() {
	now := time.Now()
	var late []T
	l.mu.Lock()
	l.alarm.WentOff()
	for e := l.first; e != nil; {
		next := e.next
		if e.due.After(now) {
			l.alarm.Set(e.due)
		} else {
			late = append(late, e.item)
			l.remove(e)
		}
		e = next
	}
	l.mu.Unlock()
	if len(late) > 0 {
		l.Overdue(now, late)
	}
}

// Stop stops the timers for good.
func (l *List[T]) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarm.Stop()
	l.naming.Stop()
}

// Matching returns the tasks for which match holds; nil matches all.
func (l *List[T]) Matching(match func(T) bool) (out []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.first; e != nil; e = e.next {
		if match == nil || match(e.item) {
			out = append(out, e.item)
		}
	}
	return out
}

package sched

import (
	"sync"
	"time"
)

// Levels is how many priorities there are; 0 is the most urgent.
const Levels = 4

// weights is how many tasks of each priority are drawn in one round when all
// wait: most of the urgent, yet some of the low, so that low never starves.
var weights = [Levels]int{8, 4, 2, 1}

// Queue is a bounded queue that goroutines put tasks into and takers take them from.
// Within one priority the order is kept. No priority starves: a round draws 8, 4, 2 and 1
// where all wait.
//
// To wake a taker costs more than a brief task does. So no taker is woken while those
// awake can be expected to do all that waits within patience, judged by how long tasks
// took of late. Where one of them takes long after all, the watch notices and wakes others.
type Queue[T any] struct {
	mu      sync.Mutex
	waiting [Levels]ring[T]
	credit  [Levels]int
	size    int // how many wait
	taken   int // how many are being worked on
	limit   int // of both together
	closed  bool

	takers  []*Taker
	asleep  []*Taker      // the one that fell asleep last is at the end, its memory still warm
	awake   int           // of takers, those that will soon ask for a task
	coming  int           // of those, the ones that have been woken and have not taken a task yet
	usual   time.Duration // how long tasks took of late
	watch   *time.Timer
	watched bool // watch will go off
}

const (
	// patience is how long tasks may wait for takers that are awake while
	// others sleep.
	patience = 50 * time.Microsecond
	// watchEvery is how often the watch looks while tasks wait and takers
	// sleep. A taker that is at the same task twice takes long.
	watchEvery = time.Millisecond
)

// Taker takes tasks out of a queue, one after the other, in one goroutine.
type Taker struct {
	wake  chan struct{}
	busy  bool      // it is at a task
	turn  uint64    // of that task
	since time.Time // when it took it
	seen  uint64    // the turn in which the watch last saw it
	long  bool      // it takes long, and so does not count as awake
}

// NewQueue makes a queue for limit tasks, those that takers are at included.
func NewQueue[T any](limit int) *Queue[T] {
	return &Queue[T]{limit: limit, credit: weights, usual: watchEvery}
}

// Taker makes a taker, which is awake.
func (q *Queue[T]) Taker() *Taker {
	w := &Taker{wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.takers = append(q.takers, w)
	q.awake++
	return w
}

// Put adds a task of a priority below [Levels]. It returns false where the queue is full
// or closed.
func (q *Queue[T]) Put(t T, level int) bool {
	q.mu.Lock()
	if q.size+q.taken >= q.limit || q.closed {
		q.mu.Unlock()
		return false
	}
	q.waiting[level].push(t)
	q.size++
	w := q.helper()
	q.mu.Unlock()
	w.up()
	return true
}

// helper chooses a taker to be woken, if one is needed.
func (q *Queue[T]) helper() *Taker {
	last := len(q.asleep) - 1
	unclaimed := q.size - q.coming
	if last < 0 || unclaimed <= 0 {
		return nil
	}
	if q.awake > 0 && time.Duration(unclaimed)*q.usual <= time.Duration(q.awake)*patience {
		q.setWatch()
		return nil
	}
	w := q.asleep[last]
	q.asleep = q.asleep[:last]
	q.awake++
	q.coming++
	return w
}

// up wakes w, which may be nil.
func (w *Taker) up() {
	if w != nil {
		w.wake <- struct{}{}
	}
}

// Take waits for a task; false says that the queue is closed. A taker that has done the
// task it took before says so with finished, which makes room for another.
func (q *Queue[T]) Take(w *Taker, finished bool) (t T, ok bool) {
	now := time.Now()
	q.mu.Lock()
	if finished {
		q.taken--
		q.usual += (min(now.Sub(w.since), watchEvery) - q.usual) / 8
	}
	w.busy = false
	if w.long {
		w.long = false
		q.awake++
	}
	for q.size == 0 {
		q.awake--
		if q.closed {
			q.mu.Unlock()
			return t, false
		}
		q.asleep = append(q.asleep, w)
		q.mu.Unlock()
		<-w.wake
		now = time.Now()
		q.mu.Lock()
		q.coming--
	}
	w.busy, w.since = true, now
	w.turn++
	q.size--
	q.taken++
	t = q.draw()
	other := q.helper()
	q.mu.Unlock()
	other.up()
	return t, true
}

func (q *Queue[T]) setWatch() {
	if q.watched {
		return
	}
	q.watched = true
	if q.watch == nil {
		q.watch = time.AfterFunc(watchEvery, q.look)
		return
	}
	q.watch.Reset(watchEvery)
}

// look finds the takers that take long, and wakes others for what waits.
func (q *Queue[T]) look() {
	q.mu.Lock()
	q.watched = false
	for _, w := range q.takers {
		switch {
		case !w.busy || w.long:
		case w.seen == w.turn:
			w.long = true
			q.awake--
		default:
			w.seen = w.turn
		}
	}
	var wake []*Taker
	for w := q.helper(); w != nil; w = q.helper() {
		wake = append(wake, w)
	}
	q.mu.Unlock()
	for _, w := range wake {
		w.up()
	}
}

// draw takes from the most urgent level that has tasks and credit left. When
// no level has both, a new round begins.
func (q *Queue[T]) draw() T {
	for {
		for level := range q.waiting {
			if q.credit[level] > 0 && q.waiting[level].n > 0 {
				q.credit[level]--
				return q.waiting[level].pop()
			}
		}
		q.credit = weights
	}
}

// Close makes Take return false, and returns what was waiting.
func (q *Queue[T]) Close() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	var left []T
	for level := range q.waiting {
		for q.waiting[level].n > 0 {
			left = append(left, q.waiting[level].pop())
		}
	}
	q.size = 0
	q.awake += len(q.asleep)
	q.coming += len(q.asleep)
	for _, w := range q.asleep {
		w.up()
	}
	q.asleep = nil
	if q.watch != nil {
		q.watch.Stop()
	}
	return left
}

// Remove takes the tasks out for which match returns true.
func (q *Queue[T]) Remove(match func(T) bool) (removed []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for level := range q.waiting {
		r := &q.waiting[level]
		for range r.n {
			t := r.pop()
			if match(t) {
				removed = append(removed, t)
				q.size--
			} else {
				r.push(t)
			}
		}
	}
	return removed
}

// Len is how many tasks wait.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// ring is a FIFO that grows to what is needed.
type ring[T any] struct {
	buf  []T
	head int
	n    int
}

func (r *ring[T]) push(t T) {
	if r.n == len(r.buf) {
		grown := make([]T, max(16, 2*r.n))
		for i := range r.n {
			grown[i] = r.buf[(r.head+i)%len(r.buf)]
		}
		r.buf, r.head = grown, 0
	}
	r.buf[(r.head+r.n)%len(r.buf)] = t
	r.n++
}

func (r *ring[T]) pop() T {
	t := r.buf[r.head]
	var none T
	r.buf[r.head] = none
	r.head = (r.head + 1) % len(r.buf)
	r.n--
	return t
}

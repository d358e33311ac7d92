package mesh

import (
	"sync"
	"time"
)

// levels is how many priorities there are; see [envelope.Priority.Rank].
const levels = 4

// weights is how many tasks of each priority are drawn in one round when all
// wait: most of the urgent, yet some of the low, so that low never starves.
var weights = [levels]int{8, 4, 2, 1}

// queue is a bounded queue that goroutines put tasks into and workers take
// from. Within one priority the order is kept.
//
// To wake a worker costs more than a brief task does, so a task that one of the
// workers at work will soon come for wakes nobody: no worker is woken while
// those awake can be expected to do all that waits within patience, judged by
// how long tasks took of late. Where one then takes long after all, the watch
// notices and wakes others.
type queue struct {
	mu      sync.Mutex
	waiting [levels]ring
	credit  [levels]int
	size    int // how many wait
	taken   int // how many are being worked on
	limit   int // of both together
	closed  bool

	workers []*worker
	asleep  []*worker     // the one that fell asleep last is at the end, its memory still warm
	awake   int           // of workers, those that will soon ask for a task
	coming  int           // of those, the ones that have been woken and have not taken a task yet
	usual   time.Duration // how long tasks took of late
	watch   *time.Timer
	watched bool // watch will go off
}

const (
	// patience is how long tasks may wait for workers that are awake while
	// others sleep.
	patience = 50 * time.Microsecond
	// watchEvery is how often the watch looks while tasks wait and workers
	// sleep. A worker that is at the same task twice takes long.
	watchEvery = time.Millisecond
)

// worker is one taker of tasks.
type worker struct {
	wake  chan struct{}
	busy  bool      // it is at a task
	turn  uint64    // of that task
	since time.Time // when it took it
	seen  uint64    // the turn in which the watch last saw it
	long  bool      // it takes long, and so does not count as awake
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, credit: weights, usual: watchEvery}
}

// worker makes a taker, which is awake.
func (q *queue) worker() *worker {
	w := &worker{wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.workers = append(q.workers, w)
	q.awake++
	return w
}

// put reports false when the queue is full or closed.
func (q *queue) put(t *Task) bool {
	q.mu.Lock()
	if q.size+q.taken >= q.limit || q.closed {
		q.mu.Unlock()
		return false
	}
	q.waiting[t.Envelope.Priority.Rank()].push(t)
	q.size++
	w := q.helper()
	q.mu.Unlock()
	w.up()
	return true
}

// helper chooses a worker to be woken, if one is needed.
func (q *queue) helper() *worker {
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
func (w *worker) up() {
	if w != nil {
		w.wake <- struct{}{}
	}
}

// take waits for a task; nil means that the queue is closed. A worker that has
// taken a task before says so with finished, which makes room for another.
func (q *queue) take(w *worker, finished bool) *Task {
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
			return nil
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
	t := q.draw()
	other := q.helper()
	q.mu.Unlock()
	other.up()
	return t
}

func (q *queue) setWatch() {
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

// look finds the workers that take long, and wakes others for what waits.
func (q *queue) look() {
	q.mu.Lock()
	q.watched = false
	for _, w := range q.workers {
		switch {
		case !w.busy || w.long:
		case w.seen == w.turn:
			w.long = true
			q.awake--
		default:
			w.seen = w.turn
		}
	}
	var wake []*worker
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
func (q *queue) draw() *Task {
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

// close stops take, and returns what was waiting.
func (q *queue) close() []*Task {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	var left []*Task
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

// remove takes the tasks out for which match holds.
func (q *queue) remove(match func(*Task) bool) (removed []*Task) {
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

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// ring is a FIFO that grows to what is needed.
type ring struct {
	buf  []*Task
	head int
	n    int
}

func (r *ring) push(t *Task) {
	if r.n == len(r.buf) {
		grown := make([]*Task, max(16, 2*r.n))
		for i := range r.n {
			grown[i] = r.buf[(r.head+i)%len(r.buf)]
		}
		r.buf, r.head = grown, 0
	}
	r.buf[(r.head+r.n)%len(r.buf)] = t
	r.n++
}

func (r *ring) pop() *Task {
	t := r.buf[r.head]
	r.buf[r.head] = nil
	r.head = (r.head + 1) % len(r.buf)
	r.n--
	return t
}

package mesh

import "sync"

// levels is how many priorities there are; see [envelope.Priority.Rank].
const levels = 4

// weights is how many tasks of each priority are drawn in one round when all
// wait: most of the urgent, yet some of the low, so that low never starves.
var weights = [levels]int{8, 4, 2, 1}

// queue is a bounded queue that many goroutines put into and take from.
// Within one priority the order is kept.
type queue struct {
	mu      sync.Mutex
	ready   sync.Cond
	waiting [levels]ring
	credit  [levels]int
	size    int // how many wait
	taken   int // how many are being worked on
	limit   int // of both together
	closed  bool
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit, credit: weights}
	q.ready.L = &q.mu
	return q
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
	q.mu.Unlock()
	q.ready.Signal()
	return true
}

// take waits for a task; nil means that the queue is closed. Whoever has taken
// a task before says so with finished, which makes room for another.
func (q *queue) take(finished bool) *Task {
	q.mu.Lock()
	defer q.mu.Unlock()
	if finished {
		q.taken--
	}
	for q.size == 0 {
		if q.closed {
			return nil
		}
		q.ready.Wait()
	}
	q.size--
	q.taken++
	return q.draw()
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
	q.ready.Broadcast()
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

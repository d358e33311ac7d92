package jetstream

// maxBatch is the most messages of one request.
const maxBatch = 256

// draw requests as many tasks as there is room for.
func (r *laneRun) draw() {
	if !r.nc.IsConnected() {
		return
	}
	// room is called without holding mu: room may take a lock of the worker, which the
	// worker may hold while it calls Health. Tasks that arrive meanwhile make room's
	// result too high; the larger count of outstanding requests, before or after,
	// corrects that.
	r.mu.Lock()
	before := r.outstanding()
	r.mu.Unlock()
	room := r.room()
	busy := r.opts.Busy != nil && r.opts.Busy()
	r.mu.Lock()
	defer r.mu.Unlock()
	free := room - max(before, r.outstanding())
	if due := r.sources[len(draws)]; due.ready && due.asked == 0 && !due.asleep && len(r.due) < roomForDue {
		r.ask(due, dueBatch, pollExpires)
	}
	r.allot(free)
	for _, s := range r.sources[:len(draws)] {
		switch {
		case !s.ready || s.asked > 0 || s.asleep:
		case s.hot && s.want > 0:
			n := min(s.want, maxBatch)
			s.want = 0
			r.ask(s, n, 0)
		case !s.hot && room > 0:
			r.ask(s, 1, s.expires(busy))
		}
	}
}

// outstanding counts the tasks that were requested from sources with tasks. The single
// requests that wait on the other sources do not count.
func (r *laneRun) outstanding() int {
	n := 0
	for _, s := range r.sources[:len(draws)] {
		if !s.waits {
			n += s.asked
		}
	}
	return n
}

// allot divides the free places among the sources that have tasks, by their weights. A
// source with a request under way keeps its share for its next request, so that the
// shares do not depend on which answer comes first.
func (r *laneRun) allot(free int) {
	total := 0
	for _, s := range r.sources[:len(draws)] {
		if !s.hot || !s.ready {
			s.want, s.turn = 0, 0
			continue
		}
		free -= s.want
		total += s.weight
	}
	if total == 0 {
		return
	}
	for ; free > 0; free-- {
		// Smooth weighted round robin: every source gains its weight; the one with the
		// most credit is drawn and loses the sum of all weights.
		var best *source
		for _, s := range r.sources[:len(draws)] {
			if s.hot && s.ready {
				s.turn += s.weight
				if best == nil || s.turn > best.turn {
					best = s
				}
			}
		}
		best.turn -= total
		best.want++
	}
	for _, s := range r.sources[:len(draws)] {
		// While the set of sources stays the same, the credit is within these bounds
		// anyway. The bounds keep sources that come and go from accumulating credit or
		// debt.
		s.turn = min(max(s.turn, -total), total)
	}
	for ; free < 0; free++ { // more was allotted than there is room for now
		var most *source
		for _, s := range r.sources[:len(draws)] {
			if s.want > 0 && (most == nil || s.want > most.want) {
				most = s
			}
		}
		if most == nil {
			return
		}
		most.want--
	}
}

package jetstream

// maxBatch bounds one request.
const maxBatch = 256

// draw asks for as many tasks as there is room for.
func (r *laneRun) draw() {
	if !r.nc.IsConnected() {
		return
	}
	// room is asked before the lock is taken: its caller may hold one of its own
	// when it looks at the health. What comes in meanwhile leaves it too high,
	// which the count of what was asked before makes good.
	r.mu.Lock()
	before := r.outstanding()
	r.mu.Unlock()
	room := r.room()
	r.mu.Lock()
	defer r.mu.Unlock()
	free := room - max(before, r.outstanding())
	if due := r.sources[len(draws)]; due.ready && due.asked == 0 {
		r.ask(due, dueBatch, true)
	}
	r.allot(free)
	for _, s := range r.sources[:len(draws)] {
		switch {
		case !s.ready || s.asked > 0:
		case s.hot && s.want > 0:
			n := min(s.want, maxBatch)
			s.want = 0
			r.ask(s, n, false)
		case !s.hot && room > 0:
			r.ask(s, 1, true)
		}
	}
}

// outstanding counts the tasks that were asked for from sources that have some.
// The single ones that are waited for elsewhere take no place.
func (r *laneRun) outstanding() int {
	n := 0
	for _, s := range r.sources[:len(draws)] {
		if !s.waits {
			n += s.asked
		}
	}
	return n
}

// allot gives the free places to the sources that have tasks, by their weights.
// One whose request is under way keeps what it gets for the next one, so that
// what each gets does not depend on whose answer comes first.
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
		// Smooth weighted round robin: everyone gains its weight, the richest
		// one is drawn and pays for all.
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
		// As it is anyway while the same ones take part; those that come and go
		// do not build up credit or debt.
		s.turn = min(max(s.turn, -total), total)
	}
	for ; free < 0; free++ { // there is less room than was given away
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

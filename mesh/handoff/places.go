package handoff

import (
	"fmt"
	"sync"
)

// places count the streams that are read, so that no issuer keeps all others out.
type places struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by issuer
}

// take takes one of limit places for an issuer, and returns the function that gives it back. It
// fails with [ErrBusy] if all are taken, or if the issuer has three quarters of them.
func (p *places) take(issuer string, limit int) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.all >= limit:
		return func() {}, fmt.Errorf("%w: %d streams are open", ErrBusy, p.all)
	case p.of[issuer] >= limit-limit/4:
		return func() {}, fmt.Errorf("%w: %d streams of %.80q are open", ErrBusy, p.of[issuer], issuer)
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.all++
	p.of[issuer]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		if p.of[issuer]--; p.of[issuer] == 0 {
			delete(p.of, issuer)
		}
	}, nil
}

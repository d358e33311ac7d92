package learn

import (
	"context"
)

// Look updates the pools once.
func (l *Learner) Look(ctx context.Context) {
	for _, p := range l.sorted() {
		p.advance(ctx)
	}
}

package learn

import (
	"context"
)

// Try asks each pool to do nothing.
func (l *Learner) Try(ctx context.Context) error {
	for _, p := range l.sorted() {
		if err := p.try(ctx, change{apply: nothing}); err != nil {
			return err
		}
	}
	return nil
}

// Look updates the pools once.
func (l *Learner) Look(ctx context.Context) {
	for _, p := range l.sorted() {
		p.advance(ctx)
	}
}

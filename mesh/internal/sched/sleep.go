package sched

import (
	"context"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
)

// Sleep waits for d, or until ctx ends: then it returns the cause of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	if !pause.For(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

package worker

import (
	"context"

	"github.com/aeemesh/aeemesh/agents/registry"
)

// PublishAgain sets what a worker waits for before it tries again to publish templates.
func (w *Worker) PublishAgain(wait func(context.Context) bool) { w.again = wait }

// RegisterIn registers a worker's documents.
func (w *Worker) RegisterIn(ctx context.Context, reg registry.Registry) error {
	return w.register(ctx, reg)
}

package worker

import "context"

// PublishAgain sets what a worker waits for before it tries again to publish templates.
func (w *Worker) PublishAgain(wait func(context.Context) bool) { w.again = wait }

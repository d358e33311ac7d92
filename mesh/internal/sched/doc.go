// Package sched is what a worker schedules by: the queue of tasks by priority, a timer for
// many deadlines, goroutines that are used again, and the time limits of requests to stores.
// It knows nothing of envelopes.
package sched

// Package sched is what a worker schedules by: the queue of tasks by priority, a timer for
// many deadlines, and goroutines that are used again. It knows nothing of envelopes.
package sched

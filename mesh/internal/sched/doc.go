// Package sched schedules the tasks of a worker. It has the queue of tasks by priority, a timer
// for many deadlines, reusable goroutines, and the time limits of requests to stores. It uses no
// envelopes.
package sched

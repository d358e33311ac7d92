// Package beats sends the heartbeats of a process's agents, one agent after the other, evenly
// spread over the interval.
//
// It stands on nothing. How an agent is announced is for its caller.
package beats

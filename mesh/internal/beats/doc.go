// Package beats sends the heartbeats of a process's agents, one agent after the other, evenly
// spread over the interval.
//
// It imports no other package of the mesh. The caller announces the agents.
package beats

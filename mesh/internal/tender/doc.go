// Package tender does the periodic work of a node's durable lanes.
//
// For a lane that starts, or may have missed messages, it looks for the runs that wait and for the
// runs of workers that may be dead. It sweeps: it looks for runs that have lost their message. And
// it removes ended runs before the store of runs is full. It reads the runs of all agents
// together, so an idle agent costs nothing. Its goroutines run while the node has a lane.
//
// Package mesh decides through its [Lane] what happens to a run.
package tender

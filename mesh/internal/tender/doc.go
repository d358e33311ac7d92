// Package tender does the periodic work of a node's durable lanes that does not depend on tasks.
//
// It looks for the runs of lanes that begin, or have missed something: those that wait, and those
// of workers that may be dead. It sweeps, that is, looks for runs that have lost their message.
// And it removes ended runs before the store of runs is full. It reads the runs of all agents
// together, so an idle agent costs nothing. Its goroutines run while the node has a lane.
//
// What is done with a run is for its [Lane], that is package mesh, to decide.
package tender

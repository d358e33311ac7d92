// Package bus publishes what happens to agents and their tasks on the bus: events of tasks and
// steps, the presence of agents, and alerts.
//
// A [Bus] belongs to a node, an [Agent] publishes in the name of one agent. No event contains the
// payload of a task, and texts of peers are truncated. An event is sent at most once; a failure to
// send it is logged.
package bus

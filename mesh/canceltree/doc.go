// Package canceltree cancels a task and the tasks below it: those that its agent sent for
// it, those that their agents sent, and so on.
//
//	result, below, err := canceltree.Cancel(ctx, node, logger, "agent.lead", intents.CancelTask{ID: id})
//
// A worker that cancels a run also cancels the tasks which that run sent. Where an agent
// of the tree has no worker, this stops; Cancel goes on from the checkpoints in the store.
// It needs a node with a durable lane that may read them, and whose entity the agents obey
// (mesh.Durable.Operators). It visits at most mesh.DefaultMaxTasks tasks. Cancels of
// several trees may run at once.
package canceltree

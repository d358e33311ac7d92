// Package slots enforces an agent's concurrency limit across the mesh (AAIF runtime.concurrency):
// each of its tasks, live or durable, runs in a slot. The slots of a dead worker expire with their
// lease. The worker that takes over its runs frees one slot for each run at once. A worker that
// cannot renew a slot ends the slot's task.
//
// A worker keeps spare slots, as many as are in use and at least one, so that the next task
// need not wait. It releases slots that are unused for a while, because each renewal is a
// write at the server. A worker whose tasks wait announces that to the agent's other workers.
// Then these release their spare slots, and for a short time also the slot of each task that
// ends, so that any worker can acquire it.
//
// It stands mainly on the slots in JetStream ([slot.Store]). It knows a task only as a key.
package slots

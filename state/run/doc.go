// Package run has the transitions of a durable run: it applies messages, commands, steps and
// timeouts to the run's checkpoint. Only this package branches on a run's status.
//
// All functions are pure: they depend only on their arguments, and use no store, clock or network.
// A transition changes the checkpoint that it gets, which is the caller's copy of the stored one,
// and reports what must follow. So a worker does the same with every run:
//
//	read      the run's record
//	change    by one function of this package
//	swap      the record, by compare-and-swap: of all who try, one succeeds
//	effects   what the change asks for: reply, acknowledge, queue, forward
//
// A swap that fails has changed nothing; the worker reads again and asks again.
//
// # The life of a run
//
//	                 ┌──────────── Retry, Release ───────────┐
//	                 ▼                                       │
//	(no record) ─ Claim ─▶ running, owned ─ Step ─▶ running, owned ─ End ─▶ completed, failed
//	                         │        ▲
//	              Step, Claim│        │Claim
//	                         ▼        │
//	   paused, awaiting_approval ─ Wake, Command(resume, settle) ─▶ running, no owner
//	   migrating ─ Back ─▶ running or parked;  Accept ─▶ running, the target's
//
// Ownership is the record: the worker in Mesh.Owner whose epoch is Mesh.Epoch owns the
// run. Each claim increments the epoch, and so does each change that takes a run from an owner
// that has not released it ([Abandon]), or makes a parked or moving run claimable (a wake, a
// return from a move). So what an earlier owner still writes is recognised as old. A run that
// is to go on and has no owner needs a message in the work queue: the comment of each change
// that makes such a run says who queues it.
package run

// Package mesh puts agents on NATS: a [Node] serves agents on their subjects
// and sends tasks to others, in AEE envelopes.
//
//	node, err := mesh.New(conn, mesh.Config{})
//	go node.Serve(ctx, mesh.Agent{Entity: "agent.reviewer", Handler: mesh.Typed(review)})
//
//	task := envelope.New(envelope.TypeTask, "human.ada", "agent.reviewer", "code.review", payload)
//	result, err := node.Send(ctx, task, mesh.SendOptions{})
//
// docs/nats-binding.md specifies what goes over the wire.
//
// # The way of a live task
//
// A message that arrives on the live lane is decoded under limits (intake.go), and its signature
// is verified (admit.go). Then stale, replayed and over-quota (internal/quota) messages are
// refused. The reserved aee.* intents are answered at once, on goroutines of their own
// (reserved.go). Every other task is validated against its intent's schema and queued by priority
// (internal/sched; low never starves). One of [Agent].Concurrency goroutines runs the agent's
// [Handler] for it (execute.go). A worker answers each task that it ends with one terminal
// envelope, also if the handler panics. One function (ForPeer of mesh/internal/fault) decides what
// a peer may read of an error.
//
// A node uses one reply subscription for all the requests that it sends
// (internal/rpc); requests at about the same time share a system call. The last
// envelopes sent and received are kept as bytes (internal/journal).
//
// An agent is also a NATS micro service (internal/service), subscribes to control messages
// (control.go), and publishes events about itself and its tasks (internal/bus) and about
// steps that its handlers report (step.go).
//
// # The two lanes
//
// The live lane does not know the durable one. durable_port.go declares what an agent's host needs
// of its durable lane, and what a task needs of its run, as two interfaces; they hold nil for an
// agent without the lane, and for a live task. serve.go puts the two lanes together.
//
// # The durable lane's claims
//
// On the durable lane each task is a run, whose record says who owns it. A
// worker claims it by a compare-and-swap (claim.go). The claim of a new task is
// written with its first checkpoint, or after a quarter of a second, if the store
// has one replica and holds no record of the run (claim_late.go). Until then two
// workers may have begun the run; one of them continues it.
//
// # Delegation
//
// A handler may delegate its task to another agent ([Task.Delegate]; AAIF calls it a
// handoff). The receiver answers the sender itself, and proves by a chain of signed
// links that it may: delegate.go begins a delegation and ends a live task with it,
// internal/delegated makes and checks the chain and stores the state that is sent with it,
// durable_delegate.go ends a run and passes commands on. The receiver replies straight to the
// sender: a process in the middle would be one more whose crash loses the reply. Exactly one
// agent has the task at any time, because the delegation is the last checkpoint of the run, and
// the receiver's task is queued from it.
//
// # Transfers
//
// A run moves to another worker or platform when its handler has stopped: capture.go
// writes the record that says so, and package migration does the rest, through two small
// interfaces that transfer.go and transfer_run.go implement. What a node without a worker
// does for other platforms, such as [Node.Export], is in package platform.
//
// # People, and runs that wait
//
// A task for human.<name> goes into an inbox (internal/calls), and the
// answer is stored like any durable reply; [Node.PersonTasks] and [Node.AnswerPersonTask] are
// the person's side (client/inbox.go). A durable run that only waits is parked, and its
// checkpoint names the replies and times that it waits for ([Run.ParkUntil], park.go).
// The workers of the entity subscribe to the reply subjects and set timers (waits.go);
// the compare-and-swap lets one of them wake the run. A run that waits for a parked run
// is parked, too.
//
// # Trees
//
// A handler sends tasks of its own with [Task.Call] (internal/calls): in its agent's name,
// over the durable lane if the task came over it and the receiver has one, else live, within bounds that every
// worker enforces ([TreeLimits], internal/bounds). Turns of models are counted for the
// whole tree, as agents report them ([Task.Turn]), and a live task that would wait
// for itself is refused (bounds.go). A durable run's checkpoint names its open
// calls, so that the worker that ends the run can cancel them.
//
// # Words
//
// The words of this package. docs/concepts.md explains them to newcomers, and names second
// meanings.
//
//   - Claim a run: become its owner by compare-and-swap. Renew: keep its lease. Release:
//     give it up on purpose. Lose: find out that another worker owns it.
//   - Lease: how long a worker keeps a message without renewing it. Epoch: a number in the
//     run's record that grows with each claim, and when a run is taken from its owner. Fence: what
//     refuses the writes of a former owner.
//   - Park a run: record that it waits, and release it. Wake: go on with it.
//   - Complete, fail, cancel, dead-letter: the ends of a run.
//   - Redeliver: the server delivers a message again. Requeue: a worker puts a run's
//     message into the queue again. Ack and nak: the worker's answers to a delivery.
//   - Retry: try a failed task again. Drain: finish what has begun, and begin nothing.
//   - Delegate a task to another agent (AAIF: handoff). Transfer a run to another worker or
//     platform (migration). The names of AAIF and of the wire keep "handoff".
//   - Step: the part of a run between two checkpoints. Turn: one call of a model.
//   - Settle: state the outcome of a tool call that was lost. Receipt: its recorded outcome.
//   - Stream: text that is sent while it is generated. Replay: the same text after a crash.
//   - Holder of a live task: the worker that took it and has not answered it. Guardian of a
//     worker: another one of its agent that watches it while it has runs.
//   - Lane: live or durable. Hop: a task that an agent sends for its own task.
//   - Worker: a process that serves an agent (also: instance). Draw: receive a message of
//     the work queue. Slot: the right to run one task, of those that all workers of an agent
//     share ([Agent].MeshConcurrency). Place: the same in one worker ([Agent].Concurrency).
//
// # Guarantees and limits
//
// The live lane is core NATS: at most once. A task is run by one worker of its
// queue group or by none; a worker that is killed takes its tasks with it. Its
// sender watches the worker that has its task (holder.go, internal/holders), and
// gets E_UNAVAILABLE: the task may have begun. A task that was refused with E_BUSY,
// E_RATE_LIMITED or E_DRAINING was not begun. The deadline is counted from arrival, by
// this process's clock; the sender is answered when it passes, whether or not the
// handler has noticed.
//
// Everything that a peer can make grow is bounded: the size and depth of messages, the
// queue, the messages that wait for a signature check, and the remembered ids, senders,
// refutations and envelopes.
//
// # Concurrency
//
// A Node's methods may be called from many goroutines. [Node.Serve] blocks and
// owns the goroutines that it starts; when it returns, they have ended, except
// handlers that outlived the drain.
//
// A waiting goroutine is woken for a task only if the running ones are unlikely to take
// the task within 50 µs, judged by how long the last tasks took. If a handler that was always
// brief suddenly takes long, a task behind it may wait for 2 ms until another goroutine
// is woken.
package mesh

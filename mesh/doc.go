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
// # From the bottom up
//
// A message that arrives on the live lane is decoded under limits (intake.go), and
// its signature is verified (admit.go); what is too old, came before, or comes
// from a sender over its quota (internal/quota) is refused. The reserved aee.* intents are
// answered at once, beside the agent's own work (reserved.go). Everything else
// is validated against its intent's schema and waits in a bounded queue, drawn
// by priority so that low never starves (internal/sched), for one of
// [Agent].Concurrency workers to run its [Handler] (execute.go). Whatever happens
// then, a panic included, exactly one terminal envelope answers the task, and
// every error passes one border (errors.go) that decides what a peer may read.
//
// What a node sends itself, it sends on one reply subscription for all
// exchanges (internal/rpc), and requests that are sent at about the same time
// share a system call. The last envelopes sent and received are
// kept as bytes (journal.go).
//
// Beside this, an agent is a NATS micro service (service.go), hears control
// messages that go to all its replicas (control.go), and tells the bus about
// itself, its tasks (bus.go) and what its handlers say of their steps (step.go).
//
// # The durable lane's claims
//
// On the durable lane each task is a run, whose record says who owns it. A
// worker claims it by a compare-and-swap (claim.go). The claim of a new task is
// written with its first checkpoint, or after a quarter of a second, where the
// store has one replica and says that it has nothing of the run
// (claim_late.go): until then two workers may have begun it, and one of them
// goes on.
//
// # Delegation
//
// A handler may delegate its task to another agent ([Task.HandOff]; AAIF calls it a
// handoff). The receiver answers the sender itself, and proves by a chain of signed
// links that it may: delegate.go begins a delegation, delegate_chain.go makes and checks
// the chain, context_state.go has the state that is sent with it, delegate_end.go ends
// the task here and passes commands on. The receiver replies straight to the sender: a
// process in the middle would be one more whose crash loses the reply. A task is with one
// agent or with the next, because the delegation is the last checkpoint of the run, and
// the receiver's task is queued from it.
//
// # People, and runs that wait
//
// A task for human.<name> goes into an inbox (call_person.go, inbox_post.go), and the
// answer is stored like any durable reply; [Node.Asks] and [Node.AnswerAsk] are
// the person's side (inbox_read.go). A durable run that has nothing to do but wait is
// parked with what it waits for in its checkpoint ([Run.ParkUntil], wake.go).
// Every worker of the entity that knows of it listens on the reply subjects and
// keeps the time (waits.go), and the swap lets one of them wake it. Who waits for
// a run that waits is parked too (call_waits.go).
//
// # Trees
//
// A handler sends tasks of its own with [Task.Call] (call*.go): in its agent's name,
// over the durable lane where both have one, else live, within bounds that every
// worker holds ([TreeLimits]). Turns of models are counted for all of a tree, as
// agents tell of them ([Task.Turn], call_turns.go), and a live task that would wait
// for itself is refused (call_deadlock.go). What a durable run has others do is in its
// checkpoint, so that whoever ends the run stops it.
//
// # Words
//
// Each word has one meaning, the field's. docs/concepts.md explains them to newcomers.
//
//   - Claim a run: become its owner by compare-and-swap. Renew: keep its lease. Release:
//     give it up on purpose. Lose: find out that another worker owns it.
//   - Lease: how long a silent worker keeps a message. Epoch: the number of a claim.
//     Fence: what refuses the writes of a former owner.
//   - Park a run: record that it waits, and release it. Wake: go on with it.
//   - Complete, fail, cancel, dead-letter: the ends of a run.
//   - Redeliver: the server delivers a message again. Requeue: a worker puts a run's
//     message into the queue again. Ack and nak: the worker's answers to a delivery.
//   - Retry: try a failed task again. Drain: finish what has begun, and begin nothing.
//   - Delegate a task to another agent (AAIF: handoff). Transfer a run to another worker or
//     platform (migration). The names of AAIF and of the wire keep "handoff".
//   - Step: the part of a run between two checkpoints. Turn: one call of a model.
//   - Settle: state the outcome of a tool call that was lost. Receipt: its recorded outcome.
//   - Stream: text that is sent while it is made. Replay: the same text after a crash.
//   - Holder of a live task: the worker that took it and has not answered it. Guardian of a
//     worker: another one of its agent that watches it while it has runs.
//   - Lane: live or durable. Hop: a task that an agent sends for its own task.
//
// # Guarantees and limits
//
// The live lane is core NATS: at most once. A task is run by one worker of its
// queue group or by none; a worker that is killed takes its tasks with it. Its
// sender watches the worker that has its task (holder.go, holder_watch.go), and
// gets E_UNAVAILABLE: the task may have begun. A task that was refused with E_BUSY, E_RATE_LIMITED or
// E_DRAINING was not begun. The deadline is counted from arrival, by this
// process's clock; the sender is answered when it passes, whether or not the
// handler has noticed.
//
// Everything that a peer can make grow is bounded: the size and depth of
// messages, the queue, what waits for a signature check, remembered ids,
// senders, refutations and envelopes.
//
// # Concurrency
//
// A Node's methods may be called from many goroutines. [Node.Serve] blocks and
// owns the goroutines that it starts; when it returns, they have ended, except
// handlers that outlived the drain.
//
// A worker is woken for a task unless those that are awake will have come to it
// within some 50 µs, going by how long tasks took of late. Where a handler that
// was always brief suddenly takes long, a task behind it may so wait for 2 ms
// until another worker is woken.
package mesh

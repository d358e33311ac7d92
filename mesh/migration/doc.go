// Package migration transfers the runs of one worker: to another worker of its agent, or to
// another platform, whose replies it then relays. docs/migration.md describes the protocol.
//
// A transfer begins like a pause: the handler stops at its next step, or in the middle of a
// generation, and the run's record names the target. Package mesh does that part. Then the
// worker that holds the run's message calls [Mover.Move], which offers the run to the target.
// If another worker accepts, this one drops the message without an ack. If another platform
// accepts, it keeps the message, and relays the replies until the last. If the target refuses,
// it goes on with the run. Within the mesh the run's record decides who owns the run, by
// compare-and-swap; with another platform the receiver's record does.
//
// Package mesh makes a [Mover] of a [Config] and calls its four methods Move, Offered, Allow and
// Forward. This package reads and writes a run through the 10 methods of [Owned], and uses the
// worker through the 6 methods of [Host]. It takes no lock and starts no goroutine of its own, and
// it never imports mesh. It stands mainly on mesh/handoff, jetstream, state/run and
// state/transfer.
package migration

package mesh

import "github.com/aeemesh/aeemesh/mesh/internal/wire"

// Headers of the mesh's messages (docs/nats-binding.md).
const (
	// HeaderFrom names the sender of plain text on aee.ask.*.
	HeaderFrom = wire.HeaderFrom
	// HeaderStreamCount, on a terminal envelope, is the number of stream envelopes
	// before it.
	HeaderStreamCount = wire.HeaderStreamCount
	// HeaderHandoff, on a reply, is the chain of links, separated by spaces. The chain
	// proves that the author of the reply may answer ("Delegated tasks").
	HeaderHandoff = wire.HeaderHandoff
	// HeaderHolder, on a message without a body to the reply subject of a live task, names
	// the worker that has the task. The message has [HeaderTask], too.
	HeaderHolder = wire.HeaderHolder
	// HeaderTask is the id of the task that a message without an envelope is about.
	HeaderTask = wire.HeaderTask
	// HeaderRun, on a message of the work queue, says that the message is not a new
	// task: it resumes the run with this id.
	HeaderRun = wire.HeaderRun
	// HeaderEpoch, on a reply, is the epoch of the run's owner that made it.
	HeaderEpoch = wire.HeaderEpoch
	// HeaderTaskDigest, on the terminal reply to a durable task, is the digest of the
	// task, because several tasks may have the same id.
	HeaderTaskDigest = wire.HeaderTaskDigest
)

// headerSlots marks the announcement that tasks wait for slots. Its value is the instance id
// of the announcing worker. The message has no body.
const headerSlots = "Aee-Slots-Wanted"

// Package state holds the checkpoints of runs: Agent State documents (AAIF,
// "Agent State and Checkpointing"), how they are written and read, and the port
// to where they are kept.
//
//	codec := state.Codec{}
//	c := state.New("agent.reviewer", task.ID, "")
//	data, err := codec.Encode(c)
//	…
//	revision, err := store.Put(ctx, c.ID(), 0, data) // ErrChanged: somebody else owns the run
//
// # Tour
//
// A [Checkpoint] is a document: the specification's fields, where the
// specification has them, and [Mesh], which is what this mesh needs besides, in
// the extension member x-aeemesh. Helpers read and change it and do no I/O:
// [Checkpoint.Messages] and [Checkpoint.Append] for the conversation,
// [Checkpoint.Settle] for a tool call whose outcome nobody saw,
// [Checkpoint.Memories] for what may be loaded into whose run,
// [Checkpoint.Fork], [Checkpoint.Strip], [Diff] and [Timeline].
//
// A [Codec] writes checkpoints as JSON or CBOR and reads them. [ReadHeader]
// reads what is clear of any document. A [Keyring] in the codec seals documents
// at rest.
//
// A [Store] keeps the bytes, by run and revision; [Mem] is the one in memory,
// and package statetest holds every store to the port's contract.
//
// For the move of a run to another platform there are the [Grant] with its
// token, the [Verdict] of the target, and [WriteHandoff] and [ReadHandoff] for
// the streaming handoff.
//
// # The document
//
// The JSON text is the canonical form of RFC 8785 and is written as such, so
// that provenance.checksum is one pass of the hash over the text, without
// canonicalising it again. A document of another platform is canonicalised
// first. What the specification's messages have no place for, the calls that an
// assistant's turn asks for above all, is in the notes of x-aeemesh, by the
// message's index. Raw JSON in x-aeemesh is held as text: the canonical form
// would change its numbers, and a task must keep the bytes that were signed.
// Members of others (x-…) survive.
//
// What a model or a tool says never keeps a checkpoint from being written:
// bytes that are no UTF-8 become U+FFFD, and in the specification's own raw
// values (the arguments of a pending call, variables, outputs) a number that a
// double would change becomes a string of its digits.
//
// Encode remembers, in the checkpoint, the text of what grows large and rarely
// changes. From one step of a run to the next, only the new messages are
// written; the checksum is what is left of the cost.
//
// # Sealed documents
//
// A sealed document is a valid Agent State document too. In the clear are
// state_id, agent_id, run_id, status, iteration and checkpoint_at, and of
// x-aeemesh entity, task_id, epoch, owner, the kind of step, and the sequence of
// the work message: what workers and operators find a run by. All else is in one
// text sealed with XChaCha20-Poly1305, and the clear part is authenticated with
// it, so that it cannot be altered either. The checksum of a sealed document
// covers the document as it is at rest. A seal protects what is stored from
// those who can read the store, and from those who can write to it without the key:
// a codec with a key refuses clear documents, and [Codec.Read] a record that was
// sealed for another run, or over another revision than the one that the store says
// ([Codec.Over], [Record]). It does not tell one writer with the key from another,
// and the first record of a run may be put back in place of a later one.
//
// # Versions
//
// x-aeemesh has a format number. A release reads its own format and every older
// one, and refuses newer ones with [ErrNewer], so that a worker that is not
// upgraded yet leaves the run to one that is. Members that are new and may be
// ignored survive in [Mesh].More; inside nested objects, and wherever ignoring
// would be wrong, a new member takes a new format. testdata/checkpoints has
// documents of every format, and a test that goes on from each.
//
// # Names that last
//
// [RunID] and [AgentID] are hard to change: every worker computes them for
// itself, and runs are stored under them. Two releases that disagree about them
// would not find each other's runs, and would do a task twice. The same goes for
// [EffectKey], by which tools know a call again, for [AdoptedTask], and for [KeyID]. They are
// UUIDs of version 5 because that is what every language's library can compute;
// their hash, SHA-1, is broken only for those who choose both names, and two tasks
// that share a run's name are told apart by the task that the run's record holds.
// Vectors in the tests pin them all.
//
// # Concurrency
//
// A Checkpoint belongs to one goroutine at a time; clones are independent. A
// Codec and a Keyring may be shared. Stores are safe for concurrent use.
//
// # Limits
//
// Documents are at most 16 MiB, or what the codec says, and nest at most 128
// deep. Integers beyond 2^53 are refused where the schema wants an integer. The
// checksum protects from damage, not from forgery: without a key who may write to the
// store may write any checkpoint.
package state

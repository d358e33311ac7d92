// Package state defines the checkpoints of runs: Agent State documents (AAIF, "Agent
// State and Checkpointing"), how they are encoded and decoded, and the interface of the
// stores that keep them.
//
//	codec := state.Codec{}
//	c := state.New("agent.reviewer", task.ID, "")
//	data, err := codec.Encode(c)
//	…
//	revision, err := store.Put(ctx, c.ID(), 0, data) // ErrChanged: another worker owns the run
//
// # Tour
//
// A [Checkpoint] is a document: the specification's fields, as the specification defines
// them, and [Mesh], what this mesh needs in addition, in the extension member x-aeemesh.
// Its methods do no I/O: [Checkpoint.Messages] and [Checkpoint.Append] for the
// conversation, [Checkpoint.Variables] and [Checkpoint.SetVariable] for what a handler in
// Go knows, [Checkpoint.Settle] for a tool call with an unknown outcome,
// [Checkpoint.Memories] for the memories that a run may load, [Checkpoint.Fork],
// [Checkpoint.Strip], [Diff] and [Timeline].
//
// A [Codec] writes checkpoints as JSON or CBOR and reads them. [ReadHeader] reads the
// unsealed part of any document. A [Keyring] in the codec seals documents at rest.
//
// A [Store] keeps the bytes, by run and revision; [Mem] is a store in memory, and package
// statetest tests that a store fulfils the interface's contract.
//
// [Checkpoint.Outbound] prepares a checkpoint for another platform, and
// [Checkpoint.Inbound] limits what this mesh accepts of one. Package transfer has the
// tokens and the stream by which it gets there.
//
// # The document
//
// The JSON text is written in the canonical form of RFC 8785, so that provenance.checksum
// is computed by hashing the text, without canonicalising it again. A document of another
// platform is canonicalised first. The specification's messages have no place for some
// data, above all for the calls that an assistant's turn asks for; the notes of x-aeemesh
// hold these, by the message's index. Raw JSON in x-aeemesh is stored as strings: the
// canonical form would change its numbers, and a task must keep the bytes that were
// signed. Other platforms' members (x-…) are preserved.
//
// No output of a model or a tool can keep a checkpoint from being written: invalid UTF-8
// becomes U+FFFD, and in the specification's own raw values (the arguments of a pending
// call, variables, outputs) a number that a double cannot represent becomes a string of
// its digits.
//
// Encode caches in the checkpoint the text of those parts that grow large and rarely
// change. From one step of a run to the next only the new messages are encoded, so that
// the checksum is most of the cost.
//
// # Sealed documents
//
// A sealed document is a valid Agent State document too. Not encrypted are state_id,
// agent_id, run_id, status, iteration and checkpoint_at, and of x-aeemesh entity,
// task_id, epoch, owner, the kind of step, and the sequence of the work message: workers
// and operators find a run by these. Everything else is in one text that is sealed with
// XChaCha20-Poly1305. The seal authenticates the unencrypted part as well, so it cannot
// be changed either. The checksum of a sealed document covers the document as it is
// stored. A seal protects stored documents from users who can read the store, and from
// users who can write to it without the key: a codec with a key refuses unsealed
// documents, and [Codec.Read] refuses a record that was sealed for another run or to
// replace another revision than the store says ([Codec.Over], [Record]). A seal does not
// distinguish the writers that have the key, and the first record of a run can be
// replayed in place of a later one.
//
// # Versions
//
// x-aeemesh has a format number. A release reads its own format and every older one, and
// refuses newer ones with [ErrNewer], so that a worker that is not upgraded yet leaves
// the run to one that is. New members that may be ignored are preserved in [Mesh].More; a
// new member inside nested objects, or one that must not be ignored, needs a new format.
// testdata/checkpoints has documents of every format, and a test resumes from each.
//
// # Names that last
//
// [RunID] and [AgentID] are hard to change: every worker computes them itself, and runs
// are stored under them. Two releases that computed different ids would not find each
// other's runs, and would run a task twice. The same holds for [EffectKey], by which
// tools recognise a repeated call, for [AdoptedTask], and for [KeyID]. The ids are UUIDs
// of version 5 because every language has a library that computes them. Their hash,
// SHA-1, is broken only against an attacker who chooses both names, and the run's record,
// which contains the task, distinguishes two tasks with the same run id. Test vectors pin
// all these functions.
//
// # Concurrency
//
// A Checkpoint belongs to one goroutine at a time; clones are independent. A
// Codec and a Keyring may be shared. Stores are safe for concurrent use.
//
// # Limits
//
// Documents are at most 16 MiB, or the codec's MaxBytes, and nest at most 128 deep.
// Integers beyond 2^53 are refused where the schema requires an integer. The checksum
// protects against damage, not against forgery: without sealing, a user who may write to
// the store can write any checkpoint.
package state

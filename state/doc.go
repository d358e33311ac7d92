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
// A [Checkpoint] is a document. A [Codec] writes and reads it, and a [Keyring]
// in the codec seals it at rest. A [Store] keeps the bytes by run and revision;
// [Mem] is the one in memory.
//
// # Moving a run
//
// A run moves to another platform as the specification says (AAIF,
// "Cross-Platform Migration Protocol"): the source captures a document, signs a
// [Grant] for exactly that one, the migration token, and sends both;
// [WriteHandoff] and [ReadHandoff] are the streaming form. The target checks
// everything with [VerifyToken], [Grant.Covers] and the checksum before it acts,
// and answers with a signed [Verdict]. Nothing here knows a network;
// docs/migration.md has the formats.
//
// # Names that last
//
// [RunID] and [AgentID] are hard to change: they are computed by every worker
// for itself, and are the keys under which runs are stored. Two releases that
// disagree about them would not recognise each other's runs, and would do the
// same task twice. Vectors in the tests pin them.
package state

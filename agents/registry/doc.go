// Package registry is the mesh's register of agent definitions. It finds an
// agent by agent_id, entity, alias or skill.
//
//	rec, err := registry.New(doc, registry.Options{By: "human.ada"})
//	revision, err := reg.Put(ctx, rec, 0) // 0: no record may exist under its key
//	entry, err := reg.Get(ctx, rec.Key())
//	data := entry.Record.Document // byte for byte what was registered
//
// A [Record] is one definition: the original document, and the names by which
// it is found (record.go, codec.go). A [Registry] keeps records by key
// (registry.go); package jetstream has the mesh's, [Mem] is its twin in memory,
// and package registrytest the suite that both pass. An [Index] finds records
// by any of their names (index.go).
//
// # The key
//
// A record's key is its document's agent_id, or the entity if the document has
// none ([KeyOf]). The agent_id is assigned once, does not change with name,
// version or platform, and should be used as the key of an agent (AAIF, Agent
// Identity). So an agent that is renamed, or served under another entity, keeps
// its record and its history, and a reference by agent_id takes one read. Case
// does not matter in a UUID, so the key has small letters.
//
// The entity must be unique as well, because two agents on one subject would
// take each other's tasks. No store can enforce both by compare-and-swap. A
// caller that registers an agent must check [Index.Taken] first; if two agents
// were registered at the same time, all readers use the one that was written
// first.
//
// An agent_id that is not a UUID may be any text. If it looks like an entity,
// it must be the agent's own entity, so that no document can take another
// agent's key.
//
// # Trust
//
// A client that may write the store can register any agent: NATS permissions
// protect it, not this package. Registered_by is the writer's own claim. A
// record is decoded under limits, and its document is compared with its
// checksum. The document may come from a stranger and is parsed accordingly.
package registry

// Package registry is the mesh's register of agents' definitions: who is meant
// by an agent_id, an entity, an alias or a skill.
//
//	rec, err := registry.New(doc, registry.Options{By: "human.ada"})
//	revision, err := reg.Put(ctx, rec, 0) // 0: nobody may be registered under its key yet
//	entry, err := reg.Get(ctx, rec.Key())
//	data := entry.Record.Document // byte for byte what was registered
//
// A [Record] is one definition: the document as it was, and what it is looked up
// by (record.go, codec.go). A [Registry] keeps records by key (registry.go);
// package jetstream has the mesh's, [Mem] is its twin in memory, and package
// registrytest the suite that both pass. An [Index] finds records by any of
// their names (index.go).
//
// # The key
//
// A record's key is its document's agent_id, and the entity where the document
// has none ([KeyOf]). The agent_id is assigned once and survives renaming,
// versions and platforms, and consumers are to use it as the key of an agent
// (AAIF, Agent Identity): so an agent that is renamed, or served under another
// entity, keeps its record and its history, and the references of other
// documents, which are agent_ids, are one read each. A UUID is the same in
// capitals, so its key is in small letters.
//
// The entity is what must be unique besides, for two agents on one subject would
// take one another's tasks. No store can hold both by compare-and-swap; whoever
// registers asks [Index.Taken] first, and where two were registered at once,
// every reader takes the same of them: the one that was written first.
//
// An agent_id that is no UUID may be any text. One that looks like an entity
// must be the agent's own, so that no document takes a key that is another
// agent's entity.
//
// # What is trusted
//
// Whoever may write the store says who any agent is: NATS permissions decide
// that, not this package. Registered_by is what the writer says of itself. A
// record is decoded with its bounds, and its document is held against its
// checksum; the document is a stranger's, and is parsed like one.
package registry

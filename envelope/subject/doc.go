// Package subject maps entities, priorities and ids to NATS subjects and back.
//
// No other package builds subjects:
//
//	m, err := subject.New("acme") // or "" for no prefix
//	live, err := m.Live("agent.reviewer")                // acme.agent.reviewer
//	work, err := m.Work("high", "agent.reviewer")        // acme.aee.work.high.agent.reviewer
//	reply, err := m.Reply("agent.reviewer", "01JFB2R1…") // acme.aee.reply.agent.reviewer.01JFB2R1…
//	a, err := m.Parse(work)                              // {Work, agent.reviewer, high, ""}
//
// # The subjects
//
//	live task              <entity>
//	text in, text out      aee.ask.<entity>
//	broadcast              bus.<topic>
//	a person's inbox       human.<name>
//	durable task           aee.work.<priority>.<entity>
//	delayed task           aee.schedule.<entity>.<id>
//	delayed task, now due  aee.due.<priority>.<entity>
//	its replies            aee.reply.<entity>.<task id>
//	its dead letter        aee.dead.<entity>.<task id>
//	control                aee.ctl.<entity>
//	a counter              aee.count.<kind>.<id>…
//	envelope journal       aee.journal.<entity>.<id>
//	audit                  aee.audit.<entity>
//
// If there is a prefix, every subject begins with it.
//
// # Entities
//
// An entity id is <type>.<name> (AEE, "Entity Identifiers"): "agent.reviewer", "human.adam",
// "bus.mesh.task". The name may have several tokens. The id is used as a subject unchanged, so an
// id that is not a legal subject is refused, never repaired. Refused are empty tokens, wildcards,
// spaces, unprintable characters, bytes that are not UTF-8, more than [MaxEntity] bytes, and first
// tokens that are reserved for NATS or the mesh ("aee", "$…", "_…"). The [Error] names the wrong
// part.
//
// # Other ids
//
// In AEE, message ids, key ids and similar ids may be any strings. [Escape] converts a string to
// one token of the characters A–Z a–z 0–9 - _ and =, which is legal in a subject, in the key of a
// NATS KV bucket and in a consumer's name. A ULID or a UUID is unchanged; every other byte becomes
// = and two upper-case hex digits. Different ids have different tokens, and [Unescape] returns the
// id.
//
// # Guarantees and limits
//
// The package has no I/O and no state, and imports only the standard library. A [Map] is a value,
// safe for concurrent use. Building a subject makes at most one allocation, that of its result, and
// a live subject without a prefix none. The longest subject is well below the 4,096 bytes of a NATS
// protocol line.
//
// A subject does not tell whether there is a subscriber or whether a stream captures it. Without a
// prefix it does not even tell whether it belongs to the mesh: every subject of two or more tokens
// may be the live subject of an entity of an unknown type.
package subject

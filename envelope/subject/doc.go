// Package subject maps entities, priorities and ids to NATS subjects and back.
//
// It is the only package that knows how the mesh uses subjects; no other builds one by
// hand:
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
//	one that waits         aee.schedule.<entity>.<id>
//	one whose time came    aee.due.<priority>.<entity>
//	its replies            aee.reply.<entity>.<task id>
//	its dead letter        aee.dead.<entity>.<task id>
//	control                aee.ctl.<entity>
//	a counter              aee.count.<kind>.<id>…
//	envelope journal       aee.journal.<entity>.<id>
//	audit                  aee.audit.<entity>
//
// A prefix, if there is one, stands in front of everything.
//
// # Entities
//
// An entity id is <type>.<name> (AEE, "Entity Identifiers"): "agent.reviewer",
// "human.adam", "bus.mesh.task". The name may have several tokens. The id is
// used as a subject as it is, so an id that is no legal subject is refused,
// never repaired: empty tokens, wildcards, spaces, anything unprintable, bytes
// that are not UTF-8, more than [MaxEntity] bytes, and first tokens that NATS
// or the mesh keep for themselves ("aee", "$…", "_…"). The [Error] names the
// part at fault.
//
// # Other ids
//
// Message ids, key ids and the like are free strings in AEE. [Escape] writes
// any string as one token of the characters A–Z a–z 0–9 - _ and =, legal in a
// subject, in the key of a NATS KV bucket and in a consumer's name. A ULID or
// a UUID passes unchanged; every other byte becomes = and two upper-case hex
// digits. Different ids have different tokens, and [Unescape] gives the id
// back.
//
// # Guarantees and limits
//
// The package is pure: no I/O, no state, no import outside the standard
// library. A [Map] is a value, safe for concurrent use. Building a subject
// costs at most the one allocation of its result, and a live subject without a
// prefix costs none. The longest subject that can be built is well below the
// 4,096 bytes of a NATS protocol line.
//
// What a subject cannot say: whether anyone listens, whether a stream captures
// it, and, without a prefix, whether it is one of ours at all: any subject of
// two tokens and more may be a live task of an entity of a foreign type.
package subject

// Package envelope implements the message format of Agent Envelope Exchange (AEE): 14
// fields, one of which is a payload whose form the intent defines.
//
// [Parse] and [ParseCBOR] decode and validate a peer's message, with limits, and report
// everything that is wrong with it in one [InvalidError]. [New], [Envelope.Reply] and
// [Envelope.ReplyError] make envelopes; [Envelope.AppendJSON] and [Envelope.AppendCBOR]
// encode them. [ParseLog] reads MVE-5 log records, which are not envelopes.
//
//	task := envelope.New(envelope.TypeTask, "human.ada", "agent.reviewer", "code.review", payload)
//	body, err := task.AppendJSON(nil)
//
// # What is preserved
//
// The object-valued fields (trace, requires, payload, sig) and all unknown members are
// kept as the bytes that were received. Code ignores members that it does not know, and
// an envelope that is decoded and encoded again still has them, with every digit of their
// numbers. JSON to CBOR and back preserves every value: integers stay integers, floats
// stay floats, and a number that CBOR cannot represent exactly is refused and not
// rounded. CBOR to JSON and back gives the same bytes if the original was deterministic.
//
// # What is refused
//
// In addition to envelopes that violate the draft's validity rules: input over [Limits]
// (bytes, levels, values), duplicate names at any depth, invalid UTF-8, lone surrogates,
// text after the envelope; in CBOR also names that are not text, tags, byte strings,
// undefined, NaN, infinities and indefinite lengths.
//
// # Canonical form
//
// [Canonical] and [AppendCanonical] produce RFC 8785 (JCS) bytes, which package sign
// signs and [Envelope.Hash] hashes. They refuse numbers that an IEEE 754 double cannot
// represent ([ErrNumber]), because two different documents would have the same canonical
// form.
//
// # Errors
//
// [Error] is the payload of an error envelope and a Go error. The mesh's own errors use
// only the closed set of codes [Codes]. An Error's cause never leaves the process.
//
// # Concurrency
//
// Functions may be called from many goroutines. Many goroutines may read an Envelope, or
// one may change it. A parsed envelope shares the memory of its input: the caller must
// not change the input afterwards.
package envelope

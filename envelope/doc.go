// Package envelope is the message format of Agent Envelope Exchange (AEE):
// 14 fields around a payload whose shape belongs to the intent.
//
// [Parse] and [ParseCBOR] decode and validate what a peer sent, under limits,
// and tell everything that is wrong with it in one [InvalidError].
// [New], [Envelope.Reply] and [Envelope.ReplyError] make envelopes;
// [Envelope.AppendJSON] and [Envelope.AppendCBOR] encode them. [ParseLog]
// reads MVE-5 log records, which are no envelopes.
//
//	task := envelope.New(envelope.TypeTask, "human.ada", "agent.reviewer", "code.review", payload)
//	body, err := task.AppendJSON(nil)
//
// # What survives
//
// The object-valued fields (trace, requires, payload, sig) and all unknown
// members are kept as the bytes that came; logic ignores what it does not
// know, and an envelope that is decoded and encoded again still has it, down
// to the digits of its numbers. JSON to CBOR and back keeps every value:
// integers stay integers, floats stay floats, and a number that CBOR cannot
// hold exactly is refused rather than rounded. CBOR to JSON and back gives the
// same bytes where the first ones were deterministic.
//
// # What is refused
//
// Beyond the draft's validity rules: input over [Limits] (bytes, levels, values),
// duplicate names at any depth, invalid UTF-8, lone surrogates, text after the envelope; in CBOR
// also names that are no text, tags, byte strings, undefined, NaN, infinities
// and indefinite lengths.
//
// # Canonical form
//
// [Canonical] and [AppendCanonical] give RFC 8785 (JCS) bytes, which package
// sign signs and [Envelope.Hash] hashes. Numbers that an IEEE 754 double
// changes are refused there ([ErrNumber]), because two different documents
// would share one canonical form.
//
// # Errors
//
// [Error] is the payload of an error envelope and a Go error. Its [Code] is one
// of the closed set [Codes] where the mesh itself speaks. What stands behind
// it, its cause, never leaves the process.
//
// # Concurrency
//
// Functions may be called from many goroutines. An Envelope may be read by
// many and changed by one. Parsed envelopes keep slices of the input: whoever
// parses must not change the input afterwards.
package envelope

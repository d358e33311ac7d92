// Package sign signs AEE envelopes and verifies their senders: by Ed25519 or HMAC-SHA-256
// over canonical bytes, with keys that are bound to the from that they may sign for, and
// with protection against replays (AEE, Signatures, and Security Considerations).
// docs/signing.md specifies it for other languages.
//
//	signer, key, err := sign.NewKey("reviewer-1", sign.Ed25519, "agent.reviewer")
//	err = signer.Sign(task)
//
//	var ring sign.Ring
//	err = ring.Put(sign.Local, key)
//	who, err := sign.Verifier{Ring: &ring}.Verify(task, time.Now())
//
// # What a signature proves
//
// It proves that the owner of key kid sent exactly these v, id, ts, type, from, to,
// intent, corr, reply_to, requires and payload, and, because a key is bound to patterns
// of from, that from is true. It does not cover priority and trace, which relays may
// change, nor unknown members.
//
// A signature is verified whenever it is present, unless the [Mode] is Off. An envelope whose
// verification fails is refused with a code for the reason (see [Ring.Verify]). The key determines
// the algorithm; if the envelope names another one, it is refused.
//
// # Ed25519
//
// Signatures are those of RFC 8032 and of crypto/ed25519, bit for bit. Of the
// verification rules in use this package applies the strictest, in every code path:
// public keys are canonical encodings of points of the prime-order group, S is below the
// group's order, and the encoding of [S]B-[k]A equals R byte for byte. A signature that
// is valid here is valid everywhere else; the reverse does not hold for signatures that
// no honest signer makes.
//
// There is no batch verification: a key that is used often gets a table of its multiples.
// Then one verification costs as much as in a batch of 16 or more, without waiting for
// other signatures.
//
// # Replays
//
// A valid signature stays valid when an attacker sends the envelope again. [Replay]
// refuses ids that it has seen, and [CheckTime] refuses times that are too far away.
//
// # Concurrency
//
// Many goroutines may use a Ring, Signer, Replay or Verifier at once. Verification takes
// no lock, and changes to a ring take effect at once.
package sign

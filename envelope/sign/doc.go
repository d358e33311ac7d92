// Package sign signs AEE envelopes and verifies who sent them: Ed25519 or
// HMAC-SHA-256 over canonical bytes, keys that say for which from they may
// speak, and refusal of replays (AEE, Signatures, and Security
// Considerations). docs/signing.md specifies it for other languages.
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
// That the owner of key kid sent exactly these v, id, ts, type, from, to,
// intent, corr, reply_to, requires and payload, and, since a key is bound to
// patterns of from, that from is true. Priority and trace are not covered:
// relays may change them. Unknown members are not covered either.
//
// A signature that is there is verified, unless the [Mode] is Off; what fails
// is refused with a code that says why (see [Ring.Verify]). The algorithm is
// the key's. That the envelope names it too changes nothing: a difference is
// refused.
//
// # Ed25519
//
// Signatures are those of RFC 8032 and of crypto/ed25519, bit for bit. Of the
// verification rules in use the strictest holds, the same in every code path:
// public keys are canonical encodings of points of the prime-order group, S is
// below the group's order, and the encoding of [S]B-[k]A equals R byte for
// byte. What passes here passes everywhere else; the reverse does not hold for
// signatures that no honest signer makes.
//
// There is no batch verification: a key that is in use gets a table of its
// multiples, and then one signature costs what it costs in a batch of 16 or
// more, without waiting for the others.
//
// # Replays
//
// A good signature stays good when somebody sends the envelope again. [Replay]
// refuses ids that it has seen, and times that are too far away.
//
// # Concurrency
//
// Ring, Signer, Replay and Verifier may be used by many goroutines. Verifying
// takes no lock, and changes to a ring take effect at once.
package sign

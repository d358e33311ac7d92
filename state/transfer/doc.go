// Package transfer has what two platforms exchange when a run moves from one, the source,
// to the other, the target (AAIF, Cross-Platform Migration Protocol): signed tokens, and
// the Agent State document as a stream or as a file. AAIF calls it a handoff; the names on
// the wire and the texts of errors keep that word.
//
// The source signs a [Grant] for one state of one run. It sends the document with
// [Write], or adds the token to a file with [PutToken]:
//
//	token, err := transfer.Grant{Issuer: "agent.reviewer", …}.Sign(signer)
//	err = transfer.Write(ctx, w, token, doc)
//
// The target reads it with [Read], or takes the token from a file with [TakeToken], and
// verifies the token with [VerifyToken]. It answers with a signed [Verdict]: it has
// accepted the run or refused it, and later, it has ended it. After the token has expired,
// the source asks with a signed [Request].
//
// # Guarantees and limits
//
// [Read] returns a document only if it is complete, its checksum matches, it is a valid
// Agent State, and the token was issued for exactly this document. The package keeps no
// records: whether a token was used before, and which of two verdicts counts, is for the
// caller to decide. Tokens are JWTs with Ed25519 signatures (EdDSA), of at most 8 KiB, and
// the typ in their header tells the three kinds apart. [Limits] bound what [Read] keeps in
// memory. The functions have no shared state and may run at once.
package transfer

package sign

import (
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
)

// CryptoSigner returns the key for libraries that sign other data than envelopes, such as
// JSON Web Tokens: a [crypto.Signer] with an [ed25519.PublicKey], which signs messages
// and not their hashes. It does not reveal the secret. It fails for an HS256 key, and for
// one that is not valid yet (see [Signer.Waiting]).
//
// A signature over other bytes can never be used as an envelope's, as long as those bytes
// do not begin with '{' (see [AppendSigned]); a JWT's do not.
func (s *Signer) CryptoSigner() (crypto.Signer, error) {
	s = s.current()
	if s.waits {
		return nil, fmt.Errorf("key %q is not valid yet", s.kid)
	}
	if s.ed == nil {
		return nil, fmt.Errorf("key %q is %s: only %s signs for others to verify", s.kid, s.alg, Ed25519)
	}
	return cryptoSigner{s.ed}, nil
}

type cryptoSigner struct{ key ed25519.PrivateKey }

func (c cryptoSigner) Public() crypto.PublicKey {
	return c.key.Public()
}

// Sign ignores the source of random numbers, because Ed25519 needs none.
func (c cryptoSigner) Sign(_ io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	if opts != nil && opts.HashFunc() != crypto.Hash(0) {
		return nil, fmt.Errorf("ed25519 signs messages, not their %v hashes", opts.HashFunc())
	}
	if len(message) > 0 && message[0] == '{' {
		return nil, errors.New("these bytes could be an envelope's: use Signer.Sign")
	}
	return ed25519.Sign(c.key, message), nil
}

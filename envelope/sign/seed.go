package sign

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/nats-io/nkeys"
)

// appendSeed writes the content of a key file: the secret as an nkeys seed, of a user
// (SU…) for Ed25519 and of a curve key (SX…) for HS256, and a line break.
func (s *Signer) appendSeed(dst []byte) ([]byte, error) {
	prefix := nkeys.PrefixByteUser
	if s.alg == HS256 {
		prefix = nkeys.PrefixByteCurve
	}
	seed, err := nkeys.EncodeSeed(prefix, s.secret)
	if err != nil {
		return dst, fmt.Errorf("key %q: %w", s.kid, err)
	}
	return append(append(dst, seed...), '\n'), nil
}

// parseSeed parses a key file. The kind of seed determines the algorithm. Its errors
// never contain the text.
func parseSeed(kid string, text []byte) (*Signer, error) {
	prefix, secret, err := nkeys.DecodeSeed(bytes.TrimSpace(text))
	if err != nil {
		return nil, errors.New("it holds no nkeys seed")
	}
	switch prefix {
	case nkeys.PrefixByteUser:
		return NewSigner(kid, Ed25519, secret)
	case nkeys.PrefixByteCurve:
		return NewSigner(kid, HS256, secret)
	}
	return nil, fmt.Errorf("it holds the seed of a NATS %s; a user seed (SU…) signs with %s, a curve seed (SX…) with %s", prefix, Ed25519, HS256)
}

package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/aeemesh/aeemesh/envelope"
)

// Signer signs envelopes with one key. It is safe for concurrent use.
type Signer struct {
	kid    string
	alg    Alg
	secret []byte // the Ed25519 seed or the HS256 secret, for the key file
	ed     ed25519.PrivateKey
	mac    *macKey

	waits bool                   // see [Signer.Waiting]
	next  atomic.Pointer[Signer] // see [Signer.Rotate]; it has no next itself
}

// NewSigner makes a signer from 32 secret bytes: the seed of RFC 8032 for
// Ed25519, the shared secret for HS256.
func NewSigner(kid string, alg Alg, secret []byte) (*Signer, error) {
	if err := CheckKID(kid); err != nil {
		return nil, err
	}
	s := &Signer{kid: kid, alg: alg, secret: append([]byte(nil), secret...)}
	switch alg {
	case Ed25519:
		var err error
		if s.ed, err = newPrivateKey(secret); err != nil {
			return nil, fmt.Errorf("key %q: %w", kid, err)
		}
	case HS256:
		if len(secret) != secretSize {
			return nil, fmt.Errorf("key %q: an HS256 secret has %d bytes, not %d", kid, secretSize, len(secret))
		}
		s.mac = newMACKey(secret)
	default:
		return nil, fmt.Errorf("key %q: alg must be %s or %s, not %q", kid, Ed25519, HS256, string(alg))
	}
	return s, nil
}

// NewKey makes a new key from the operating system's random numbers. It returns the
// signer, which stays with its owner, and the key for verifiers, which may speak for the
// entities that match the patterns from.
func NewKey(kid string, alg Alg, from ...string) (*Signer, Key, error) {
	secret := make([]byte, secretSize)
	rand.Read(secret) // never fails
	s, err := NewSigner(kid, alg, secret)
	if err != nil {
		return nil, Key{}, err
	}
	k := s.Key(from...)
	if err := k.Check(); err != nil {
		return nil, Key{}, err
	}
	return s, k, nil
}

// Clone returns another signer with the same key, which can be rotated on its own.
func (s *Signer) Clone() *Signer {
	s = s.current()
	return &Signer{kid: s.kid, alg: s.alg, secret: s.secret, ed: s.ed, mac: s.mac, waits: s.waits}
}

// Waiting returns a signer whose key is not valid yet: it leaves envelopes unsigned until it is
// rotated.
func (s *Signer) Waiting() *Signer {
	s = s.Clone()
	s.waits = true
	return s
}

// Waits reports whether the signer leaves envelopes unsigned, see [Signer.Waiting].
func (s *Signer) Waits() bool { return s.current().waits }

// Rotate makes s sign with the key of next from now on, for all users of s.
func (s *Signer) Rotate(next *Signer) { s.next.Store(next.Clone()) }

// current returns the signer with the key that s signs with.
func (s *Signer) current() *Signer {
	if next := s.next.Load(); next != nil {
		return next
	}
	return s
}

// KID returns the key id in the signer's signatures.
func (s *Signer) KID() string { return s.current().kid }

// Alg returns the signer's algorithm.
func (s *Signer) Alg() Alg { return s.current().alg }

// Key returns the key for verifiers. For HS256 it contains the secret.
func (s *Signer) Key(from ...string) Key {
	s = s.current()
	k := Key{KID: s.kid, Alg: s.alg, From: from}
	if s.ed != nil {
		k.Public = s.ed.Public().(ed25519.PublicKey)
	} else {
		k.Secret = append([]byte(nil), s.secret...)
	}
	return k
}

// String returns the key id and the algorithm, but no secret.
func (s *Signer) String() string {
	s = s.current()
	return fmt.Sprintf("%s (%s)", s.kid, s.alg)
}

// GoString is [Signer.String].
func (s *Signer) GoString() string { return "sign.Signer{" + s.String() + "}" }

// Sign sets e.Sig. Any later change to a signed field makes the signature invalid;
// priority and trace may change (see [AppendSigned]). If a number cannot be signed, it
// fails with [envelope.ErrNumber] and does not change e.
func (s *Signer) Sign(e *envelope.Envelope) error {
	if s.Waits() {
		e.Sig = nil
		return nil
	}
	if !validText(e) {
		return fmt.Errorf("sign envelope with key %q: a field is not valid UTF-8", s.KID())
	}
	p := buffers.Get().(*[]byte)
	sig, err := s.appendSig((*p)[:0], e)
	if err == nil {
		e.Sig = bytes.Clone(sig)
	}
	putBuffer(p, sig)
	return err
}

// AppendJSON appends the JSON of e as [Signer.Sign] would sign it, without changing e: a
// caller that only sends the envelope saves the memory for its field sig, and a second
// validation. On error dst is returned unchanged.
func (s *Signer) AppendJSON(dst []byte, e *envelope.Envelope) ([]byte, error) {
	if s.Waits() {
		return e.AppendJSONSealed(dst, func(dst []byte) ([]byte, error) { return append(dst, "null"...), nil })
	}
	return e.AppendJSONSealed(dst, func(dst []byte) ([]byte, error) { return s.appendSig(dst, e) })
}

// appendSig appends the value of field sig for e, whose texts must be valid UTF-8. It uses dst's
// memory for the canonical bytes, too.
func (s *Signer) appendSig(dst []byte, e *envelope.Envelope) ([]byte, error) {
	s = s.current()
	message, err := AppendSigned(dst, e)
	if err == nil {
		dst, err = s.appendSigOver(message[:len(dst)], message[len(dst):])
	}
	if err != nil {
		return dst, fmt.Errorf("sign envelope with key %q: %w", s.kid, err)
	}
	return dst, nil
}

// appendSigOver appends the value of field sig for the canonical bytes.
func (s *Signer) appendSigOver(dst, message []byte) ([]byte, error) {
	switch s.alg {
	case Ed25519:
		return appendSig(dst, s.alg, s.kid, ed25519.Sign(s.ed, message)), nil
	case HS256:
		var mac [sha256.Size]byte
		s.mac.sign(&mac, message)
		return appendSig(dst, s.alg, s.kid, mac[:]), nil
	}
	return dst, errors.New("the signer has no key")
}

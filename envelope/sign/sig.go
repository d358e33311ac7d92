package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/aeemesh/aeemesh/envelope"
	jsonv2 "github.com/go-json-experiment/json"
)

// encoding is the encoding of sig.value: only the standard alphabet with padding, so that
// a signature has a single spelling.
var encoding = base64.StdEncoding.Strict()

// maxSig is the largest field sig that is parsed: 64 characters of kid, 88 of value, and
// room for members of others.
const maxSig = 4096

// signature is the parsed field sig.
type signature struct {
	alg  Alg
	kid  []byte
	size int
	buf  [66]byte // room for the decoded 88 characters of base64
}

// value returns the decoded field sig.value. (A slice as a field would put every
// signature on the heap.)
func (s *signature) value() []byte { return s.buf[:s.size] }

// Describe returns alg and kid of an envelope's signature, for logs and tools; ok is
// false if there is none, or none that this mesh could verify. It does not verify the
// signature.
func Describe(e *envelope.Envelope) (alg Alg, kid string, ok bool) {
	if e.Sig == nil {
		return "", "", false
	}
	var s signature
	if err := s.parse(e.Sig); err != nil {
		return "", "", false
	}
	return s.alg, string(s.kid), true
}

// parse parses field sig. It ignores members other than alg, kid and value.
func (s *signature) parse(raw json.RawMessage) *envelope.Error {
	if len(raw) > maxSig {
		return envelope.Errorf(envelope.CodeSigInvalid, "sig is larger than %d bytes", maxSig)
	}
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '"' {
		return envelope.Errorf(envelope.CodeSigUncheckable, "sig is a string, which cannot be verified here; it must be an object with alg, kid and value")
	}
	alg, kid, value, ok := ownLayout(raw)
	if !ok {
		alg, kid, value, ok = anyLayout(raw)
	}
	if !ok {
		return envelope.Errorf(envelope.CodeSigInvalid, "sig must be an object with the strings alg, kid and value")
	}
	size := 0
	switch string(alg) {
	case string(Ed25519):
		s.alg, size = Ed25519, ed25519.SignatureSize
	case string(HS256):
		s.alg, size = HS256, sha256.Size
	default:
		return envelope.Errorf(envelope.CodeSigUncheckable, "sig.alg must be %s or %s here", Ed25519, HS256)
	}
	if !legalKID(kid) {
		return envelope.Errorf(envelope.CodeSigInvalid, "sig.kid is no legal key id")
	}
	s.kid = kid
	n := 0
	if len(value) == encoding.EncodedLen(size) {
		n, _ = encoding.Decode(s.buf[:], value)
	}
	if n != size {
		return envelope.Errorf(envelope.CodeSigInvalid, "sig.value must be %d bytes in standard base64 with padding, as %s has", size, s.alg)
	}
	s.size = size
	return nil
}

// ownLayout parses what appendSig writes, without allocating.
func ownLayout(raw []byte) (alg, kid, value []byte, ok bool) {
	rest := raw
	text := func(before string) []byte {
		after, found := bytes.CutPrefix(rest, []byte(before))
		if !found {
			rest = nil
			return nil
		}
		t, tail, _ := bytes.Cut(after, []byte{'"'})
		rest = tail
		return t
	}
	alg, kid, value = text(`{"alg":"`), text(`,"kid":"`), text(`,"value":"`)
	return alg, kid, value, string(rest) == "}" && bytes.IndexByte(raw, '\\') < 0
}

// anyLayout parses the object in any layout. Names are case-sensitive, and duplicates are
// refused.
func anyLayout(raw []byte) (alg, kid, value []byte, ok bool) {
	var o struct {
		Alg   *string `json:"alg"`
		KID   *string `json:"kid"`
		Value *string `json:"value"`
	}
	if err := jsonv2.Unmarshal(raw, &o); err != nil || o.Alg == nil || o.KID == nil || o.Value == nil {
		return nil, nil, nil, false
	}
	return []byte(*o.Alg), []byte(*o.KID), []byte(*o.Value), true
}

// appendSig writes field sig. Its values need no escapes.
func appendSig(dst []byte, alg Alg, kid string, value []byte) []byte {
	dst = slices.Grow(dst, len(`{"alg":"","kid":"","value":""}`)+len(alg)+len(kid)+encoding.EncodedLen(len(value)))
	dst = append(dst, `{"alg":"`...)
	dst = append(dst, alg...)
	dst = append(dst, `","kid":"`...)
	dst = append(dst, kid...)
	dst = append(dst, `","value":"`...)
	dst = encoding.AppendEncode(dst, value)
	return append(dst, '"', '}')
}

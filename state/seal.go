package state

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// KeySize is the length of a sealing key in bytes.
const KeySize = chacha20poly1305.KeySize

// sealAlgorithm is the one algorithm that there is. Its nonces are long enough
// to be random.
const sealAlgorithm = "XChaCha20-Poly1305"

// A Key seals checkpoints at rest.
type Key struct {
	// ID names the key in what it seals, and is no secret. Default: [KeyID] of
	// the secret, so that all workers with the same key agree.
	ID string
	// Secret is 32 random bytes.
	Secret []byte
}

// KeyID is the default id of a key: the first 8 bytes of the SHA-256 of
// "aeemesh state key " and the secret, in hex.
func KeyID(secret []byte) string {
	h := sha256.New()
	h.Write([]byte("aeemesh state key "))
	h.Write(secret)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// A Keyring seals with its newest key, and opens what any of its keys has
// sealed. To change keys: give all workers the new key behind the old one, then
// in front of it. Every run that is written from then on is sealed anew; once
// the runs that only the old key opens have expired, it may go.
//
// A Keyring does not change, and shows no secret when it is printed.
type Keyring struct {
	newest string
	keys   map[string]cipher.AEAD
	ids    []string
}

// NewKeyring makes a keyring of keys, the newest first.
func NewKeyring(newest Key, older ...Key) (*Keyring, error) {
	k := &Keyring{keys: make(map[string]cipher.AEAD)}
	for i, key := range append([]Key{newest}, older...) {
		id := key.ID
		if id == "" {
			id = KeyID(key.Secret)
		}
		aead, err := chacha20poly1305.NewX(key.Secret)
		switch {
		case err != nil:
			return nil, fmt.Errorf("state key %d: it has %d bytes, must have %d", i+1, len(key.Secret), KeySize)
		case k.keys[id] != nil:
			return nil, fmt.Errorf("state key %d: there are two keys %q", i+1, clip.Text(id, 80))
		}
		k.keys[id], k.ids = aead, append(k.ids, id)
	}
	k.newest = k.ids[0]
	return k, nil
}

// IDs are the ids of the keys, newest first.
func (k *Keyring) IDs() []string { return append([]string(nil), k.ids...) }

// String names the keys' ids.
func (k *Keyring) String() string { return "state keys " + strings.Join(k.ids, ", ") }

// GoString is String, so that %#v shows no secret either.
func (k *Keyring) GoString() string { return k.String() }

// LogValue is String, for slog.
func (k *Keyring) LogValue() slog.Value { return slog.StringValue(k.String()) }

// sealed is the member of our extension that holds the sealed document: the
// canonical JSON of the whole clear one, the header included.
type sealed struct {
	Algorithm string `json:"alg"`
	Key       string `json:"key"`
	Nonce     string `json:"nonce"` // base64
	// Over is the revision of the run that it was written over; nil: nobody said.
	Over *uint64 `json:"over"`
	Text string  `json:"text"` // base64
}

// seal writes the document that stands for a clear one at rest: a valid Agent
// State document with the clear header, the sealed text, and a checksum of its
// own.
//
// What is authenticated besides the sealed text is that document without
// provenance.checksum and without the member text: nobody without the key
// moves a sealed text under another header, or says that it was written over another
// revision.
func (k *Keyring) seal(h Header, text []byte, codec Codec) ([]byte, error) {
	if h.Entity == "" {
		return nil, errors.New("only the mesh's own checkpoints are sealed: Mesh.Entity is empty")
	}
	aead := k.keys[k.newest]
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(text)+aead.Overhead())
	rand.Read(nonce)
	var at int // where the sealed text belongs
	size := base64.StdEncoding.EncodedLen(len(text) + aead.Overhead())
	doc, checksum, err := h.append(make([]byte, 0, 1024+size), nil, func(w *writer) {
		w.name("sealed")
		w.begin()
		w.text("alg", sealAlgorithm)
		w.text("key", k.newest)
		w.text("nonce", base64.StdEncoding.EncodeToString(nonce))
		if codec.bound {
			w.uint("over", codec.over)
		}
		at = len(w.b)
		w.end()
	})
	if err != nil {
		return nil, err
	}
	aad := append(append([]byte(nil), doc[:checksum.from]...), doc[checksum.to:]...)
	cipherText := aead.Seal(nonce[len(nonce):], nonce, text, aad)

	rest := append([]byte(nil), doc[at:]...)
	doc = append(doc[:at], `,"text":"`...)
	doc = base64.StdEncoding.AppendEncode(doc, cipherText)
	doc = append(append(doc, '"'), rest...)
	checksum.sum(doc)
	return doc, nil
}

// open returns the clear document's text.
func (k *Keyring) open(p *parsed) ([]byte, error) {
	s := p.outer.Sealed
	if s.Algorithm != sealAlgorithm {
		return nil, fmt.Errorf("%w with %q, which this release does not know", ErrSealed, clip.Text(s.Algorithm, 80))
	}
	var aead cipher.AEAD
	if k != nil {
		aead = k.keys[s.Key]
	}
	if aead == nil {
		return nil, fmt.Errorf("%w with key %q, which is not at hand", ErrSealed, clip.Text(s.Key, 80))
	}
	nonce, err := base64.StdEncoding.Strict().DecodeString(s.Nonce)
	if err != nil || len(nonce) != aead.NonceSize() {
		return nil, fmt.Errorf("%w: its nonce is none", ErrForged)
	}
	text, err := base64.StdEncoding.Strict().DecodeString(s.Text)
	if err != nil {
		return nil, fmt.Errorf("%w: its text is not base64", ErrForged)
	}
	aad, err := p.authenticated()
	if err != nil {
		return nil, err
	}
	clear, err := aead.Open(text[:0], nonce, text, aad)
	if err != nil {
		return nil, fmt.Errorf("%w (key %q)", ErrForged, s.Key)
	}
	return clear, nil
}

// authenticated is what the seal covers besides the sealed text, see seal.
func (p *parsed) authenticated() ([]byte, error) {
	q, err := p.canonical()
	if err != nil {
		return nil, err
	}
	at, ok := memberSpan(q.text, q.mesh, "sealed")
	if !ok {
		return nil, fmt.Errorf("%w: it is not where it must be", ErrForged)
	}
	// The span of a member begins at its comma and its name.
	value := at
	for q.text[value.from] != '{' {
		value.from++
	}
	cut, ok := memberSpan(q.text, value, "text")
	if !ok {
		return nil, fmt.Errorf("%w: it is empty", ErrForged)
	}
	checksum, ok := memberSpan(q.text, q.provenance, "checksum")
	if !ok {
		return nil, fmt.Errorf("%w: there is no checksum", ErrForged)
	}
	// provenance comes before our extension.
	aad := make([]byte, 0, len(q.text)-(cut.to-cut.from))
	aad = append(aad, q.text[:checksum.from]...)
	aad = append(aad, q.text[checksum.to:cut.from]...)
	return append(aad, q.text[cut.to:]...), nil
}

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

// sealAlgorithm is the only supported algorithm. Its nonces are long enough to be chosen
// at random.
const sealAlgorithm = "XChaCha20-Poly1305"

// A Key seals checkpoints at rest.
type Key struct {
	// ID identifies the key in sealed documents; it is not secret. Default: [KeyID] of
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

// A Keyring seals with its newest key, and opens documents that any of its keys has
// sealed. To change keys, give all workers the new key after the old one first, and then
// before it. Every run that is written from then on is sealed with the new key; once all
// runs that need the old key have expired, remove it.
//
// A Keyring does not change, and prints no secret.
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

// IDs returns the ids of the keys, newest first.
func (k *Keyring) IDs() []string { return append([]string(nil), k.ids...) }

// String returns the keys' ids.
func (k *Keyring) String() string { return "state keys " + strings.Join(k.ids, ", ") }

// GoString is String, so that %#v prints no secret either.
func (k *Keyring) GoString() string { return k.String() }

// LogValue is String, for slog.
func (k *Keyring) LogValue() slog.Value { return slog.StringValue(k.String()) }

// sealed is the member of x-aeemesh that holds the sealed document: the canonical JSON of
// the whole unsealed document, including its header.
type sealed struct {
	Algorithm string `json:"alg"`
	Key       string `json:"key"`
	Nonce     string `json:"nonce"` // base64
	// Over is the revision of the run that the document replaces; nil: the writer did not
	// set it.
	Over *uint64 `json:"over"`
	Text string  `json:"text"` // base64
}

// seal writes the document that is stored in place of an unsealed one: a valid Agent
// State document with the unsealed header, the sealed text, and its own checksum.
//
// The seal also authenticates that document, without provenance.checksum and without the
// member text: without the key it is impossible to move a sealed text under another
// header, or to change the revision that it replaces.
func (k *Keyring) seal(h Header, text []byte, codec Codec) ([]byte, error) {
	if h.Entity == "" {
		return nil, errors.New("only the mesh's own checkpoints are sealed: Mesh.Entity is empty")
	}
	aead := k.keys[k.newest]
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(text)+aead.Overhead())
	rand.Read(nonce)
	var at int // the position of the sealed text
	size := base64.StdEncoding.EncodedLen(len(text) + aead.Overhead())
	doc, checksum, err := h.append(make([]byte, 0, 1024+size), nil, func(w *writer) {
		w.name("sealed")
		w.begin()
		w.text("alg", sealAlgorithm)
		w.text("key", k.newest)
		w.text("nonce", base64.StdEncoding.EncodeToString(nonce))
		if codec.bound {
			w.name("over")
			w.uint("sealed over", codec.over)
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

// open returns the text of the unsealed document.
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
		return nil, fmt.Errorf("%w with key %q, which this process does not have", ErrSealed, clip.Text(s.Key, 80))
	}
	nonce, err := base64.StdEncoding.Strict().DecodeString(s.Nonce)
	if err != nil || len(nonce) != aead.NonceSize() {
		return nil, fmt.Errorf("%w: its nonce is invalid", ErrForged)
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

// authenticated returns the data that the seal authenticates in addition to the sealed
// text, see seal.
func (p *parsed) authenticated() ([]byte, error) {
	q, err := p.canonical()
	if err != nil {
		return nil, err
	}
	at, ok := memberSpan(q.text, q.mesh, "sealed")
	if !ok {
		return nil, fmt.Errorf("%w: its member sealed was not found", ErrForged)
	}
	// A member's span begins with its comma and its name.
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
	// provenance comes before x-aeemesh.
	aad := make([]byte, 0, len(q.text)-(cut.to-cut.from))
	aad = append(aad, q.text[:checksum.from]...)
	aad = append(aad, q.text[checksum.to:cut.from]...)
	return append(aad, q.text[cut.to:]...), nil
}

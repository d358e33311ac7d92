package sign

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
)

// macKey is an HS256 secret with reusable hash states.
type macKey struct {
	states sync.Pool // of *macState
}

type macState struct {
	hash.Hash
	sum [sha256.Size]byte
}

func newMACKey(secret []byte) *macKey {
	secret = append([]byte(nil), secret...)
	return &macKey{states: sync.Pool{New: func() any {
		return &macState{Hash: hmac.New(sha256.New, secret)}
	}}}
}

// sign computes the HMAC of RFC 2104 with SHA-256.
func (k *macKey) sign(mac *[sha256.Size]byte, message []byte) {
	s := k.states.Get().(*macState)
	s.Reset()
	s.Write(message)
	copy(mac[:], s.Sum(s.sum[:0]))
	k.states.Put(s)
}

// verify compares the MACs in constant time.
func (k *macKey) verify(message, mac []byte) bool {
	var want [sha256.Size]byte
	k.sign(&want, message)
	return hmac.Equal(want[:], mac)
}

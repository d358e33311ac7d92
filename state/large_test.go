package state_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
)

// BenchmarkLarge measures what a worker does with a document of 16 MB that is stored as an
// object: it encodes the document for the first time and again, makes the reference, and
// decodes it.
func BenchmarkLarge(b *testing.B) {
	k := state.Codec{MaxBytes: 64 << 20}
	c := grown(b, 8<<10)
	for len(c.Doc.Conversation) < 8<<10 {
		c.Doc.Conversation = append(c.Doc.Conversation, c.Doc.Conversation[2:]...)
	}
	data, err := k.Encode(c)
	if err != nil {
		b.Fatal(err)
	}
	each := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	each("EncodeFirst", func() error { _, err := k.Encode(&state.Checkpoint{Doc: c.Doc, Mesh: c.Mesh}); return err })
	each("Encode", func() error { _, err := k.Encode(c); return err })
	each("Refer", func() error { _, err := state.Refer(data, state.Object{Name: "o"}); return err })
	each("Decode", func() error { _, err := k.Decode(data); return err })
	each("ContentChecksum", func() error { _, err := state.ContentChecksum(data); return err })
}

// The digest of a large document is that of its bytes; of one that is not hashed in this
// form anyway it is not known.
func TestTheDigestOfALargeDocumentIsThatOfItsBytes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		codec state.Codec
		size  int
		known bool
	}{
		"large":  {state.Codec{}, 300 << 10, true},
		"small":  {state.Codec{}, 4 << 10, false},
		"sealed": {state.Codec{Seal: ring(t, key(1))}, 300 << 10, false},
		"cbor":   {state.Codec{Encoding: aaif.CBOR}, 300 << 10, false},
	} {
		c := grown(t, tt.size)
		for range 2 { // also with the texts of the first time
			data, digest, err := tt.codec.EncodeDigest(nil, c)
			want := ""
			if tt.known {
				sum := sha256.Sum256(data)
				want = "sha256:" + hex.EncodeToString(sum[:])
			}
			if err != nil || digest != want {
				t.Errorf("%s: digest %q, %v; want %q", name, digest, err, want)
			}
			if _, err := tt.codec.Decode(data); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

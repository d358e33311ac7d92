package state_test

import (
	"testing"

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

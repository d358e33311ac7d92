package state_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/state"
)

// grown returns a checkpoint whose document has about size bytes, most of them
// conversation, like that of a run that calls tools.
func grown(tb testing.TB, size int) *state.Checkpoint {
	tb.Helper()
	c := state.New("agent.reviewer", "01JD0000000000000000000000", "")
	c.Doc.Iteration = "3"
	c.Mesh.Epoch, c.Mesh.Owner, c.Mesh.Step = 1, "host-1", state.Step{Kind: state.StepModel, Name: "m", MS: 1200}
	c.Mesh.StoredAt, c.Mesh.StartedAt = start, start
	c.Mesh.Task = []byte(`{"v":"1","id":"01JD0000000000000000000000","payload":{"text":"` + strings.Repeat("a question ", 60) + `"}}`)
	c.Append(model.System(strings.Repeat("Be brief. ", 20)), start, 20)
	for i := 0; ; i++ {
		data, err := state.Codec{}.Encode(c)
		if err != nil {
			tb.Fatal(err)
		}
		left := size - len(data)
		if left < 300 {
			return c
		}
		text := strings.Repeat("What was said, with a \"quote\"\nand a line. ", min(left, 1600)/50)
		switch i % 2 {
		case 0:
			c.Append(model.User(text), start, len(text)/4)
		default:
			c.Append(model.Assistant(text), start, len(text)/4)
		}
	}
}

// BenchmarkEncode measures one step of a run: a message is appended and the checkpoint
// encoded. The earlier messages are not encoded again.
func BenchmarkEncode(b *testing.B) {
	ring, err := state.NewKeyring(state.Key{Secret: make([]byte, state.KeySize)})
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name  string
		codec state.Codec
	}{{"json", state.Codec{}}, {"sealed", state.Codec{Seal: ring}}, {"cbor", state.Codec{Encoding: aaif.CBOR}}} {
		for _, size := range []int{1 << 10, 4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%dKiB", bb.name, size>>10), func(b *testing.B) {
				c := grown(b, size)
				n := len(c.Doc.Conversation)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					c = c.Clone()
					c.Truncate(n)
					c.Append(model.User("and one more"), start, 3)
					if _, err := bb.codec.Encode(c); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkEncodeFirst measures the first checkpoint that a worker encodes of a run that
// it has taken over: everything is encoded.
func BenchmarkEncodeFirst(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			data, err := state.Codec{}.Encode(grown(b, size))
			if err != nil {
				b.Fatal(err)
			}
			c, err := state.Codec{}.Decode(data)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			for b.Loop() {
				fresh := state.Checkpoint{Doc: c.Doc, Mesh: c.Mesh}
				if _, err := (state.Codec{}).Encode(&fresh); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	ring, err := state.NewKeyring(state.Key{Secret: make([]byte, state.KeySize)})
	if err != nil {
		b.Fatal(err)
	}
	for name, k := range map[string]state.Codec{"json": {}, "sealed": {Seal: ring}, "cbor": {Encoding: aaif.CBOR}} {
		for _, size := range []int{4 << 10, 64 << 10} {
			data, err := k.Encode(grown(b, size))
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := k.Decode(data); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkReadHeader(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10} {
		data, err := state.Codec{}.Encode(grown(b, size))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			for b.Loop() {
				if _, err := state.ReadHeader(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSHA256 gives the lower bound for the cost of a checksum.
func BenchmarkSHA256(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10} {
		data := bytes.Repeat([]byte{'x'}, size)
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				sha256.Sum256(data)
			}
		})
	}
}

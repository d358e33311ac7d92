package stream

import (
	"testing"

	"github.com/aeemesh/aeemesh/state"
)

// BenchmarkEmit sends text in pieces. Each hundredth is the last before a checkpoint.
func BenchmarkEmit(b *testing.B) {
	lane := newLane(b)
	d := owner(b, lane, state.New("agent.x", "t", ""))
	for i := range b.N {
		emit(b, d, "word ")
		if i%100 == 99 {
			if err := d.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			d.Saved(d.SentText(), "")
		}
	}
}

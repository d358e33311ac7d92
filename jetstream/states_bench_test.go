package jetstream_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Runs of four checkpoints each, compared with the same number of plain puts into the
// same bucket.
func BenchmarkStatesPut(b *testing.B) {
	unlimited := jetstream.Options{Only: states, Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxBytes: -1}}}
	for _, size := range []int{4 << 10, 64 << 10} {
		data := append([]byte("{"), bytes.Repeat([]byte("x"), size-1)...)
		for _, senders := range []int{1, 64} {
			name := fmt.Sprintf("%dKiB/%d", size>>10, senders)
			b.Run(name+"/kv.Put", func(b *testing.B) {
				js := start(b)
				apply(b, js, unlimited)
				kv, err := js.KeyValue(b.Context(), "aee_state")
				if err != nil {
					b.Fatal(err)
				}
				parallel(b, senders, func(sender, i int) error {
					_, err := kv.Put(b.Context(), fmt.Sprintf("agent.x.%d-%d", sender, i/4), data)
					return err
				})
			})
			b.Run(name+"/States", func(b *testing.B) { benchmarkStates(b, start(b), unlimited, senders, data) })
			b.Run(name+"/Gather", func(b *testing.B) { benchmarkStates(b, jetstream.Gather(start(b)), unlimited, senders, data) })
		}
	}
}

func benchmarkStates(b *testing.B, js natsjs.JetStream, opts jetstream.Options, senders int, data []byte) {
	apply(b, js, opts)
	s := jetstream.NewStates(js, subject.Map{})
	prev := make([]uint64, senders)
	parallel(b, senders, func(sender, i int) (err error) {
		if i%4 == 0 {
			prev[sender] = 0
		}
		id := state.ID{Entity: "agent.x", Run: fmt.Sprintf("%d-%d", sender, i/4)}
		prev[sender], err = s.PutNoted(b.Context(), id, prev[sender], data, jetstream.Note{Status: "running", Work: 1})
		return err
	})
}

func BenchmarkStatesGet(b *testing.B) {
	_, s := openStates(b)
	for _, size := range []int{4 << 10, 64 << 10} {
		id := state.ID{Entity: "agent.x", Run: fmt.Sprint(size)}
		putRun(b, s, id, 0, make([]byte, size), jetstream.Note{})
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Get(b.Context(), id); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package agents_test

import (
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/mesh"
)

// A whole durable task of one turn of the offline model: submitted, claimed,
// generated, committed with its end, answered and taken off the queue. Beside it
// the same task on the live lane.
func BenchmarkOneTurn(b *testing.B) {
	const inFlight = 16
	run := func(b *testing.B, one func(l *lane, entity string)) {
		l := newLane(b)
		a := newAgent(b, doc(b, echoModel), agents.Options{Concurrency: inFlight})
		l.host(a, nil)
		one(l, a.Entity) // it serves
		tasks := make(chan struct{})
		var wg sync.WaitGroup
		for range inFlight {
			wg.Go(func() {
				for range tasks {
					one(l, a.Entity)
				}
			})
		}
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			tasks <- struct{}{}
		}
		close(tasks)
		wg.Wait()
	}
	b.Run("durable", func(b *testing.B) {
		run(b, func(l *lane, entity string) {
			if _, _, err := l.client.Perform(b.Context(), l.task(entity, `{"text":"one"}`, ""), mesh.SubmitOptions{}, mesh.ResultOptions{}); err != nil {
				b.Error(err)
			}
		})
	})
	b.Run("live", func(b *testing.B) {
		run(b, func(l *lane, entity string) {
			for { // until it serves
				_, err := l.client.Send(b.Context(), l.task(entity, `{"text":"one"}`, ""), mesh.SendOptions{})
				if err == nil {
					return
				}
				if b.Context().Err() != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

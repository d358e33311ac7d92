package jetstream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
)

func BenchmarkSeenClaim(b *testing.B) {
	js := start(b)
	apply(b, js, jetstream.Options{})
	ids := seen.New(js, subject.Map{}, time.Minute)
	i := 0
	for b.Loop() {
		i++
		if holder, err := ids.Claim(b.Context(), "agent.x", fmt.Sprintf("id-%08d", i), "by"); err != nil || holder != "by" {
			b.Fatal(holder, err)
		}
	}
}

func BenchmarkJournalPut(b *testing.B) {
	js := start(b)
	apply(b, js, jetstream.Options{})
	j := jetstream.NewJournal(js, subject.Map{})
	envelope := make([]byte, 625)
	i := 0
	for b.Loop() {
		i++
		if err := j.Put(b.Context(), "agent.x", fmt.Sprintf("id-%08d", i), envelope); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJournalPost(b *testing.B) {
	js := start(b)
	apply(b, js, jetstream.Options{})
	j := jetstream.NewJournal(js, subject.Map{})
	envelope := make([]byte, 625)
	i := 0
	for b.Loop() {
		i++
		if err := j.Post("agent.x", fmt.Sprintf("id-%08d", i), envelope); err != nil {
			b.Fatal(err)
		}
	}
}

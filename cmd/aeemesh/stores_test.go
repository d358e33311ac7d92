package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

func testJetStream(t *testing.T, streams bool) natsjs.JetStream {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	if streams {
		if err := applyTopology(srv); err != nil {
			t.Fatal(err)
		}
	}
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Refutations from several workers at once are all kept, up to the bound.
func TestRefutationsAreKeptTogether(t *testing.T) {
	t.Parallel()
	r := refutations{jetstream.NewRefuted(testJetStream(t, true), subject.Map{})}
	if got, err := r.List(t.Context(), "01NOBODY"); err != nil || len(got) != 0 {
		t.Fatalf("List of nothing: %s, %v", got, err)
	}
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			if err := r.Add(t.Context(), "01REFUTED", fmt.Appendf(nil, `{"by":"agent.a%d"}`, i)); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	got, err := r.List(t.Context(), "01REFUTED")
	if err != nil || len(got) != 4 {
		t.Fatalf("List: %s, %v; want 4", got, err)
	}
	for i := range maxRefutations {
		if err := r.Add(t.Context(), "01REFUTED", fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	got, err = r.List(t.Context(), "01REFUTED")
	if err != nil || len(got) != maxRefutations || string(got[len(got)-1]) != fmt.Sprintf(`{"n":%d}`, maxRefutations-1) {
		t.Errorf("List: %d records, last %s, %v", len(got), got[len(got)-1], err)
	}
	if err := r.Add(t.Context(), "01REFUTED", bytes.Repeat([]byte("x"), maxRefutationJSON+1)); err == nil {
		t.Error("a huge record is taken")
	}
}

func TestJournalIsUsedWhereItIs(t *testing.T) {
	t.Parallel()
	a := &app{log: slog.New(slog.DiscardHandler)}
	for _, tt := range []struct {
		streams bool
		want    string
		used    bool
		fails   bool
	}{
		{true, "auto", true, false}, {true, "memory", false, false}, {true, "jetstream", true, false},
		{false, "auto", false, false}, {false, "jetstream", false, true},
	} {
		var cfg mesh.Config
		err := a.useStores(t.Context(), testJetStream(t, tt.streams), subject.Map{}, tt.want, &cfg)
		if (err != nil) != tt.fails || (cfg.Journal != nil) != tt.used || (cfg.Refutations != nil) != tt.used {
			t.Errorf("--journal %s, streams %v: journal %v, refutations %v, %v", tt.want, tt.streams, cfg.Journal, cfg.Refutations, err)
		}
	}
}

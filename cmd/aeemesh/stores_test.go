package main

import (
	"log/slog"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
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

func TestJournalIsUsedWhereItIs(t *testing.T) {
	t.Parallel()
	a := &app{&session.App{Log: slog.New(slog.DiscardHandler)}}
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

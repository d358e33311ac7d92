package worker

import (
	"errors"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestTheJournalIsUsedWhereItIs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		streams bool
		use     Use
		used    bool
		fails   bool
	}{
		{true, Auto, true, false}, {true, Off, false, false}, {true, On, true, false},
		{false, Auto, false, false}, {false, On, false, true},
	} {
		js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
		if err != nil {
			t.Fatal(err)
		}
		if tt.streams {
			if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		w, err := New(Config{Agents: []Agent{{As: "agent.one", Handler: mesh.HandlerFunc(nil)}}, Journal: tt.use})
		if err != nil {
			t.Fatal(err)
		}
		var cfg mesh.Config
		err = w.useJournal(t.Context(), js, subject.Map{}, &cfg)
		var bad *ConfigError
		if errors.As(err, &bad) != tt.fails || (err != nil) != tt.fails || (cfg.Journal != nil) != tt.used || (cfg.Refutations != nil) != tt.used {
			t.Errorf("Journal %v, streams %v: journal %v, refutations %v, %v", tt.use, tt.streams, cfg.Journal, cfg.Refutations, err)
		}
	}
}

package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
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
		ctx, cancel := context.WithCancel(t.Context())
		var cfg mesh.Config
		err = w.useJournal(ctx, js, subject.Map{}, &cfg)
		cancel()
		w.later.Wait()
		var bad *ConfigError
		_, journal := cfg.Journal.(*jetstream.Journal)
		_, refutations := cfg.Refutations.(*jetstream.Refutations)
		if errors.As(err, &bad) != tt.fails || (err != nil) != tt.fails || journal != tt.used || refutations != tt.used {
			t.Errorf("Journal %v, streams %v: journal %v, refutations %v, %v", tt.use, tt.streams, cfg.Journal, cfg.Refutations, err)
		}
	}
}

// The two parts of the journal are each used from when they are found. Until then nothing fails, and what
// was refuted is put into the bucket when it answers.
func TestTheJournalIsLookedForUntilItIsThere(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	outage := natstest.NewOutage(t, srv)
	js := outage.JetStream(t, natstest.Conn(t, srv))
	log := &natstest.Buffer{}
	j := &lateJournal{js: js, wait: natstest.Patience, log: slog.New(slog.NewTextHandler(log, nil))}
	apply := func(name string) {
		direct, err := natsjs.New(natstest.Conn(t, srv))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jetstream.Apply(t.Context(), direct, jetstream.Options{Only: []string{name}}); err != nil {
			t.Fatal(err)
		}
	}
	if pause := j.look(t.Context()); pause != laneInterval || !j.Absent() {
		t.Errorf("no streams: absent %v, the next look after %v", j.Absent(), pause)
	}
	if err := j.Post("agent.one", "id", []byte("{}")); err != nil {
		t.Error(err)
	}
	if _, err := j.Get(t.Context(), "agent.one", "id"); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if err := j.refuted.Add(t.Context(), "agent.one", "id", []byte(`"early"`)); err != nil {
		t.Error(err)
	}
	if _, err := j.refuted.List(t.Context(), "agent.one", "id"); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("listed %v", err)
	}

	apply(jetstream.StreamJournal)
	if pause := j.look(t.Context()); pause != laneInterval || j.Absent() {
		t.Errorf("the stream alone: absent %v, the next look after %v", j.Absent(), pause)
	}
	if err := j.Post("agent.one", "id", []byte("{}")); err != nil {
		t.Error(err)
	}
	natstest.Eventually(t, "it is stored", func() bool {
		raw, err := j.Get(t.Context(), "agent.one", "id")
		return err == nil && string(raw) == "{}"
	})

	apply(jetstream.BucketRefuted)
	outage.RefuseFirst(1)
	j.pauses = pauses{}
	if pause := j.look(t.Context()); pause != shortestPause {
		t.Errorf("JetStream does not answer, the next look after %v", pause)
	}
	outage.RefuseFirst(0)
	if pause := j.look(t.Context()); pause != 0 {
		t.Errorf("all is there, the next look after %v", pause)
	}
	if err := j.refuted.Add(t.Context(), "agent.one", "id", []byte(`"late"`)); err != nil {
		t.Error(err)
	}
	list, err := jetstream.NewRefutations(js, subject.Map{}).List(t.Context(), "agent.one", "id")
	if err != nil || len(list) != 2 || string(list[0]) != `"early"` || string(list[1]) != `"late"` {
		t.Errorf("the bucket has %s, %v", list, err)
	}
	if got := strings.Count(log.String(), "\n"); got != 2 {
		t.Errorf("it was logged %d times: %s", got, log)
	}
}

package jetstream_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/agents/registry/registrytest"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestAgents(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(t *testing.T) registry.Registry {
		js, m := start(t), prefix(t, "acme.eu")
		apply(t, js, jetstream.Options{Map: m, Only: []string{jetstream.BucketAgents}})
		return jetstream.NewAgents(js, m)
	})
}

func agentRecord(t *testing.T, name string) registry.Record {
	t.Helper()
	doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","agent":{"name":"`+name+`","goal":"x"}}`), aaif.Options{Format: aaif.JSON})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := registry.New(doc, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// Records that other programs wrote into the bucket are returned with an error, and do
// not keep the others from being read.
func TestForeignRecordsOfAgents(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	agents := jetstream.NewAgents(js, subject.Map{})
	rec := agentRecord(t, "One")
	if _, err := agents.Put(ctx, rec, 0); err != nil {
		t.Fatal(err)
	}
	data, err := rec.Encode()
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(ctx, jetstream.BucketAgents)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"moved": string(data), "broken": "{", "newer": `{"v":9}`, "no.escaped=key": "x"} {
		if _, err := kv.Put(ctx, key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := agents.List(ctx)
	if err != nil || len(all) != 4 || all[0].Err != nil || all[0].Record.Entity != "agent.one" {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, e := range all[1:] {
		if e.Err == nil || e.Record.Entity != "" {
			t.Errorf("%+v", e)
		}
	}
	if e, err := agents.Get(ctx, "moved"); err != nil || e.Err == nil || !strings.Contains(e.Err.Error(), `it is of "agent.one"`) {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestAgentsWithoutABucket(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	agents := jetstream.NewAgents(start(t), subject.Map{})
	_, err := agents.Put(ctx, agentRecord(t, "One"), 0)
	_, listed := agents.List(ctx)
	watched := agents.Watch(ctx, func(registry.Entry) {}, nil)
	for _, err := range []error{err, listed, watched} {
		if !errors.Is(err, jetstream.ErrNotFound) || errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%v", err)
		}
	}
	if !errors.Is(listed, registry.ErrAbsent) {
		t.Errorf("%v is not said to be for good", listed)
	}
}

// A watch reads the changes that it missed while the server was down, deletions included.
func TestWatchingAgentsOutlivesTheServer(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true, StoreDir: t.TempDir()})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	agents := jetstream.NewAgents(js, subject.Map{})
	gone, stays := agentRecord(t, "Gone"), agentRecord(t, "Stays")
	if _, err := agents.Put(ctx, gone, 0); err != nil {
		t.Fatal(err)
	}
	told, ready, ended := make(chan registry.Entry, 16), make(chan struct{}), make(chan error, 1)
	watching, cancel := context.WithCancel(ctx)
	go func() {
		ended <- agents.Watch(watching, func(e registry.Entry) { told <- e }, func() { close(ready) })
	}()
	<-ready
	<-told
	stream, err := js.Stream(ctx, "KV_aee_agents")
	if err == nil {
		err = stream.Purge(ctx, natsjs.WithPurgeSubject("$KV.aee_agents."+subject.Escape(gone.Key()))) // leaves no marker
	}
	if err != nil {
		t.Fatal(err)
	}
	natstest.Restart(t, srv)
	waitFor(t, "the server is back", func() bool {
		_, err := agents.Put(brief(t), stays, 0)
		return err == nil || errors.Is(err, registry.ErrChanged)
	})
	for removed, added := false, false; !removed || !added; {
		select {
		case e := <-told:
			removed = removed || e.Removed && e.Key == gone.Key()
			added = added || e.Key == stays.Key()
		case <-ctx.Done():
			t.Fatalf("removed %v, added %v", removed, added)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A JetStream that answers no direct get at the moment, and tells nothing else either, or that
// the bucket is there, is not one without a registry.
func TestARegistryThatDoesNotAnswerIsNotAbsent(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for name, answer := range map[string]string{
		"silent": "", "electing": `{"config":{"name":"KV_aee_agents","allow_direct":true},"state":{},"cluster":{"leader":"a"}}`,
	} {
		js := connect(t, natstest.Run(t, natsd.Config{})) // nothing but what follows answers
		if _, err := js.Conn().Subscribe("$JS.API.STREAM.INFO.KV_aee_agents", func(m *nats.Msg) {
			if answer != "" {
				_ = m.Respond([]byte(answer))
			}
		}); err != nil {
			t.Fatal(err)
		}
		_, err := jetstream.NewAgents(js, subject.Map{}).List(ctx)
		if !errors.Is(err, jetstream.ErrUnavailable) || errors.Is(err, registry.ErrAbsent) || jetstream.Off(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := jetstream.NewAgents(connect(t, natstest.Run(t, natsd.Config{})), subject.Map{}).List(ctx)
	if !errors.Is(err, registry.ErrAbsent) || !jetstream.Off(err) {
		t.Errorf("without JetStream: %v", err)
	}
}

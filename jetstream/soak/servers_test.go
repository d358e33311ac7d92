package soak

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func testServers(t *testing.T, n int) (*servers, natsjs.KeyValue) {
	t.Helper()
	s, err := newServers(testLauncher(t), n, "2m", "n", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.startAll(ctx); err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, a := range s.addresses() {
		urls = append(urls, "nats://"+a)
	}
	conn, err := connect(urls, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := natsjs.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.awaitJetStream(ctx, js); err != nil {
		t.Fatal(err)
	}
	var kv natsjs.KeyValue
	if err := poll(ctx, 20*time.Millisecond, func() (err error) { // until no server takes a busy one for gone
		kv, err = js.CreateKeyValue(ctx, natsjs.KeyValueConfig{Bucket: "b", Replicas: n})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return s, kv
}

// put writes until the value is stored.
func put(t *testing.T, kv natsjs.KeyValue, v string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, 20*time.Millisecond, func() error {
		once, done := context.WithTimeout(ctx, time.Second)
		defer done()
		_, err := kv.Put(once, "k", []byte(v))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// get reads until the value is there: any replica may answer, also one that lags.
func get(t *testing.T, kv natsjs.KeyValue, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, 20*time.Millisecond, func() error {
		e, err := kv.Get(ctx, "k")
		if err == nil && string(e.Value()) != want {
			return fmt.Errorf("got %q, want %q", e.Value(), want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestServerKeepsItsStoreOverKill(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	s, kv := testServers(t, 1)
	put(t, kv, "1")
	s.nodes[0].kill()
	if err := s.nodes[0].start(t.Context(), s.l); err != nil {
		t.Fatal(err)
	}
	get(t, kv, "1")
	thaw := s.nodes[0].freeze()
	// On a busy machine the signal may take long to reach all threads.
	silent, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(silent, 20*time.Millisecond, func() error {
		once, done := context.WithTimeout(silent, 100*time.Millisecond)
		defer done()
		if _, err := kv.Put(once, "k", []byte("lost")); err == nil {
			return errors.New("a server that is stopped goes on answering")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	thaw()
	s.nodes[0].stop()
	if err := s.nodes[0].start(t.Context(), s.l); err != nil {
		t.Fatal(err)
	}
	put(t, kv, "2")
}

// Whichever node is partitioned from the others, the others continue; and no route
// bypasses the proxies.
func TestClusterNodesCanBeParted(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	s, kv := testServers(t, 3)
	put(t, kv, "0")
	for i := range s.nodes {
		undo := s.part(i, (*Proxy).Cut)
		alone, err := connect([]string{"nats://" + address(s.nodes[i].client)}, "alone")
		if err != nil {
			t.Fatal(err)
		}
		defer alone.Close()
		js, err := natsjs.New(alone)
		if err != nil {
			t.Fatal(err)
		}
		// The node does not see the others, so it can store nothing.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := poll(ctx, 20*time.Millisecond, func() error {
			once, done := context.WithTimeout(ctx, 300*time.Millisecond)
			defer done()
			if _, err := js.Publish(once, "$KV.b.other", nil); err == nil {
				return errNotReady
			}
			return nil
		}); err != nil {
			t.Errorf("node %d stores on its own, though it is parted from the others", i)
		}
		cancel()
		undo()
		put(t, kv, "healed")
	}
	s.nodes[1].kill()
	put(t, kv, "two of three")
	if err := s.nodes[1].start(t.Context(), s.l); err != nil {
		t.Fatal(err)
	}
	get(t, kv, "two of three")
}

func TestProcessThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	l := testLauncher(t)
	if p, err := l.start(t.Context(), "x", "server", "/nowhere.conf"); err == nil {
		p.kill()
		t.Fatal("it started")
	} else {
		t.Log(err)
	}
}

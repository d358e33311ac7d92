package natstest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// What three servers hold survives the loss of any one of them.
func TestClusterOutlivesOneServer(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	servers := natstest.Cluster(t, 3)
	js, err := natsjs.New(natstest.ConnAll(t, servers))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var kv natsjs.KeyValue
	for { // until no server takes a busy one for gone
		kv, err = js.CreateKeyValue(ctx, natsjs.KeyValueConfig{Bucket: "b", Replicas: 3})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	put := func(v string) {
		t.Helper()
		for { // until a leader is elected
			once, done := context.WithTimeout(ctx, time.Second)
			_, err := kv.Put(once, "k", []byte(v))
			done()
			if err == nil {
				return
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	put("1")
	servers[0].Close()
	put("2")
	natstest.Restart(t, servers[0])
	natstest.Eventually(t, "the restarted server has caught up", func() bool {
		stream, err := js.Stream(ctx, "KV_b")
		if err != nil {
			return false
		}
		c := stream.CachedInfo().Cluster
		return c != nil && c.Leader != "" && len(c.Replicas) == 2 && !slices.ContainsFunc(c.Replicas, func(p *natsjs.PeerInfo) bool { return !p.Current || p.Offline })
	})
	servers[1].Close()
	put("3")
	// A request to the server that is gone is lost, and a replica may lag behind.
	natstest.Eventually(t, "the last value is read", func() bool {
		once, done := context.WithTimeout(ctx, time.Second)
		defer done()
		e, err := kv.Get(once, "k")
		return err == nil && string(e.Value()) == "3"
	})
}

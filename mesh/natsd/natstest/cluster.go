package natstest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Cluster starts n servers with JetStream that form one cluster, for streams
// of up to n replicas, and returns once JetStream answers. They are closed when
// the test ends. [Restart] starts one of them anew.
func Cluster(t testing.TB, n int) []*natsd.Server {
	t.Helper()
	dir := StoreDir(t)
	ports := make([]int, n) // of the routes, which must be known before the servers start
	for i := range ports {
		ports[i] = hold(t)
	}
	name := rand.Text() // clusters of other tests that meet one of the ports are strangers
	routes := make([]string, n)
	for i, p := range ports {
		routes[i] = fmt.Sprintf("nats-route://127.0.0.1:%d", p)
	}
	servers := make([]*natsd.Server, n)
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		store := filepath.Join(dir, fmt.Sprintf("n%d", i+1))
		conf := store + ".conf"
		text := fmt.Sprintf("server_name: n%d\njetstream {}\ncluster { name: %s, listen: \"127.0.0.1:%d\", routes: [%s] }\n",
			i+1, name, ports[i], strings.Join(routes, ", "))
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		srv, err := natsd.New(natsd.Config{ConfigFile: conf, Port: hold(t), JetStream: true, StoreDir: store})
		if err != nil {
			t.Fatal(err)
		}
		servers[i] = srv
		t.Cleanup(srv.Close)
		wait.Go(func() { errs[i] = srv.Start(t.Context()) })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	waitForLeader(t, servers)
	return servers
}

// waitForLeader waits until the cluster can place a stream of all its servers'
// replicas, which takes a leader that knows them all.
func waitForLeader(t testing.TB, servers []*natsd.Server) {
	t.Helper()
	js, err := natsjs.New(Conn(t, servers[0]))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const probe = "natstest_probe"
	for {
		once, done := context.WithTimeout(ctx, time.Second)
		_, err = js.CreateOrUpdateStream(once, natsjs.StreamConfig{Name: probe, Subjects: []string{probe}, Replicas: len(servers), Storage: natsjs.MemoryStorage})
		done()
		if err == nil {
			// It stays: to delete an account's last stream removes a folder, in which a
			// test may be about to make the first of its own.
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the cluster has no leader: %v", err)
		}
	}
}

// URLs are where clients of a cluster connect.
func URLs(servers []*natsd.Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.ClientURL())
	}
	return strings.Join(all, ",")
}

// ConnAll connects to a cluster, and goes to another server when its own is
// gone. Otherwise it is [Conn].
func ConnAll(t testing.TB, servers []*natsd.Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return connect(t, URLs(servers), opts)
}

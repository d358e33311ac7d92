package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

// servers are the NATS servers of one soak: one, or a cluster. In a cluster each server
// reaches every other one through a proxy, so that one can be partitioned from the
// others; the servers do not advertise addresses to each other.
type servers struct {
	l     *launcher
	nodes []*server
	held  []func() // releases their ports
}

// A server is one node. It keeps its ports and its store when it restarts.
type server struct {
	name, conf   string
	client, peer int            // ports
	disk         *disk          // nil: the store is on the soak's own
	routes       map[int]*Proxy // to the other nodes
	mu           sync.Mutex     // held while it is started or stopped
	proc         *process       // nil: not running
}

// newServers writes the configurations of n servers, whose names begin with prefix; sync
// is jetstream's sync_interval ("always", "2m"). With disk above 0 each has a disk of so
// many bytes.
func newServers(l *launcher, n int, sync, prefix string, disk int64) (*servers, error) {
	s := &servers{l: l}
	for i := range n {
		node := &server{name: fmt.Sprintf("%s%d", prefix, i+1), routes: map[int]*Proxy{}}
		s.nodes = append(s.nodes, node)
		for _, port := range []*int{&node.client, &node.peer} {
			number, release, err := natsd.HoldPort()
			if err != nil {
				s.close()
				return nil, err
			}
			*port = number
			s.held = append(s.held, release)
		}
	}
	for i, node := range s.nodes {
		cluster := ""
		if n > 1 {
			var routes []string
			for j, other := range s.nodes {
				if i == j {
					continue
				}
				p, err := NewProxy(address(other.peer))
				if err != nil {
					s.close()
					return nil, err
				}
				node.routes[j] = p
				routes = append(routes, fmt.Sprintf("%q", "nats-route://"+p.Addr()))
			}
			// Addresses learnt by gossip would bypass the proxies: so each server
			// advertises an address on which no server listens.
			cluster = fmt.Sprintf("cluster { name: soak, listen: %q, advertise: \"127.0.0.1:1\", no_advertise: true, compression: off, routes: [%s] }\n",
				address(node.peer), strings.Join(routes, ", "))
		}
		store := filepath.Join(l.dir, node.name)
		if disk > 0 {
			var err error
			if node.disk, err = newDisk(store, disk); err != nil {
				s.close()
				return nil, err
			}
		}
		node.conf = filepath.Join(l.dir, node.name+".conf")
		text := fmt.Sprintf("server_name: %s\nlisten: %q\njetstream { store_dir: %q, sync_interval: %s, max_file_store: 8G, max_memory_store: 256M }\n%s",
			node.name, address(node.client), store, sync, cluster)
		if err := os.WriteFile(node.conf, []byte(text), 0o600); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// startAll starts every server.
func (s *servers) startAll(ctx context.Context) error {
	return together(len(s.nodes), func(i int) error { return s.nodes[i].start(ctx, s.l) })
}

// together calls f with 0 to n-1 at once, waits for all, and joins their errors.
func together(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { errs[i] = f(i) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (n *server) start(ctx context.Context, l *launcher) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	p, err := l.start(ctx, n.name, "server", n.conf)
	if err != nil {
		return err
	}
	n.proc = p
	go p.drain()
	return nil
}

func (n *server) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		n.proc.kill()
		n.proc = nil
	}
}

func (n *server) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		n.proc.stop(20 * time.Second)
		n.proc = nil
	}
}

// freeze suspends the server's process until the returned function is called.
func (n *server) freeze() func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.proc
	if p == nil {
		return func() {}
	}
	p.pause()
	return p.resume
}

// part applies f to the routes of a node, in both directions.
func (s *servers) part(i int, f func(*Proxy) (undo func())) (undo func()) {
	var routes door
	for j, n := range s.nodes {
		if j == i {
			routes = append(routes, slices.Collect(maps.Values(n.routes))...)
		} else if p := n.routes[i]; p != nil {
			routes = append(routes, p)
		}
	}
	return routes.each(f)
}

func (s *servers) close() {
	for _, n := range s.nodes {
		n.kill()
		_ = n.disk.close() // left behind, it is in the way of nothing
		for _, p := range n.routes {
			p.Close()
		}
	}
	for _, release := range s.held {
		release()
	}
}

// addresses returns the addresses for clients.
func (s *servers) addresses() []string {
	var all []string
	for _, n := range s.nodes {
		all = append(all, address(n.client))
	}
	return all
}

// dialing are the connection options of all processes of a soak: reconnect soon, and
// through the proxies only.
var dialing = []nats.Option{nats.IgnoreDiscoveredServers(), nats.CustomReconnectDelay(func(int) time.Duration { return 50*time.Millisecond + rand.N(50*time.Millisecond) }),
	nats.Timeout(2 * time.Second), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(3)}

// connect returns a client connection of the soak itself. It reconnects without limit.
func connect(urls []string, name string) (*nats.Conn, error) {
	return nats.Connect(strings.Join(urls, ","), append(dialing[:len(dialing):len(dialing)], nats.Name(name), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
}

// awaitJetStream waits until a stream with as many replicas as there are servers can be
// created: until the cluster has a leader that knows them all.
func (s *servers) awaitJetStream(ctx context.Context, js natsjs.JetStream) error {
	const probe = "soak_probe"
	return poll(ctx, 50*time.Millisecond, func() error {
		once, done := context.WithTimeout(ctx, 2*time.Second)
		defer done()
		if _, err := js.CreateOrUpdateStream(once, natsjs.StreamConfig{Name: probe, Subjects: []string{probe}, Replicas: len(s.nodes), Storage: natsjs.MemoryStorage}); err != nil {
			return err
		}
		return js.DeleteStream(once, probe)
	})
}

// poll calls f until it returns nil. If ctx ends, it returns the last error of f.
func poll(ctx context.Context, every time.Duration, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		if !pause.For(ctx, every) {
			return err
		}
	}
}

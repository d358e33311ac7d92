package natstest

import (
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/nats-io/nats.go"
)

// Run starts a server that is closed when the test ends. Where cfg says
// nothing, or [natsd.RandomPort], it takes a port that is kept for the test until
// that ends, also while no server listens on it; and with JetStream, where cfg
// says nothing, a store directory of the test's own.
func Run(t testing.TB, cfg natsd.Config) *natsd.Server {
	t.Helper()
	if !cfg.InProcessOnly && (cfg.Port == natsd.RandomPort || cfg.Port == 0 && cfg.ConfigFile == "") {
		cfg.Port = hold(t)
	}
	if cfg.JetStream && cfg.StoreDir == "" {
		cfg.StoreDir = StoreDir(t)
	}
	srv, err := natsd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	return srv
}

// hold reserves a port for the time of a test.
func hold(t testing.TB) int {
	t.Helper()
	port, release, err := natsd.HoldPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// Restart closes a server, if the test has not done so, and starts another
// one with the same ports and the same store.
func Restart(t testing.TB, srv *natsd.Server) *natsd.Server {
	t.Helper()
	srv.Close()
	return Run(t, srv.Config())
}

// Conn connects over TCP, or in process if the server has no port. The
// connection reconnects for ever, at once, and is closed when the test ends.
func Conn(t testing.TB, srv *natsd.Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	if srv.ClientURL() == "" {
		opts = append([]nats.Option{srv.InProcess()}, opts...)
	}
	return connect(t, srv.ClientURL(), opts)
}

func connect(t testing.TB, url string, opts []nats.Option) *nats.Conn {
	t.Helper()
	all := []nats.Option{
		nats.Name(t.Name()),
		nats.Timeout(10 * time.Second),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(5 * time.Millisecond),
		nats.ReconnectJitter(5*time.Millisecond, 5*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default one prints
	}
	if d, ok := dialer(t); ok {
		all = append(all, nats.SetCustomDialer(d))
	}
	nc, err := nats.Connect(url, append(all, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

package worker_test

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// faraway dials a server of this machine as if it were on another one.
type faraway struct{}

func (faraway) Dial(network, addr string) (net.Conn, error) {
	conn, err := net.Dial(network, addr)
	return farConn{conn}, err
}

type farConn struct{ net.Conn }

func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4222} }

// State documents MUST be transmitted over an encrypted channel (AAIF, Security
// Considerations). A worker that would store checkpoints in clear over a network warns.
func TestAWorkerWarnsOfCheckpointsInClear(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	apply(t, jsOf(t, srv))
	ring, err := state.NewKeyring(state.Key{Secret: []byte(strings.Repeat("k", 32))})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*worker.Config)
		warns  bool
	}{
		"far away":            {func(*worker.Config) {}, true},
		"on this machine":     {func(c *worker.Config) { c.NATS.Options = nil }, false},
		"no durable lane":     {func(c *worker.Config) { c.Durable = worker.Off }, false},
		"the agents' keys":    {func(c *worker.Config) { c.Options.StateKeys = ring }, false},
		"the node's own keys": {func(c *worker.Config) { c.Node.Durable = &mesh.Durable{Create: true, Codec: state.Codec{Seal: ring}} }, false},
	} {
		var said natstest.Buffer
		cfg := config(srv, "agent.one")
		cfg.Durable, cfg.Logger = worker.On, slog.New(slog.NewTextHandler(&said, nil))
		cfg.NATS.Options = []nats.Option{nats.SetCustomDialer(faraway{})}
		c.change(&cfg)
		_, stop := start(t, cfg)
		stop()
		if got := strings.Count(said.String(), "checkpoints go over the network unencrypted"); (got == 1) != c.warns || got > 1 {
			t.Errorf("%s: warned %d times, want it %v:\n%s", name, got, c.warns, said.String())
		}
	}
}

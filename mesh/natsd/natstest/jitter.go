package natstest

import (
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// jitterEnv says for how long what a connection hears may be held back.
const jitterEnv = "AEEMESH_TEST_JITTER"

var jitter = sync.OnceValues(func() (time.Duration, error) {
	s := os.Getenv(jitterEnv)
	if s == "" {
		return 0, nil
	}
	return time.ParseDuration(s)
})

// late is a nats.CustomDialer whose connections hear late: every other time by
// up to most. What one connection hears keeps its order; what two of them hear
// does not, which on a quiet machine it does nearly always.
type late struct{ most time.Duration }

func dialer(t testing.TB) (late, bool) {
	t.Helper()
	most, err := jitter()
	if err != nil {
		t.Fatalf("%s: %v", jitterEnv, err)
	}
	return late{most}, most > 0
}

func (l late) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return &lateConn{conn, l.most}, nil
}

type lateConn struct {
	net.Conn
	most time.Duration
}

func (c *lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if rand.IntN(2) == 0 {
		time.Sleep(rand.N(c.most))
	}
	return n, err
}

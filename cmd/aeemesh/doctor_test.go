package main

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A connection without TLS to another machine causes a warning.
func TestLocalAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"": true, "127.0.0.1:4222": true, "[::1]:4222": true,
		"10.0.0.7:4222": false, "[2001:db8::1]:4222": false, "nats.example:4222": false, "4222": false,
	} {
		if got := local(addr); got != want {
			t.Errorf("%q: %v, want %v", addr, got, want)
		}
	}
}

// faraway dials a server of this machine as if it were on another one.
type faraway struct{}

func (faraway) Dial(network, addr string) (net.Conn, error) {
	conn, err := net.Dial(network, addr)
	return farConn{conn}, err
}

type farConn struct{ net.Conn }

func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4222} }

// AEE, "Envelope Integrity Without Signatures"; mutation M8 of the traceability review.
func TestDoctorWarnsOfPlaintextOverTheNetwork(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificates(t)
	plain, secure := natstest.Run(t, natsd.Config{}), natstest.Run(t, natsd.Config{TLS: &natsd.TLS{CertFile: cert, KeyFile: key}})
	for _, c := range []struct {
		name string
		srv  *natsd.Server
		opts []nats.Option
		want string
		hint bool
	}{
		{"here", plain, nil, "ok   connection", false},
		{"elsewhere", plain, []nats.Option{nats.SetCustomDialer(faraway{})}, "warn connection", true},
		{"elsewhere, by TLS", secure, []nats.Option{nats.SetCustomDialer(faraway{}), nats.RootCAs(ca)}, "ok   connection", false},
	} {
		var out bytes.Buffer
		noEnv := func(string) string { return "" }
		d := &doctor{app: newApp(nil, &out, &out, noEnv).App, conn: natstest.Conn(t, c.srv, c.opts...)}
		d.connection()
		if !strings.HasPrefix(out.String(), c.want) || strings.Contains(out.String(), "give the server a certificate") != c.hint || d.failed {
			t.Errorf("%s:\n%s", c.name, &out)
		}
	}
}

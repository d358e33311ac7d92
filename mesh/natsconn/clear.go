package natsconn

import (
	"net"

	"github.com/nats-io/nats.go"
)

// InClear reports whether what a connection carries goes over a network unencrypted: without TLS, to
// a server that is not on this machine. A connection that is lost at the moment is none.
func InClear(conn *nats.Conn) bool {
	_, err := conn.TLSConnectionState()
	return err != nil && !local(conn.ConnectedAddr())
}

// local reports whether an address is in this process or on this machine; an empty address is.
func local(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr == "" || addr == "pipe" // that of a net.Pipe
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

//go:build !linux

package natsd

import (
	"fmt"
	"net"
)

// HoldPort finds a free port of 127.0.0.1 for a server that is started later. On this
// system another process can take the port meanwhile; release does nothing.
func HoldPort() (port int, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, fmt.Errorf("hold a port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, func() {}, nil
}

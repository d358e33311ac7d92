//go:build !linux

package natstest

import (
	"net"
	"testing"
)

// hold finds a port that nobody listens on. Here nothing keeps others from taking
// it until a server listens on it, or between two of them.
func hold(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

package natstest

import (
	"syscall"
	"testing"
)

// hold reserves a port for the time of a test. A server that listens on it, and
// another one after that, find it free, while nobody else is given it: a socket is
// bound to it that does not listen, which the system takes into account where it
// chooses a port by itself.
func hold(t testing.TB) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("hold a port: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatalf("hold a port: %v", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatalf("hold a port: %v", err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatalf("hold a port: %v", err)
	}
	return addr.(*syscall.SockaddrInet4).Port
}

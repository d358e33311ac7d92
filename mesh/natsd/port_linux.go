package natsd

import (
	"fmt"
	"syscall"
)

// HoldPort finds a port of 127.0.0.1 for a server that is started later, or again
// and again: until release is called, the system gives it only to a process that asks for
// it by its number. On systems other than Linux it is free now, and release does nothing.
//
// A socket is bound to it that does not listen: the system takes that into account
// where it chooses a port by itself.
func HoldPort() (port int, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, fmt.Errorf("hold a port: %w", err)
	}
	if port, err = bind(fd); err != nil {
		_ = syscall.Close(fd)
		return 0, nil, fmt.Errorf("hold a port: %w", err)
	}
	return port, func() { _ = syscall.Close(fd) }, nil
}

func bind(fd int) (port int, err error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return addr.(*syscall.SockaddrInet4).Port, nil
}

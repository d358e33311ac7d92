package sdnotify_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/sdnotify"
)

// manager is a service manager's socket.
func manager(t *testing.T) (path string, heard func() string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Skip(err) // not on this system
	}
	t.Cleanup(func() { conn.Close(); os.RemoveAll(dir) })
	return path, func() string {
		buf := make([]byte, 4096)
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func TestTheServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	path, heard := manager(t)
	env := map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "42"}
	n := sdnotify.New(func(name string) string { return env[name] }, 42)
	if err := n.Tell(sdnotify.Ready, sdnotify.Status("serving %s\n", "agent.a")); err != nil {
		t.Fatal(err)
	}
	if got := heard(); got != "READY=1\nSTATUS=serving agent.a " {
		t.Errorf("%q", got)
	}
	if err := n.Tell(sdnotify.Stopping, sdnotify.Extend(3*time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := heard(); got != "STOPPING=1\nEXTEND_TIMEOUT_USEC=3000000" {
		t.Errorf("%q", got)
	}
	stop, looked := make(chan struct{}), make(chan struct{}, 64)
	ended := make(chan struct{})
	go func() { n.Watch(stop, func() { looked <- struct{}{} }); close(ended) }()
	for range 3 {
		<-looked
		if got := heard(); got != "WATCHDOG=1" {
			t.Errorf("%q", got)
		}
	}
	close(stop)
	<-ended
}

func TestWhereNobodyListensNothingIsTold(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"none":             {},
		"of another kind":  {"NOTIFY_SOCKET": "vsock:2:1234", "WATCHDOG_USEC": "1000"},
		"another's":        {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
		"a broken timeout": {"WATCHDOG_USEC": "soon"},
	} {
		n := sdnotify.New(func(v string) string { return env[v] }, 42)
		if err := n.Tell(sdnotify.Ready); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n.Watch(make(chan struct{}), func() { t.Errorf("%s: watched", name) })
	}
	var none sdnotify.Notifier
	if err := none.Tell(sdnotify.Ready); err != nil {
		t.Error(err)
	}
	gone := sdnotify.New(func(v string) string {
		if v == "NOTIFY_SOCKET" {
			return filepath.Join(t.TempDir(), "gone")
		}
		return ""
	}, 42)
	if err := gone.Tell(sdnotify.Ready); err == nil || !strings.HasPrefix(err.Error(), "tell the service manager: ") || errors.Unwrap(err) == nil {
		t.Errorf("a socket that is gone: %v", err)
	}
}

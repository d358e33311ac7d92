package sdnotify

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// The states that can be reported.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	alive    = "WATCHDOG=1"
)

// Notifier reports to one service manager. The zero value does nothing.
type Notifier struct {
	socket   string
	watchdog time.Duration
}

// New reads the variables that a service manager sets; env looks them up. pid
// is this process's: a watchdog may be meant for another process.
func New(env func(string) string, pid int) Notifier {
	n := Notifier{socket: env("NOTIFY_SOCKET")}
	if !strings.HasPrefix(n.socket, "/") && !strings.HasPrefix(n.socket, "@") {
		n.socket = "" // a kind of socket that is not supported, such as vsock
	}
	if owner := env("WATCHDOG_PID"); owner != "" && owner != strconv.Itoa(pid) {
		return n
	}
	if usec, err := strconv.ParseInt(env("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 && n.socket != "" {
		n.watchdog = time.Duration(usec) * time.Microsecond
	}
	return n
}

// Tell sends states, each NAME=VALUE.
func (n Notifier) Tell(states ...string) error {
	if n.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(strings.Join(states, "\n"))); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}

// Status is a text for people, on one line.
func Status(format string, args ...any) string {
	return "STATUS=" + strings.NewReplacer("\n", " ", "\r", " ").Replace(fmt.Sprintf(format, args...))
}

// Extend asks for more time to stop.
func Extend(d time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
}

// Watch reports to the watchdog that the process lives, twice per watchdog
// interval, each time after lives has returned, until stop is closed. If the
// process's locks are stuck, lives does not return, and the process is
// restarted. Without a watchdog Watch returns at once.
func (n Notifier) Watch(stop <-chan struct{}, lives func()) {
	if n.watchdog <= 0 {
		return
	}
	tick := time.NewTicker(n.watchdog / 2)
	defer tick.Stop()
	for {
		lives()
		_ = n.Tell(alive) // the next report may succeed
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

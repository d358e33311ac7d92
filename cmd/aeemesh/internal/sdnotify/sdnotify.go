package sdnotify

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// The states that are told.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	alive    = "WATCHDOG=1"
)

// Notifier tells one service manager. The zero value tells nobody.
type Notifier struct {
	socket   string
	watchdog time.Duration
}

// New reads the variables that a service manager sets; env looks them up. pid is
// this process's: a watchdog may be meant for another one.
func New(env func(string) string, pid int) Notifier {
	n := Notifier{socket: env("NOTIFY_SOCKET")}
	if !strings.HasPrefix(n.socket, "/") && !strings.HasPrefix(n.socket, "@") {
		n.socket = "" // of a kind that is none here, such as vsock
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

// Status is a word for people, on one line.
func Status(format string, args ...any) string {
	return "STATUS=" + strings.NewReplacer("\n", " ", "\r", " ").Replace(fmt.Sprintf(format, args...))
}

// Extend asks for time to stop in.
func Extend(d time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
}

// Watch tells the watchdog that the process lives, twice in its time, whenever
// lives has returned, until stop is closed. A process whose locks are stuck does
// not return from lives and is started again. Without a watchdog it returns at
// once.
func (n Notifier) Watch(stop <-chan struct{}, lives func()) {
	if n.watchdog <= 0 {
		return
	}
	tick := time.NewTicker(n.watchdog / 2)
	defer tick.Stop()
	for {
		lives()
		_ = n.Tell(alive) // the next one may come through
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

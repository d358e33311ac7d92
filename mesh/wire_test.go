package mesh_test

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/perms"
)

// wire remembers what connections ask a server for: every subject that is
// published to, and every one that is subscribed to. It reads the protocol as it
// goes over the wire, so that nothing is overlooked that a library does.
type wire struct {
	mu        sync.Mutex
	published map[string]bool
	heard     map[string]bool // "subject" or "subject queue"
}

func newWire() *wire { return &wire{published: map[string]bool{}, heard: map[string]bool{}} }

// Dial makes it a [nats.CustomDialer].
func (w *wire) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &wiredConn{Conn: conn, wire: w}, nil
}

func (w *wire) option() nats.Option { return nats.SetCustomDialer(w) }

type wiredConn struct {
	net.Conn
	wire *wire
	rest []byte // of a line that is not complete
	skip int    // bytes of a payload that are still to come
}

func (c *wiredConn) Write(p []byte) (int, error) {
	c.read(p)
	return c.Conn.Write(p)
}

func (c *wiredConn) read(p []byte) {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(p))
			c.skip, p = c.skip-n, p[n:]
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			c.rest = append(c.rest, p...)
			return
		}
		line := string(append(c.rest, p[:end]...))
		c.rest, p = nil, p[end+1:]
		c.line(strings.Fields(line))
	}
}

func (c *wiredConn) line(words []string) {
	if len(words) < 3 {
		return
	}
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	switch words[0] {
	case "PUB", "HPUB":
		c.wire.published[words[1]] = true
		n, _ := strconv.Atoi(words[len(words)-1])
		c.skip = n + len("\r\n")
	case "SUB":
		c.wire.heard[strings.Join(words[1:len(words)-1], " ")] = true
	}
}

// did reports whether something was published to a subject.
func (w *wire) did(subj string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.published[subj]
}

// didBelow reports whether something was published to a subject that begins so.
func (w *wire) didBelow(prefix string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for subj := range w.published {
		if strings.HasPrefix(subj, prefix) {
			return true
		}
	}
	return false
}

// needs returns, for each line of permissions, something that was done and that
// no other line allows: what a server refuses where this line is left out. A line
// without one is missing from the result.
func (w *wire) needs(p perms.Permissions) (publish, subscribe map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	alone := func(lines []string, done map[string]bool) map[string]string {
		out := map[string]string{}
		for subj := range done {
			by := ""
			for _, line := range lines {
				if !allows(line, subj) {
					continue
				}
				if by != "" {
					by = ""
					break
				}
				by = line
			}
			if by != "" {
				out[by] = subj
			}
		}
		return out
	}
	return alone(p.Publish, w.published), alone(p.Subscribe, w.heard)
}

// allows reports whether a line of permissions lets a subject pass. "subject
// queue" allows the queue group only.
func allows(line, subj string) bool {
	line, group, _ := strings.Cut(line, " ")
	subj, queue, _ := strings.Cut(subj, " ")
	if group != "" && group != queue {
		return false
	}
	pattern, tokens := strings.Split(line, "."), strings.Split(subj, ".")
	for i, want := range pattern {
		switch {
		case want == ">":
			return len(tokens) > i
		case i >= len(tokens) || want != "*" && want != tokens[i]:
			return false
		}
	}
	return len(pattern) == len(tokens)
}

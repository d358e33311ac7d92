package soak

import (
	"net"
	"sync"
	"time"
)

// A Proxy forwards connections from a process to a server, and can break them. Its
// address stays the same when the server restarts.
type Proxy struct {
	target string
	l      net.Listener
	wait   sync.WaitGroup

	mu      sync.Mutex
	state   proxyState
	changed chan struct{} // closed, and made anew, at each change
	conns   map[net.Conn]struct{}
	closed  bool
}

// proxyState counts the faults in force, so that the end of one fault does not undo
// another.
type proxyState struct {
	holds, cuts int
	delay       time.Duration // the sum of all delays
}

// NewProxy listens on a free port of 127.0.0.1 and forwards to target.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, l: l, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.wait.Go(p.accept)
	return p, nil
}

// Addr is the address to connect to, host:port.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Hold stops all traffic, like an unplugged network, until undo is called: connections
// stay, bytes wait, and neither side gets an error.
func (p *Proxy) Hold() (undo func()) {
	p.change(func(s *proxyState) { s.holds++ })
	return func() { p.change(func(s *proxyState) { s.holds-- }) }
}

// Cut resets all connections, and every new one, as if the server's machine were gone,
// until undo is called.
func (p *Proxy) Cut() (undo func()) {
	p.change(func(s *proxyState) { s.cuts++ })
	p.reset()
	return func() { p.change(func(s *proxyState) { s.cuts-- }) }
}

// Delay delays bytes by d in each direction, until undo is called.
func (p *Proxy) Delay(d time.Duration) (undo func()) {
	p.change(func(s *proxyState) { s.delay += d })
	return func() { p.change(func(s *proxyState) { s.delay -= d }) }
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.l.Close()
	p.Cut()
	p.wait.Wait()
}

func (p *Proxy) change(f func(*proxyState)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.state)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

// reset closes a connection so that the other side gets an error at once, and unread
// bytes are lost.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wait.Go(func() { p.serve(c) })
	}
}

// serve forwards one connection until either side closes it.
func (p *Proxy) serve(in net.Conn) {
	defer reset(in)
	ended := make(chan struct{}) // not closed before the connection is established
	if !p.keep(in) {
		return
	}
	defer p.drop(in)
	if !p.gate(ended) {
		return
	}
	out, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		return
	}
	defer reset(out)
	if !p.keep(out) {
		return
	}
	defer p.drop(out)
	var both sync.WaitGroup
	var once sync.Once
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			p.pump(way[1], way[0], ended)
			once.Do(func() { close(ended) })
			in.Close()
			out.Close()
		})
	}
	both.Wait()
}

// pump forwards one direction.
func (p *Proxy) pump(to, from net.Conn, ended <-chan struct{}) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.gate(ended) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// gate waits while traffic is held or delayed, and reports whether bytes may be
// forwarded.
func (p *Proxy) gate(ended <-chan struct{}) bool {
	waited := false
	for {
		p.mu.Lock()
		s, changed := p.state, p.changed
		p.mu.Unlock()
		if s.cuts > 0 {
			return false
		}
		if s.holds == 0 && (s.delay == 0 || waited) {
			return true
		}
		var late <-chan time.Time
		if s.holds == 0 {
			timer := time.NewTimer(s.delay)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-changed:
		case <-late:
			waited = true
		case <-ended:
			return false
		}
	}
}

// keep registers a connection, or refuses it while all are cut.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.state.cuts > 0 {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// A door is the set of proxies through which one process reaches every server.
type door []*Proxy

func newDoor(targets []string) (door, error) {
	var d door
	for _, t := range targets {
		p, err := NewProxy(t)
		if err != nil {
			d.close()
			return nil, err
		}
		d = append(d, p)
	}
	return d, nil
}

// each applies f to every proxy, and returns a function that undoes it.
func (d door) each(f func(*Proxy) (undo func())) (undo func()) {
	var all []func()
	for _, p := range d {
		all = append(all, f(p))
	}
	return func() {
		for _, u := range all {
			u()
		}
	}
}

func (d door) close() {
	for _, p := range d {
		p.Close()
	}
}

// urls returns the URLs that the process connects to.
func (d door) urls() []string {
	var all []string
	for _, p := range d {
		all = append(all, "nats://"+p.Addr())
	}
	return all
}

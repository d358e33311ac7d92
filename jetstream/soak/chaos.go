package soak

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
)

// chaos carries out the faults of the plan.
type chaos struct {
	servers *servers
	workers *workers
	client  door
	second  *second // nil: there is none
	lease   time.Duration
	late    time.Duration // see [Options].Late

	// begun is called when a fault strikes, ended when everything that it broke works
	// again.
	begun func(Strike)
	ended func(Strike)

	server sync.Mutex    // one server is broken at a time: a cluster of three survives no more
	room   chan struct{} // one place for each worker that may be broken at the same time
	there  chan struct{} // the same, of the second system
	far    sync.Mutex    // one at a time: the second system's server
	way    sync.Mutex    // one at a time: the receiver, or the way to it

	mu   sync.Mutex
	errs []error
}

// A Strike is a fault that was carried out.
type Strike struct {
	Fault
	At     time.Time `json:"at"`
	Ended  time.Time `json:"ended"`
	Victim string    `json:"victim,omitempty"` // the struck worker process: the owner in its records
	Run    string    `json:"run,omitempty"`    // the run that was at the point
	Missed bool      `json:"missed,omitempty"` // no worker reached the point in time: the fault struck at an arbitrary moment
}

// run carries out the faults, each some time after the one before it, and returns when
// everything that was broken works again.
func (c *chaos) run(ctx context.Context, faults []Fault) error {
	c.room = make(chan struct{}, max(1, len(c.workers.all)-1))
	if c.second != nil {
		c.there = make(chan struct{}, max(1, len(c.second.workers.all)-1))
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	for _, f := range faults {
		if !pause.For(ctx, f.After) {
			break
		}
		strike, ok := c.ready(ctx, f)
		if !ok {
			break
		}
		wait.Go(func() {
			if err := strike(); err != nil && ctx.Err() == nil {
				c.mu.Lock()
				c.errs = append(c.errs, err)
				c.mu.Unlock()
			}
		})
		c.mu.Lock()
		failed := len(c.errs) > 0
		c.mu.Unlock()
		if failed {
			break
		}
	}
	wait.Wait()
	return errors.Join(c.errs...)
}

// ready waits until the fault may strike its target, and returns the function that
// strikes.
func (c *chaos) ready(ctx context.Context, f Fault) (func() error, bool) {
	switch f.Kind.target() {
	case "client":
		return func() error { return c.network(ctx, f, c.client, Strike{Fault: f}, nil) }, true
	case "server":
		return held(&c.server, func() error { return c.breakServer(ctx, f, c.servers) })
	case "second server":
		return held(&c.far, func() error { return c.breakServer(ctx, f, c.second.servers) })
	case "receiver":
		return held(&c.way, func() error { return c.breakWorker(ctx, f, c.second.receiver) })
	case "way":
		return held(&c.way, func() error { return c.breakWay(ctx, f) })
	}
	room, workers := c.room, c.workers
	if f.Kind.target() == "second worker" {
		room, workers = c.there, c.second.workers
	}
	select {
	case room <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	return func() error {
		defer func() { <-room }()
		return c.breakWorker(ctx, f, workers)
	}, true
}

// held locks a mutex until the fault has ended.
func held(mu *sync.Mutex, strike func() error) (func() error, bool) {
	mu.Lock()
	return func() error {
		defer mu.Unlock()
		return strike()
	}, true
}

// patience is how long a fault waits for a worker to reach its point.
func (c *chaos) patience() time.Duration { return 2 * c.lease }

// arm waits until a worker reaches the strike's point, if it has one. It returns the worker that
// waits there; nil if none reached the point in time.
func (c *chaos) arm(ctx context.Context, s *Strike, ws *workers) *hit {
	if s.Point == "" {
		return nil
	}
	h, ok := ws.arm(ctx, s.Point, c.patience())
	if s.Missed = !ok; !ok {
		return nil
	}
	s.Run = h.run
	return &h
}

// breakWorker strikes the worker that reaches the point first, or the one that the plan
// names.
func (c *chaos) breakWorker(ctx context.Context, f Fault, ws *workers) error {
	s := Strike{Fault: f}
	var w *worker
	at := c.arm(ctx, &s, ws)
	if at != nil && at.w.busy.TryLock() {
		w = at.w
	} else if at != nil { // another fault is breaking this worker
		at.pass()
		at, s.Run, s.Missed = nil, "", true
	}
	for i := 0; w == nil; i++ {
		next := ws.all[(f.Target+i)%len(ws.all)]
		if next.busy.TryLock() {
			w = next
		} else if i > len(ws.all) && !pause.For(ctx, 10*time.Millisecond) {
			return nil
		}
	}
	defer w.busy.Unlock()
	for i, other := range ws.all {
		if other == w {
			s.Target = i
		}
	}
	p, owner := w.victim()
	if p == nil {
		return ws.start(ctx, w)
	}
	s.Victim = owner
	switch f.Kind.does() {
	case WorkerKill:
		c.strike(&s)
		p.kill()
		pause.For(ctx, f.For)
		err := ws.start(ctx, w)
		c.mended(s)
		return err
	case WorkerRestart:
		c.strike(&s)
		p.stop(10 * c.lease)
		pause.For(ctx, f.For)
		err := ws.start(ctx, w)
		c.mended(s)
		return err
	case WorkerStop, WorkerBlink:
		c.strike(&s)
		p.pause()
		if c.late == 0 {
			at.pass()
		}
		pause.For(ctx, f.For)
		p.resume()
		if at != nil && c.late > 0 {
			pause.For(ctx, c.late)
			at.pass()
		}
		c.mended(s)
		return nil
	}
	return c.network(ctx, f, w.door, s, at)
}

// network breaks the connections from one process to the servers.
func (c *chaos) network(ctx context.Context, f Fault, d door, s Strike, at *hit) error {
	c.strike(&s)
	broken := (*Proxy).Hold
	switch f.Kind.does() {
	case WorkerCut, ClientCut:
		broken = (*Proxy).Cut
	case WorkerDelay:
		broken = func(p *Proxy) func() { return p.Delay(f.For / 20) }
	}
	undo := d.each(broken)
	at.pass()
	pause.For(ctx, f.For)
	undo()
	c.mended(s)
	return nil
}

// breakWay breaks the network to the second system when a worker or the receiver reaches
// the point.
func (c *chaos) breakWay(ctx context.Context, f Fault) error {
	s := Strike{Fault: f}
	at := c.arm(ctx, &s, c.workersAt(f.Point))
	return c.network(ctx, f, c.second.way, s, at)
}

// workersAt returns the processes that pass a point.
func (c *chaos) workersAt(p Point) *workers {
	if slices.Contains(TakePoints, p) {
		return c.second.receiver
	}
	return c.workers
}

// breakServer strikes a server when a worker reaches the point. The worker continues once
// the server is broken.
func (c *chaos) breakServer(ctx context.Context, f Fault, servers *servers) error {
	s := Strike{Fault: f}
	at := c.arm(ctx, &s, c.workersAt(f.Point))
	c.strike(&s)
	defer func() { c.mended(s) }()
	n := servers.nodes[f.Target]
	switch f.Kind.does() {
	case ServerKill, NodeKill, ServerRestart, NodeRestart:
		if does := f.Kind.does(); does == ServerKill || does == NodeKill {
			n.kill()
		} else {
			n.stop()
		}
		at.pass()
		pause.For(ctx, f.For)
		return n.start(ctx, servers.l)
	}
	if f.Kind == ServerFull {
		return c.fillDisk(ctx, f, n, servers.l, at)
	}
	undo := func() {}
	switch f.Kind.does() {
	case ServerStop, NodeStop:
		undo = n.freeze()
	case NodePart:
		undo = c.servers.part(f.Target, (*Proxy).Hold)
	case NodeIsolate:
		routes, doors := c.servers.part(f.Target, (*Proxy).Hold), c.doors(f.Target).each((*Proxy).Hold)
		undo = func() { routes(); doors() }
	}
	at.pass()
	pause.For(ctx, f.For)
	undo()
	return nil
}

// fillDisk fills a server's disk, later makes room again, and restarts the server: one that
// could not write stays without JetStream until then.
func (c *chaos) fillDisk(ctx context.Context, f Fault, n *server, l *launcher, at *hit) error {
	free, err := n.disk.fill()
	at.pass()
	if err != nil {
		return err
	}
	pause.For(ctx, f.For)
	if err := free(); err != nil {
		return err
	}
	n.stop()
	return n.start(ctx, l)
}

// doors returns the proxies of all processes to one server.
func (c *chaos) doors(server int) door {
	d := door{c.client[server]}
	for _, w := range c.workers.all {
		d = append(d, w.door[server])
	}
	return d
}

func (c *chaos) strike(s *Strike) {
	s.At = time.Now()
	c.begun(*s)
}

func (c *chaos) mended(s Strike) {
	s.Ended = time.Now()
	c.ended(s)
}

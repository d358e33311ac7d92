package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A Point is a place in the commit order at which a fault can strike: just before or just
// after one of a worker's writes.
type Point string

// workerConfig is the configuration of a worker's process, or of the receiver's.
type workerConfig struct {
	URLs    []string      `json:"urls"`
	Name    string        `json:"name"`
	System  string        `json:"system"`
	Effects string        `json:"effects"` // the address of the effect log
	Lease   time.Duration `json:"lease"`
	Places  int           `json:"places"` // tasks at once
	Break   string        `json:"break,omitempty"`
	Self    []string      `json:"self"` // the command that runs a role

	Remote string `json:"remote,omitempty"` // the URL that runs may be transferred to
	CA     string `json:"ca,omitempty"`     // the certificate of that URL, PEM
	Listen string `json:"listen,omitempty"` // of the receiver: host:port
	Key    string `json:"key,omitempty"`    // of the receiver: the key of its certificate, PEM
}

// workers are the processes that run the tasks.
type workers struct {
	l    *launcher
	role string
	all  []*worker
	died func(error) // is called when a worker exits by itself

	mu    sync.Mutex
	token int
	armed map[string]chan hit // by token
	early int                 // processes that started without the durable lane
}

// A worker is a sequence of processes with the same name, each a restart of the one
// before.
type worker struct {
	name, conf string
	door       door

	busy sync.Mutex // held by the fault that breaks it

	mu    sync.Mutex
	proc  *process
	owner string // the name under which this process owns runs; "" until it reports one
}

// A hit is a worker that waits at a point.
type hit struct {
	w     *worker
	p     *process
	token string
	run   string
}

// pass lets the worker continue, if there is one.
func (h *hit) pass() {
	if h != nil {
		h.p.say("go " + h.token)
	}
}

// newWorkers prepares n workers of a role, whose names begin with prefix. It starts no
// process.
func newWorkers(l *launcher, role, prefix string, n int, targets []string, cfg workerConfig) (*workers, error) {
	ws := &workers{l: l, role: role, armed: map[string]chan hit{}}
	for i := range n {
		d, err := newDoor(targets)
		if err != nil {
			ws.close()
			return nil, err
		}
		w := &worker{name: fmt.Sprintf("%s%d", prefix, i+1), door: d}
		ws.all = append(ws.all, w)
		cfg.Name, cfg.URLs, cfg.Self = w.name, d.urls(), l.self
		text, err := json.Marshal(cfg)
		if err == nil {
			w.conf = filepath.Join(l.dir, w.name+".json")
			err = os.WriteFile(w.conf, text, 0o600)
		}
		if err != nil {
			ws.close()
			return nil, err
		}
	}
	return ws, nil
}

func (ws *workers) startAll(ctx context.Context) error {
	return together(len(ws.all), func(i int) error { return ws.start(ctx, ws.all[i]) })
}

// start starts another process.
func (ws *workers) start(ctx context.Context, w *worker) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	p, err := ws.l.start(ctx, w.name, ws.role, w.conf)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.proc, w.owner = p, ""
	w.mu.Unlock()
	if p.ready == readyEarly {
		ws.mu.Lock()
		ws.early++
		ws.mu.Unlock()
	}
	go ws.listen(w, p)
	return nil
}

// listen passes hits to the fault that armed the point; a hit that no fault waits for any
// more continues at once.
func (ws *workers) listen(w *worker, p *process) {
	for line := range p.lines {
		f := strings.Fields(line) // owner ID, or hit TOKEN POINT RUN
		switch {
		case len(f) == 2 && f[0] == "owner":
			w.mu.Lock()
			w.owner = f[1]
			w.mu.Unlock()
			continue
		case len(f) != 4 || f[0] != "hit":
			continue
		}
		h := hit{w: w, p: p, token: f[1], run: f[3]}
		ws.mu.Lock()
		to := ws.armed[h.token]
		delete(ws.armed, h.token)
		if to != nil {
			to <- h // buffered: there is one hit for each token. Under mu, so that arm does not give up meanwhile
		}
		ws.mu.Unlock()
		if to == nil {
			h.pass()
		}
	}
	if !p.ending.Load() {
		ws.died(fmt.Errorf("%s %s ended by itself: %s", ws.role, w.name, p.lastWords()))
	}
}

// arm waits until any worker reaches a point.
func (ws *workers) arm(ctx context.Context, at Point, patience time.Duration) (hit, bool) {
	got := make(chan hit, 1)
	ws.mu.Lock()
	ws.token++
	token := fmt.Sprint(ws.token)
	ws.armed[token] = got
	ws.mu.Unlock()
	for _, w := range ws.all {
		if p := w.process(); p != nil {
			p.say("arm " + token + " " + string(at))
		}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case h := <-got:
		return h, true
	case <-timer.C:
	case <-ctx.Done():
	}
	ws.mu.Lock()
	delete(ws.armed, token)
	ws.mu.Unlock()
	select {
	case h := <-got:
		return h, true
	default:
		return hit{}, false
	}
}

// process returns the running process, or nil.
func (w *worker) process() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proc == nil || !w.proc.alive() {
		return nil
	}
	return w.proc
}

// victim returns the running process, or nil, and the name under which it owns runs.
func (w *worker) victim() (*process, string) {
	p := w.process()
	w.mu.Lock()
	defer w.mu.Unlock()
	return p, w.owner
}

// living counts the workers with a running process.
func (ws *workers) living() (n int) {
	for _, w := range ws.all {
		if w.process() != nil {
			n++
		}
	}
	return n
}

func (ws *workers) close() {
	for _, w := range ws.all {
		if p := w.process(); p != nil {
			p.kill()
		}
		w.door.close()
	}
}

// drain asks all workers to exit, at the end of a soak.
func (ws *workers) drain(patience time.Duration) {
	_ = together(len(ws.all), func(i int) error {
		if p := ws.all[i].process(); p != nil {
			p.stop(patience)
		}
		return nil
	})
}

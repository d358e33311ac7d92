package learn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
)

// pool is this worker's view of a stored pool.
type pool struct {
	learner  *Learner
	id       poolID
	template *template.Template // the current one

	mu      sync.Mutex
	queue   []change
	size    int // bytes of the queue, and of the changes that are being stored
	writing bool
	closed  bool
	timer   *time.Timer
	view    *evolve.View
	read    time.Time       // when view was read
	loading <-chan struct{} // the first read; nil: it has not begun, or has ended
	late    <-chan struct{} // a change that [pool.try] no longer waits for; nil: none

	samplers map[string]*evolve.Sampler // of the values to judge, by key

	out     atomic.Pointer[OptOuts] // read after known
	damaged atomic.Bool             // the stored pool cannot be decoded

	// The following fields belong to the only goroutine that writes.
	known    *evolve.Pool
	revision uint64
	there    bool // the store has the pool

	waits bool // clusters wait for the names of capabilities; belongs to [Learner.Run]
}

// A change is a modification of the pool. apply reports whether it has changed anything. If another
// worker has stored the pool meanwhile, apply is called again on the new state.
type change struct {
	apply func(p *evolve.Pool, now time.Time) bool
	from  string        // the client whose payload it comes from; "": none
	size  int           // bytes of its texts and vectors
	plain bool          // it may wait for further changes
	again bool          // the pool is read again first: another worker may have changed it
	done  chan struct{} // closed when the change is stored or dropped; may be nil
}

const (
	maxQueue  = 4096             // most changes in the queue
	maxBytes  = 64 << 20         // the size at which it is full: a vector has up to 16 KiB
	plainWait = time.Second      // how long plain changes wait for further ones
	fresh     = 5 * time.Second  // how old a view may become before it is read again
	ioTimeout = 5 * time.Second  // of one request to the store
	retryWait = 2 * time.Second  // after a failure of the store
	claimFor  = 10 * time.Minute // how long one worker may take to make a key from a cluster
	maxTries  = 64               // bounds the swaps that fail because of other workers' changes
	tryFor    = 2 * ioTimeout    // how long one pool may delay the others of an agent
)

// submit queues a change. If the queue is half full it drops plain changes, and if it is full all. The
// bytes bound what comes from clients' payloads only: the other changes are few, and say whether the pool is stored.
func (p *pool) submit(c change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.full() && (c.from != "" || len(p.queue) >= maxQueue) || c.plain && len(p.queue) >= maxQueue/2 {
		if c.done != nil {
			close(c.done)
		}
		return
	}
	p.queue, p.size = append(p.queue, c), p.size+c.size
	switch {
	case p.writing:
	case !c.plain:
		p.start()
	case p.timer == nil:
		p.timer = time.AfterFunc(plainWait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !p.writing && len(p.queue) > 0 {
				p.start()
			}
		})
	}
}

// full reports whether no further change fits into the queue; p.mu is held.
func (p *pool) full() bool { return len(p.queue) >= maxQueue || p.size >= maxBytes }

// start starts the writing goroutine; p.mu is held.
func (p *pool) start() {
	p.writing = true
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	go p.write()
}

// write stores the queued changes until the queue is empty.
func (p *pool) write() {
	size := 0 // of the batch
	for {
		p.mu.Lock()
		batch := p.queue
		p.queue, p.size = nil, p.size-size // the last one has ended
		size = p.size
		if len(batch) == 0 {
			p.writing = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		for {
			err := p.swap(batch)
			if err == nil {
				break
			}
			p.log().Warn("the pool cannot be read or stored for now", "payloads", payloads(batch), "err", err)
			time.Sleep(retryWait)
			p.mu.Lock()
			over := p.closed || len(p.queue) >= maxQueue
			p.mu.Unlock()
			if over {
				if n := payloads(batch); n > 0 {
					p.log().Error("what was learned is lost", "payloads", n, "err", err)
				}
				break
			}
		}
		for _, c := range batch {
			if c.done != nil {
				close(c.done)
			}
		}
	}
}

// payloads counts the changes that come from clients' payloads. The others are made again later.
func payloads(batch []change) int {
	n := 0
	for _, c := range batch {
		if c.from != "" {
			n++
		}
	}
	return n
}

// swap applies changes to the stored pool.
func (p *pool) swap(batch []change) error {
	store := p.learner.store.Load()
	if store == nil {
		return nil
	}
	for _, c := range batch {
		if c.again {
			p.known = nil
		}
	}
	for range maxTries {
		if p.known == nil {
			if err := p.load(*store); err != nil {
				return err
			}
		}
		now := p.learner.cfg.Now()
		allowed := slices.DeleteFunc(slices.Clone(batch), func(c change) bool { return c.from != "" && p.out.Load().Has(c.from) })
		if !p.there && payloads(allowed) > 0 { // store it empty first: an opt-out needs a stored pool
			if err := p.put(*store, now); err != nil && !errors.Is(err, jetstream.ErrChanged) {
				return err
			}
			p.known = nil
			continue
		}
		changed := false
		for _, c := range allowed {
			changed = c.apply(p.known, now) || changed
		}
		if changed {
			err := p.put(*store, now)
			if errors.Is(err, jetstream.ErrChanged) {
				continue
			}
			if err != nil {
				return err
			}
		}
		p.publish()
		return nil
	}
	return errors.New("other workers were faster each time")
}

// put stores the known state. It fails if another worker has stored the pool meanwhile.
func (p *pool) put(store Pools, now time.Time) error {
	raw, err := p.known.Encode(now)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
		defer cancel()
		p.revision, err = store.Swap(ctx, p.learner.cfg.Entity, PoolID(p.id.scenario, p.id.cohort), raw, p.revision)
	}
	if err != nil {
		p.known = nil // it has changes that are not stored
	}
	return err
}

// load reads the stored pool, and then the opt-outs. An opt-out is written in the opposite order:
// first the list, then each pool, even one without the client. So a worker that has not read the
// opt-out has an older pool, and cannot store its changes.
func (p *pool) load(store Pools) error {
	ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
	defer cancel()
	raw, revision, err := store.Get(ctx, p.learner.cfg.Entity, PoolID(p.id.scenario, p.id.cohort))
	if err != nil {
		return err
	}
	cfg, name := p.learner.cfg.Rules, p.learner.cfg.Embedder.Name()
	var e *evolve.Pool
	if raw == nil {
		e, err = evolve.New(cfg, name)
	} else {
		e, err = evolve.Decode(raw, cfg)
	}
	p.damaged.Store(err != nil)
	if err != nil {
		return err
	}
	e.UseEmbedder(name, p.learner.cfg.Now())
	out, err := p.learner.optOuts(ctx, store)
	if err != nil {
		return err
	}
	p.out.Store(out)
	p.known, p.revision, p.there = e, revision, raw != nil
	return nil
}

// publish makes the stored state visible to readers.
func (p *pool) publish() {
	view := p.known.View()
	if len(p.known.Ripe(p.learner.cfg.Now())) > 0 && p.learner.cfg.Sensitive.Ready() {
		pause.Wake(p.learner.kick)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view, p.read = view, p.learner.cfg.Now()
}

// seen returns the view. An old view is read again in the background. If there is none yet, seen
// waits for the first one.
func (p *pool) seen(ctx context.Context) *evolve.View {
	now := p.learner.cfg.Now()
	p.mu.Lock()
	view, old := p.view, now.Sub(p.read) > fresh
	var done chan struct{}
	if old {
		p.read, done = now, make(chan struct{}) // one at a time
		if view == nil {
			p.loading = p.patient(done)
		}
	}
	loading := p.loading
	p.mu.Unlock()
	if old {
		p.submit(change{done: done, again: true, apply: nothing})
	}
	if view != nil || loading == nil {
		return view
	}
	select {
	case <-loading:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loading == loading {
		p.loading = nil
	}
	return p.view
}

func nothing(*evolve.Pool, time.Time) bool { return false }

// do submits one change and waits until it is stored or dropped, or until ctx ends.
func (p *pool) do(ctx context.Context, c change) {
	c.done = make(chan struct{})
	p.submit(c)
	select {
	case <-c.done:
	case <-ctx.Done():
	}
}

// errLate is the error of a change that was not stored in time.
var errLate = errors.New("the pool cannot be read or stored for now")

// try is do with a time limit, for a goroutine that serves several pools. It fails after tryFor.
// Later calls fail at once until that change is stored or dropped, so that a pool that cannot be
// read or stored does not delay the others.
func (p *pool) try(ctx context.Context, c change) error {
	p.mu.Lock()
	late := p.late
	p.mu.Unlock()
	if late != nil {
		select {
		case <-late:
		default:
			return errLate
		}
	}
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	c.done = make(chan struct{})
	p.submit(c)
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = c.done
	return errLate
}

// drain stores the queued changes before the worker ends.
func (p *pool) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), p.learner.cfg.Patience)
	defer cancel()
	p.do(ctx, change{apply: nothing})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

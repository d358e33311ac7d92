package holders

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh/internal/probe"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/internal/watch"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

const (
	// holderAgain is the pause before the second probe of a holder that has no responder. It is
	// longer than a guardian's pause. A guardian that is wrong does no harm, but a sender whose
	// holder seems dead may send the task again.
	holderAgain = 500 * time.Millisecond
	// holderFar is that pause for a holder on another server. Servers that lost the connection to
	// each other reconnect after a second; until then neither knows the other's clients.
	holderFar = 2 * time.Second
	// maxHolders bounds the workers that a node watches. Tasks with others wait for their
	// deadline.
	maxHolders = 4096
)

// ErrDied ends the wait for a task whose holder is dead.
var ErrDied = errors.New("the worker that had the task is gone")

// Config configures a [Watch].
type Config struct {
	Conn   *nats.Conn
	Prober *probe.Prober
	Fail   func(x *rpc.Exchange, err error) // ends the wait of an exchange
}

// New makes a watch of no holders.
func New(cfg Config) *Watch { return &Watch{cfg: cfg} }

// Watched returns how many holders are watched; -1: no goroutine runs to watch any.
func (hs *Watch) Watched() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.round == nil {
		return -1
	}
	return hs.round.watch.Len()
}

// Watch watches the workers that this node waits for.
type Watch struct {
	cfg Config

	mu      sync.Mutex
	waiting map[string]map[*rpc.Exchange]struct{} // by the holder's ping subject
	round   *holderRound                          // nil: no holder is watched
	denied  map[string]bool                       // services that this user may not ping
}

// holderRound is a time during which holders are watched.
type holderRound struct {
	watch  *watch.Watch
	caller string // see [probe.Prober]
	stop   context.CancelFunc
	done   chan struct{}
}

// Await returns the next message to an exchange that is not a holder's. task is the id of
// the task that the exchange is about, "" if the sender does not know it. with is the
// ping subject of the holder that is watched for the exchange. told, if not nil, is called
// when a holder is watched, and when a holder has delegated the task.
func (hs *Watch) Await(ctx context.Context, x *rpc.Exchange, task string, with *string, told func()) (*nats.Msg, error) {
	for {
		msg, err := x.Wait(ctx)
		if err != nil {
			return nil, err
		}
		h, is := Of(msg)
		if !is {
			return msg, nil
		}
		if x.Reused() && msg.Header.Get(wire.HeaderTask) != task {
			continue // the holder of an earlier task
		}
		hs.Leave(*with, x)
		*with = hs.join(h, x)
		if told != nil && (*with != "" || msg.Header.Get(wire.HeaderHolder) == None) {
			told()
		}
	}
}

// join watches a holder for an exchange, and returns the holder's ping subject for leave;
// "" if the holder is not watched.
func (hs *Watch) join(h Holder, x *rpc.Exchange) string {
	if h.ping == "" {
		return ""
	}
	conn := hs.cfg.Conn
	again := holderAgain
	if h.server != conn.ConnectedServerId() {
		again = holderFar
	}
	hs.cfg.Prober.Steady() // a later reconnect is noticed
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.denied[serviceOf(h.ping)] {
		return ""
	}
	if hs.round == nil {
		hs.begin()
	}
	if !hs.round.watch.Add(h.ping, probe.Every, again+h.back) {
		return ""
	}
	all := hs.waiting[h.ping]
	if all == nil {
		all = map[*rpc.Exchange]struct{}{}
		hs.waiting[h.ping] = all
	}
	all[x] = struct{}{}
	return h.ping
}

// serviceOf returns a ping subject without the instance.
func serviceOf(ping string) string { return ping[:strings.LastIndexByte(ping, '.')+1] }

// begin begins to watch. hs.mu is held.
func (hs *Watch) begin() {
	if hs.waiting == nil {
		hs.waiting, hs.denied = map[string]map[*rpc.Exchange]struct{}{}, map[string]bool{}
	}
	ctx, stop := context.WithCancel(context.Background())
	round := &holderRound{stop: stop, done: make(chan struct{})}
	round.watch = watch.New(watch.Config{
		Probe: func(ping string, again bool) { hs.probe(round, ping, again) }, Dead: hs.dead, Steady: hs.cfg.Prober.Steady,
		Wait: probe.Wait, Rate: probe.Rate, Most: maxHolders,
	})
	round.caller = hs.cfg.Prober.Join(round.watch.Missing)
	go func() {
		defer close(round.done)
		defer hs.cfg.Prober.Leave(round.caller)
		round.watch.Run(ctx)
	}()
	hs.round = round
}

// Leave ends the watch of a holder for an exchange; with ping "" it does nothing. The last
// leave ends the goroutine, and returns when it has ended.
func (hs *Watch) Leave(ping string, x *rpc.Exchange) {
	if ping == "" {
		return
	}
	var over *holderRound
	hs.mu.Lock()
	all := hs.waiting[ping]
	delete(all, x)
	if len(all) == 0 {
		delete(hs.waiting, ping)
		hs.round.watch.Remove(ping)
	}
	if len(hs.waiting) == 0 {
		over, hs.round = hs.round, nil
	}
	hs.mu.Unlock()
	if over != nil {
		over.stop()
		<-over.done
	}
}

// probe probes a holder. One that this NATS user has no permission to ping is not probed
// again, because the server logs each attempt.
func (hs *Watch) probe(round *holderRound, ping string, again bool) {
	if _, denied := denial.Why(hs.cfg.Conn, func(d denial.Denial) bool { return d.Is(denial.Publish, ping) }); denied {
		hs.mu.Lock()
		defer hs.mu.Unlock()
		hs.denied[serviceOf(ping)] = true
		round.watch.Remove(ping)
		return
	}
	hs.cfg.Prober.Send(round.caller, ping, ping, again)
}

// dead ends the exchanges that wait for a holder.
func (hs *Watch) dead(_ context.Context, ping string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for x := range hs.waiting[ping] {
		hs.cfg.Fail(x, ErrDied)
	}
}

// Died returns the error for the sender of a task whose holder is dead.
func Died(entity string) *envelope.Error {
	return envelope.Errorf(envelope.CodeUnavailable, "the worker of %s that had the task is gone; it may have begun", entity).WithCause(ErrDied)
}

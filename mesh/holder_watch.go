package mesh

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/internal/watch"
)

// A node watches the holders of the live tasks that it waits for. It pings the own subject
// of each holder, as a guardian does (guardian.go), and ends the wait when the holder is
// dead. One probe serves all tasks with that holder. No goroutine runs while the node
// waits for no task whose holder has named itself.

const (
	// holderAgain is the pause before the second probe of a holder that has no responder.
	// It is longer than a guardian's pause. A guardian that is wrong does no harm, but a
	// sender that believes its holder dead may send the task again.
	holderAgain = 500 * time.Millisecond
	// holderFar is that pause for a holder on another server. Servers that lost the
	// connection to each other reconnect after a second; until then they do not know each
	// other's clients.
	holderFar = 2 * time.Second
	// maxHolders bounds the workers that a node watches. Tasks with others wait for their
	// deadline.
	maxHolders = 4096
	// probeRate bounds the probes that a node or a guardian sends in a second.
	probeRate = 500
)

// errHolderDied ends the wait for a task whose holder is dead.
var errHolderDied = errors.New("the worker that had the task is gone")

// holders are the workers that this node waits for.
type holders struct {
	node *Node

	mu      sync.Mutex
	waiting map[string]map[*rpc.Exchange]struct{} // by the holder's ping subject
	round   *holderRound                          // nil: no holder is watched
	denied  map[string]bool                       // services that this user may not ping
}

// holderRound is a time during which holders are watched.
type holderRound struct {
	watch  *watch.Watch
	caller string // see prober
	stop   context.CancelFunc
	done   chan struct{}
}

// await returns the next message to an exchange that is not a holder's. task is the id of
// the task that the exchange is about, "" if the sender does not know it. with is the
// ping subject of the holder that is watched for the exchange.
func (n *Node) await(ctx context.Context, x *rpc.Exchange, task string, with *string) (*nats.Msg, error) {
	for {
		msg, err := x.Wait(ctx)
		if err != nil {
			return nil, err
		}
		h, is := holderOf(msg)
		if !is {
			return msg, nil
		}
		if x.Reused() && msg.Header.Get(HeaderTask) != task {
			continue // the holder of an earlier task
		}
		n.holders.leave(*with, x)
		*with = n.holders.join(h, x)
	}
}

// join watches a holder for an exchange, and returns the holder's ping subject for leave;
// "" if the holder is not watched.
func (hs *holders) join(h holder, x *rpc.Exchange) string {
	if h.ping == "" {
		return ""
	}
	conn := hs.node.conn
	again := holderAgain
	if h.server != conn.ConnectedServerId() {
		again = holderFar
	}
	hs.node.steady.look()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.denied[serviceOf(h.ping)] {
		return ""
	}
	if hs.round == nil {
		hs.begin()
	}
	if !hs.round.watch.Add(h.ping, probeEvery, again+h.back) {
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
func (hs *holders) begin() {
	if hs.waiting == nil {
		hs.waiting, hs.denied = map[string]map[*rpc.Exchange]struct{}{}, map[string]bool{}
	}
	ctx, stop := context.WithCancel(context.Background())
	round := &holderRound{stop: stop, done: make(chan struct{})}
	round.watch = watch.New(watch.Config{
		Probe: func(ping string, again bool) { hs.probe(round, ping, again) }, Dead: hs.dead, Steady: hs.node.steady.look,
		Wait: probeWait, Rate: probeRate, Most: maxHolders,
	})
	round.caller = hs.node.prober.join(round.watch.Missing)
	go func() {
		defer close(round.done)
		defer hs.node.prober.leave(round.caller)
		round.watch.Run(ctx)
	}()
	hs.round = round
}

// leave ends the watch of a holder for an exchange; with ping "" it does nothing. The last
// leave ends the goroutine, and returns when it has ended.
func (hs *holders) leave(ping string, x *rpc.Exchange) {
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
func (hs *holders) probe(round *holderRound, ping string, again bool) {
	if err := hs.node.conn.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+ping+`"`) {
		hs.mu.Lock()
		defer hs.mu.Unlock()
		hs.denied[serviceOf(ping)] = true
		round.watch.Remove(ping)
		return
	}
	hs.node.prober.send(round.caller, ping, ping, again)
}

// dead ends the exchanges that wait for a holder.
func (hs *holders) dead(_ context.Context, ping string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for x := range hs.waiting[ping] {
		hs.node.replies.Fail(x, errHolderDied)
	}
}

// ping pings an instance on the subject that only this instance subscribes to. It fails
// with nats.ErrNoResponders if the instance's process is not connected.
func (n *Node) ping(ctx context.Context, subject string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := n.conn.RequestWithContext(ctx, subject, []byte(probeBody))
	return err
}

// steady knows since when this process has been connected without a reconnect.
type steady struct {
	conn *nats.Conn

	mu         sync.Mutex
	reconnects uint64
	since      time.Time // when a reconnect was noticed
}

// look reports whether this process has been connected for more than steadyFor.
func (s *steady) look() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.conn.Stats().Reconnects; now != s.reconnects {
		s.reconnects, s.since = now, time.Now()
	}
	return s.conn.IsConnected() && time.Since(s.since) > steadyFor
}

// holderDied returns the error for the sender of a task whose holder is dead.
func holderDied(entity string) *envelope.Error {
	return envelope.Errorf(envelope.CodeUnavailable, "the worker of %s that had the task is gone; it may have begun", entity).WithCause(errHolderDied)
}

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

// A node watches the holders of the live tasks that it waits for: it requests each one's
// own ping subject, as a guardian does (guardian.go), and ends the wait when the holder is
// dead. One probe serves all tasks with that holder, and nothing runs while no task that
// takes longer is waited for.

const (
	// holderAgain is the pause before the second probe of a holder that has no responder.
	// It is longer than a guardian's, which can be wrong without harm: a sender that is
	// told of a death sends its task again.
	holderAgain = 500 * time.Millisecond
	// holderFar is that of one on another server: servers that lost the connection to one
	// another connect again after a second, and know nothing of each other's clients until
	// then.
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
	round   *holderRound                          // nil: nothing is waited for
	denied  map[string]bool                       // services that this user may not ping
}

// holderRound is a time during which holders are watched.
type holderRound struct {
	watch *watch.Watch
	stop  context.CancelFunc
	done  chan struct{}
}

// await returns the next message to an exchange that is not a holder's. task is the id of
// the task that the exchange is about, "" where the sender does not know it. with is the
// holder that is watched for the exchange.
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
			continue // an earlier task's
		}
		n.holders.leave(*with, x)
		*with = n.holders.join(h, x)
	}
}

// join watches a holder for an exchange, and returns its name for leave; "" where it is not
// watched.
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
	if hs.denied[service(h.ping)] {
		return ""
	}
	if hs.round == nil {
		hs.begin()
	}
	if !hs.round.watch.Add(h.ping, again+h.back) {
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

// service is a ping subject without the instance.
func service(ping string) string { return ping[:strings.LastIndexByte(ping, '.')+1] }

// begin begins to watch. hs.mu is held.
func (hs *holders) begin() {
	if hs.waiting == nil {
		hs.waiting, hs.denied = map[string]map[*rpc.Exchange]struct{}{}, map[string]bool{}
	}
	ctx, stop := context.WithCancel(context.Background())
	round := &holderRound{stop: stop, done: make(chan struct{})}
	round.watch = watch.New(watch.Config{Probe: hs.probe, Dead: hs.dead, Steady: hs.node.steady.look, Every: probeEvery, Rate: probeRate, Most: maxHolders})
	go func() {
		defer close(round.done)
		round.watch.Run(ctx)
	}()
	hs.round = round
}

// leave ends the watch over a holder for an exchange; "" is none. The last one to leave
// waits until nothing runs any more.
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

// probe reports whether a holder is there. One that this user may not ask counts as there,
// and is not asked again: each question would be a line in the server's log.
func (hs *holders) probe(ctx context.Context, ping string) bool {
	conn := hs.node.conn
	before := conn.LastError()
	err := hs.node.ping(ctx, ping, probeWait)
	if now := conn.LastError(); err != nil && now != before && errors.Is(now, nats.ErrPermissionViolation) && strings.Contains(now.Error(), `"`+ping+`"`) {
		hs.mu.Lock()
		defer hs.mu.Unlock()
		hs.denied[service(ping)] = true
		if hs.round != nil {
			hs.round.watch.Remove(ping)
		}
		return true
	}
	return !errors.Is(err, nats.ErrNoResponders)
}

// dead ends the exchanges that wait for a holder.
func (hs *holders) dead(_ context.Context, ping string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for x := range hs.waiting[ping] {
		hs.node.replies.Fail(x, errHolderDied)
	}
}

// ping asks for a sign of life on a subject that one instance listens to. It fails with
// nats.ErrNoResponders where its process is not connected.
func (n *Node) ping(ctx context.Context, subject string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := n.conn.RequestWithContext(ctx, subject, []byte(probeBody))
	return err
}

// steady tells for how long this process has been connected.
type steady struct {
	conn *nats.Conn

	mu         sync.Mutex
	reconnects uint64
	since      time.Time // when a reconnect was noticed
}

// look reports whether this process has been connected for a while.
func (s *steady) look() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.conn.Stats().Reconnects; now != s.reconnects {
		s.reconnects, s.since = now, time.Now()
	}
	return s.conn.IsConnected() && time.Since(s.since) > steadyFor
}

// holderDied is what the sender of a task gets whose holder is dead.
func holderDied(entity string) *envelope.Error {
	return envelope.Errorf(envelope.CodeUnavailable, "the worker of %s that had the task is gone; it may have begun", entity).WithCause(errHolderDied)
}

package mesh

import (
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// A prober sends the probes of a node, and hears which of them found no responder. All
// probes of the node share one subscription, which begins with the first.
//
// The reply subject of a probe names the worker. So a worker that is probed a thousand
// times costs the server two reply subjects.
type prober struct {
	conn *nats.Conn

	mu      sync.Mutex
	sub     *nats.Subscription
	prefix  string                 // of the reply subjects, with the last dot
	callers map[string]noResponder // by the first token of their reply subjects
	next    uint64
}

// probeBody is the body of a ping that asks whether the worker is connected, and is
// answered without a body. watchBody is that of one that no worker answers: only "no
// responders" counts. A worker of an earlier release answers it like any ping.
const (
	probeBody = "probe"
	watchBody = "watch"
)

// noResponder is called for a probe of a worker that found no responder. again is whether
// it was the second.
type noResponder func(worker string, again bool)

// The second probe of a worker has a reply subject of its own, so that its answer is not
// taken for that of the first.
const firstProbe, secondProbe = "1", "2"

// join returns the token of a caller, for send and leave.
func (p *prober) join(f noResponder) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.callers == nil {
		p.callers = map[string]noResponder{}
	}
	p.next++
	caller := strconv.FormatUint(p.next, 36)
	p.callers[caller] = f
	return caller
}

func (p *prober) leave(caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.callers, caller)
}

// send probes a worker on its ping subject. A probe that cannot be sent is silent.
func (p *prober) send(caller, worker, ping string, again bool) {
	prefix, err := p.subscribed()
	if err != nil {
		return
	}
	which := firstProbe
	if again {
		which = secondProbe
	}
	_ = p.conn.PublishRequest(ping, prefix+caller+"."+which+"."+worker, []byte(watchBody))
}

// subscribed returns the prefix of the reply subjects.
func (p *prober) subscribed() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sub == nil || !p.sub.IsValid() {
		prefix := p.conn.NewInbox() + "."
		sub, err := p.conn.Subscribe(prefix+">", p.answered)
		if err != nil {
			return "", err
		}
		p.sub, p.prefix = sub, prefix
	}
	return p.prefix, nil
}

// answered takes the answer to a probe, of which only the server's counts.
func (p *prober) answered(msg *nats.Msg) {
	if len(msg.Data) > 0 || msg.Header.Get("Status") != "503" {
		return
	}
	p.mu.Lock()
	f := strings.SplitN(strings.TrimPrefix(msg.Subject, p.prefix), ".", 3)
	absent := p.callers[f[0]]
	p.mu.Unlock()
	if absent != nil && len(f) == 3 {
		absent(f[2], f[1] == secondProbe)
	}
}

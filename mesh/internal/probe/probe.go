package probe

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/pattern"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/internal/listen"
)

const (
	// Every is the time between two probes of a worker, if it is not watched seldom.
	Every = 200 * time.Millisecond
	// Wait is how soon the server answers the second probe of a worker that is gone.
	Wait = 300 * time.Millisecond
	// Rate bounds the probes that one watch sends in a second.
	Rate = 500
	// aliveWait is how long a worker may take to answer a ping.
	aliveWait = time.Second
)

// PingBody is the body of a ping that a worker answers without a body. WatchBody is the body of a
// probe, which no worker answers: only the server's "no responders" counts. A worker of an earlier
// release answers it like any ping.
const (
	PingBody  = "probe"
	WatchBody = "watch"
)

// A Prober sends the probes of one connection, and receives the server's "no responders". All
// probes share one subscription, which begins with the first. Its methods may be called from many
// goroutines.
//
// The reply subject of a probe names the worker. So a worker that is probed a thousand
// times costs the server two reply subjects.
type Prober struct {
	conn   *nats.Conn
	secret [32]byte // of the tokens in reply subjects

	mu      sync.Mutex
	sub     *nats.Subscription
	prefix  string                 // of the reply subjects, with the last dot
	callers map[string]noResponder // by their token in reply subjects
	next    uint64

	steadiness steadiness
}

// noResponder is called for a probe of a worker that found no responder. again reports whether it
// was the second probe.
type noResponder func(worker string, again bool)

// The second probe of a worker has a reply subject of its own, so that its answer is not
// taken for that of the first.
const firstProbe, secondProbe = "1", "2"

var probers listen.PerConn[Prober]

// Of returns the Prober of a connection, which all its nodes share.
func Of(conn *nats.Conn) *Prober { return probers.Of(conn, New) }

// New returns a Prober on a connection. It does no I/O.
func New(conn *nats.Conn) *Prober {
	p := &Prober{conn: conn, callers: map[string]noResponder{}}
	_, _ = rand.Read(p.secret[:]) // never fails
	return p
}

// InstanceID matches the instance ids of workers.
var InstanceID = pattern.Of(`^[A-Za-z0-9]{1,64}$`)

// Subject returns the subject on which one instance of an entity alone is pinged.
func Subject(entity, instance string) (string, error) {
	return micro.ControlSubject(micro.PingVerb, subject.ServiceName(entity), instance)
}

// Ping pings an instance of an entity. It fails with nats.ErrNoResponders if the
// instance's process is not connected, and with context.DeadlineExceeded if nothing answers
// within a second.
func (p *Prober) Ping(ctx context.Context, entity, instance string) error {
	to, err := Subject(entity, instance)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, aliveWait)
	defer cancel()
	_, err = p.conn.RequestWithContext(ctx, to, []byte(PingBody))
	return err
}

// Join returns the token of a caller, for Send and Leave. absent is called for each probe of this
// caller that found no responder; again reports whether it was the second probe.
func (p *Prober) Join(absent func(worker string, again bool)) (caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	caller = strconv.FormatUint(p.next, 36)
	p.callers[caller] = absent
	return caller
}

// Leave ends the calls for a caller.
func (p *Prober) Leave(caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.callers, caller)
}

// Send probes a worker on its ping subject. It reports no error: a probe that cannot be sent
// counts as unanswered. Without a connection it sends nothing, because such probes would fill the
// buffer in which replies wait for the connection.
func (p *Prober) Send(caller, worker, ping string, again bool) {
	if !p.conn.IsConnected() {
		return
	}
	prefix, err := p.subscribed()
	if err != nil {
		return
	}
	which := firstProbe
	if again {
		which = secondProbe
	}
	_ = p.conn.PublishRequest(ping, prefix+p.reply(caller, which, worker), []byte(WatchBody))
}

// reply returns the reply subject of a probe, below the prefix. A probed worker sees the subject
// and may publish there, so the subject has a token that only this worker gets.
func (p *Prober) reply(caller, which, worker string) string {
	named := caller + "." + which + "." + worker
	mac := hmac.New(sha256.New, p.secret[:])
	mac.Write([]byte(named))
	return hex.EncodeToString(mac.Sum(nil)[:16]) + "." + named
}

// subscribed returns the prefix of the reply subjects.
func (p *Prober) subscribed() (string, error) {
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

// answered handles the answer to a probe. Only an answer of the server counts.
func (p *Prober) answered(msg *nats.Msg) {
	if len(msg.Data) > 0 || msg.Header.Get("Status") != "503" {
		return
	}
	p.mu.Lock()
	to, due := strings.CutPrefix(msg.Subject, p.prefix)
	f := strings.SplitN(to, ".", 4) // token, caller, which, worker
	if !due || len(f) != 4 {
		p.mu.Unlock()
		return
	}
	absent := p.callers[f[1]]
	p.mu.Unlock()
	if absent != nil && hmac.Equal([]byte(to), []byte(p.reply(f[1], f[2], f[3]))) && !listen.Redirected(msg, msg.Subject) {
		absent(f[3], f[2] == secondProbe)
	}
}

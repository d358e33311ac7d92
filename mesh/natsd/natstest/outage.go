package natstest

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// An Outage stands between a client and the JetStream API of a server, and refuses
// what it is told to as a server without a leader does, or answers as a replica that lags. What is published to
// streams and acknowledged goes past it; the API, and buckets, do not.
type Outage struct {
	mu     sync.Mutex
	most   int            // refusals of each kind
	kinds  []string       // that are refused; none: all
	counts map[string]int // refusals so far, by kind
	all    int

	silent  bool
	ignored int
	lagging string // the stream; "": none
}

const outagePrefix = "outage"

// NewOutage makes an outage that refuses nothing yet. Its server is asked in the
// name of a connection of its own. There can be one for a server.
func NewOutage(t testing.TB, srv *natsd.Server) *Outage {
	t.Helper()
	o := &Outage{}
	nc := Conn(t, srv)
	if _, err := nc.Subscribe(outagePrefix+".>", func(msg *nats.Msg) { o.pass(nc, msg) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return o
}

// JetStream is a client's JetStream behind the outage.
func (o *Outage) JetStream(t testing.TB, nc *nats.Conn) natsjs.JetStream {
	t.Helper()
	js, err := natsjs.NewWithAPIPrefix(nc, outagePrefix)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// RefuseFirst refuses, from now on, the first n requests of each kind about each
// stream, whichever consumer or subject of it they are about; 0: none. With kinds, such as
// "DIRECT.GET.AEE_REPLY", it refuses no others.
func (o *Outage) RefuseFirst(n int, kinds ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.most, o.kinds, o.counts = n, kinds, map[string]int{}
}

// Silence turns silence on or off: requests get no answer, as in a cluster without a quorum.
func (o *Outage) Silence(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silent = on
}

// Ignored returns how many requests got no answer.
func (o *Outage) Ignored() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ignored
}

// Lag answers direct reads of a stream, from now on, as a replica does that has none of its messages
// yet; "": no longer.
func (o *Outage) Lag(stream string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lagging = stream
}

// lags reports whether a request is a direct read of the stream that lags.
func (o *Outage) lags(subject string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lagging != "" && strings.HasPrefix(subject+".", natsjs.DefaultAPIPrefix+"DIRECT.GET."+o.lagging+".")
}

// ignores reports whether a request gets no answer.
func (o *Outage) ignores() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.silent {
		o.ignored++
	}
	return o.silent
}

// Refused is how many requests have been.
func (o *Outage) Refused() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all
}

// RefusedOf is how many requests of a kind have been since RefuseFirst.
func (o *Outage) RefusedOf(kind string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts[natsjs.DefaultAPIPrefix+kind]
}

func (o *Outage) refuse(subject string) bool {
	kind := subject
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		if strings.HasPrefix(token, "AEE_") || strings.HasPrefix(token, "KV_") || strings.HasPrefix(token, "OBJ_") {
			kind = strings.Join(tokens[:i+1], ".")
			break
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts[kind] >= o.most || len(o.kinds) > 0 && !slices.Contains(o.kinds, strings.TrimPrefix(kind, natsjs.DefaultAPIPrefix)) {
		return false
	}
	o.counts[kind]++
	o.all++
	return true
}

func (o *Outage) pass(nc *nats.Conn, msg *nats.Msg) {
	if o.ignores() {
		return
	}
	to := strings.TrimPrefix(msg.Subject, outagePrefix+".")
	if !strings.HasPrefix(to, "$KV.") && !strings.HasPrefix(to, "$O.") {
		to = natsjs.DefaultAPIPrefix + to
	}
	if o.refuse(to) {
		_ = msg.Respond([]byte(`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`))
		return
	}
	if o.lags(to) {
		_ = nc.PublishMsg(&nats.Msg{Subject: msg.Reply, Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}})
		return
	}
	_ = nc.PublishMsg(&nats.Msg{Subject: to, Reply: msg.Reply, Header: msg.Header, Data: msg.Data})
}

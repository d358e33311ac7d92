package probe

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Only the server's "no responders" says that a worker is gone: silence does not, nor does
// the answer of a worker of an earlier release.
func TestOnlyNoRespondersSaysThatAWorkerIsGone(t *testing.T) {
	t.Parallel()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	for to, answer := range map[string][]byte{"silent": nil, "old": []byte(`{"type":"io.nats.micro.v1.ping_response"}`), "older": {}} {
		if _, err := conn.Subscribe("ping."+to, func(msg *nats.Msg) {
			if answer != nil {
				msg.Respond(answer)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	type absent struct {
		worker string
		again  bool
	}
	p := New(conn)
	heard, other := make(chan absent, 100), make(chan absent, 100)
	caller := p.Join(func(worker string, again bool) { heard <- absent{worker, again} })
	p.Join(func(worker string, again bool) { other <- absent{worker, again} })
	for _, worker := range []string{"silent", "old", "older", "gone", "$SRV.PING.gone"} {
		p.Send(caller, worker, "ping."+worker, false)
	}
	p.Send(caller, "gone", "ping.gone", true)
	for _, want := range []absent{{"gone", false}, {"$SRV.PING.gone", false}, {"gone", true}} {
		if got := <-heard; got != want {
			t.Errorf("%+v found no responder, want %+v", got, want)
		}
	}
	p.Leave(caller)
	p.Send(caller, "gone", "ping.gone", true)
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(heard) > 0 || len(other) > 0 {
		t.Errorf("%d and %d more", len(heard), len(other))
	}
}

// A worker that is probed sees the reply subject, and may publish to inboxes. It says nothing of
// another worker that the same caller watches, nor of a second probe before that is sent.
func TestAWorkerThatIsProbedSaysOfNoOtherThatItIsGone(t *testing.T) {
	t.Parallel()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	p := New(conn)
	heard := make(chan string, 10)
	caller := p.Join(func(worker string, _ bool) { heard <- worker })
	probes := make(chan *nats.Msg, 1)
	if _, err := conn.Subscribe("$SRV.PING.hostile.1", func(msg *nats.Msg) { probes <- msg }); err != nil {
		t.Fatal(err)
	}
	p.Send(caller, "$SRV.PING.hostile.1", "$SRV.PING.hostile.1", false)
	seen := natstest.Within(t, "the probe", probes).Reply
	for _, forged := range []string{strings.Replace(seen, "hostile.1", "other.1", 1), strings.Replace(seen, "."+firstProbe+".", "."+secondProbe+".", 1)} {
		if err := conn.PublishMsg(&nats.Msg{Subject: forged, Header: nats.Header{"Status": {"503"}}}); err != nil {
			t.Fatal(err)
		}
	}
	p.Send(caller, "$SRV.PING.gone.1", "$SRV.PING.gone.1", false)
	if got := <-heard; got != "$SRV.PING.gone.1" {
		t.Errorf("%s is said to be gone", got)
	}
}

// A NATS user can have JetStream answer its request on the reply subject of a probe. The answer may
// be a copy of a message that the user has stored, with a status of its own.
func TestARedirectedAnswerOfJetStreamSaysNothingOfAWorker(t *testing.T) {
	t.Parallel()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	p := New(conn)
	heard := make(chan string, 10)
	caller := p.Join(func(worker string, _ bool) { heard <- worker })
	prefix, err := p.subscribed()
	if err != nil {
		t.Fatal(err)
	}
	own := func(worker string) string { return prefix + p.reply(caller, firstProbe, worker) }
	for _, m := range []*nats.Msg{
		{Subject: own("copied"), Header: nats.Header{"Status": {"503"}, "Nats-Stream": {"KV_aee_state"}}},
		{Subject: own("described"), Header: nats.Header{"Status": {"503"}, "Description": {"No Responders"}}},
		{Subject: p.reply(caller, firstProbe, "stored"), Header: nats.Header{"Status": {"503"}}}, // as a consumer delivers it
		{Subject: own("gone"), Header: nats.Header{"Status": {"503"}}},
	} {
		p.answered(m)
	}
	if got := <-heard; got != "gone" || len(heard) > 0 {
		t.Errorf("%s and %d more found no responder, want gone alone", got, len(heard))
	}
}

// Messages that a process publishes without a connection wait in a buffer of bounded size, in their
// order. Probes would take the place of replies, and be sent before them when it is over.
func TestProbesDoNotWaitForAConnection(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	lost, back := make(chan struct{}, 1), make(chan struct{}, 1)
	conn := natstest.Conn(t, srv, nats.DisconnectErrHandler(func(*nats.Conn, error) { lost <- struct{}{} }), nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	p := New(conn)
	heard := make(chan string, 10)
	caller := p.Join(func(worker string, _ bool) { heard <- worker })
	p.Send(caller, "before", "ping.before", false)
	if got := natstest.Within(t, "the answer to a probe", heard); got != "before" {
		t.Errorf("%s is gone, want before", got)
	}
	srv.Close()
	natstest.Within(t, "the disconnect", lost)
	for range 3 {
		p.Send(caller, "meanwhile", "ping.meanwhile", false)
	}
	if n, err := conn.Buffered(); n != 0 || err != nil {
		t.Errorf("%d bytes of probes wait for the connection, %v", n, err)
	}
	natstest.Restart(t, srv)
	natstest.Within(t, "the reconnect", back)
	p.Send(caller, "after", "ping.after", false)
	if got := natstest.Within(t, "the answer to a probe", heard); got != "after" {
		t.Errorf("%s is gone, want after", got)
	}
}

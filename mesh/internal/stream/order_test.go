package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// cable is a way to the server. It can swallow what the worker writes, and be cut.
type cable struct {
	mu        sync.Mutex
	conn      net.Conn
	swallow   bool
	swallowed chan struct{} // gets one for each write that was swallowed
	cut       chan struct{} // closed: it may be connected again
}

// Dial connects the cable, unless it is cut. It does not wait: the connection is locked
// meanwhile.
func (c *cable) Dial(network, address string) (net.Conn, error) {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	select {
	case <-cut:
	default:
		return nil, errors.New("the cable is cut")
	}
	conn, err := net.Dial(network, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.swallow = conn, false
	return &end{conn, c}, err
}

// end is the worker's end of a cable.
type end struct {
	net.Conn
	cable *cable
}

func (e *end) Write(b []byte) (int, error) {
	e.cable.mu.Lock()
	swallow := e.cable.swallow
	e.cable.mu.Unlock()
	if !swallow {
		return e.Conn.Write(b)
	}
	e.cable.swallowed <- struct{}{}
	return len(b), nil
}

func (c *cable) swallows(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swallow = on
}

// remote is a stream of a worker behind a cable. send emits one payload for each word.
type remote struct {
	*cable
	t    *testing.T
	lane *Lane // of a worker with another connection
	nc   *nats.Conn
	js   natsjs.JetStream
	d    *Stream
	send func(words ...string)
}

func newRemote(t *testing.T, event bool) *remote {
	return newRemoteOn(t, event, func(nc *nats.Conn) (natsjs.JetStream, error) { return jetstream.New(nc, "") })
}

func newRemoteOn(t *testing.T, event bool, open func(*nats.Conn) (natsjs.JetStream, error)) *remote {
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	w := &remote{t: t, lane: newLaneOn(t, srv), cable: &cable{swallowed: make(chan struct{}, 100), cut: make(chan struct{})}}
	close(w.cut)
	w.nc = natstest.Conn(t, srv, nats.SetCustomDialer(w.cable), nats.ReconnectWait(time.Millisecond), nats.MaxReconnects(-1))
	js, err := open(w.nc)
	if err != nil {
		t.Fatal(err)
	}
	w.js = js
	mine := *w.lane
	mine.Replies, mine.Temporary = jetstream.NewReplies(jetstream.Gather(js), subject.Map{}), jetstream.Away
	w.d = owner(t, &mine, state.New("agent.x", "t", ""))
	w.send = func(words ...string) {
		t.Helper()
		for _, word := range words {
			payload := textPayload(word)
			if event {
				payload = json.RawMessage(`{"event":"` + word + `"}`)
			}
			if err := w.d.Emit(payload); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// lose emits a word that does not reach the server.
func (w *remote) lose(word string) {
	w.t.Helper()
	w.swallows(true)
	w.send(word)
	natstest.Within(w.t, "the lost envelope", w.swallowed)
}

// disconnect cuts the cable, and returns a function that connects it again.
func (w *remote) disconnect() (connect func()) {
	cut := make(chan struct{})
	w.mu.Lock()
	w.cable.cut = cut
	w.mu.Unlock()
	w.conn.Close()
	natstest.Eventually(w.t, "the connection is gone", func() bool { return !w.nc.IsConnected() })
	return func() {
		close(cut)
		natstest.Eventually(w.t, "the connection is back", w.nc.IsConnected)
	}
}

func (w *remote) flush() {
	w.t.Helper()
	if err := w.d.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// heard returns what one who follows has heard when an envelope came that ends with last.
func (w *remote) heard(follower *jetstream.Follower, last string) (out []string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), natstest.Patience)
	defer cancel()
	for msg, err := range follower.Messages(ctx, jetstream.FollowOptions{Fresh: true}) {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, line(w.t, msg))
		if out[len(out)-1] == last {
			return out
		}
	}
	return out
}

// What a worker sends while its connection is lost comes after what was lost with the connection,
// in whatever form, for who follows and for who reads later. What comes after that brings it along.
func TestALostConnectionChangesNoOrder(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]bool{"text": false, "events": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRemote(t, event)
			follower, err := w.lane.Replies.Open("agent.x", "t")
			if err != nil {
				t.Fatal(err)
			}
			w.send("one ")
			w.flush()
			w.lose("two ")
			connect := w.disconnect()
			w.send("three ", "four ")
			connect()
			w.send("five ")
			want := []string{"1one ", "2two ", "3three ", "4four ", "5five "}
			if got := w.heard(follower, "5five "); !slices.Equal(got, want) {
				t.Errorf("heard %q, want %q", got, want)
			}
			w.flush()
			if got := sent(t, w.lane); !slices.Equal(got, want) {
				t.Errorf("stored %q, want %q", got, want)
			}
		})
	}
}

// An envelope that was stored after a later one has no reader: text begins anew, and all else is
// sent again.
func TestWhatWasOvertakenIsSentAnew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event bool
		anew  []string
	}{
		"text":   {false, []string{"4!one two three ", "5four"}},
		"events": {true, []string{"4two ", "5four"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRemote(t, c.event)
			w.send("one ")
			w.flush()
			w.lose("two ")
			w.swallows(false)
			w.send("three ") // over the same connection: nothing tells that "two" is lost
			natstest.Eventually(t, "the third is stored", func() bool { return len(sent(t, w.lane)) == 2 })
			brief, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := w.d.Flush(brief); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("flushed a lost envelope: %v", err)
			}
			w.flush()
			w.send("four")
			w.flush()
			want := append([]string{"1one ", "3three ", "2two "}, c.anew...)
			if got := sent(t, w.lane); !slices.Equal(got, want) {
				t.Errorf("stored %q, want %q", got, want)
			}
		})
	}
}

// The acknowledgement of a lost envelope never comes. nats.go must not wait for it for ever: it
// publishes no further one without a delay when 4,000 are due. How long it waits is set by
// jetstream.New, see TestNewBoundsTheWaitForAcknowledgements.
func TestALostEnvelopeIsNotRemembered(t *testing.T) {
	t.Parallel()
	w := newRemoteOn(t, false, func(nc *nats.Conn) (natsjs.JetStream, error) {
		return natsjs.New(nc, natsjs.WithPublishAsyncTimeout(200*time.Millisecond))
	})
	w.lose("one ")
	w.swallows(false)
	natstest.Eventually(t, "the envelope is given up", func() bool { return w.js.PublishAsyncPending() == 0 })
	lost := w.d.unconfirmed[0].sent
	if _, err := lost.Wait(t.Context()); !lost.Failed() || !errors.Is(err, jetstream.ErrUncertain) {
		t.Errorf("failed: %v, %v", lost.Failed(), err)
	}
	w.flush()
	if got := sent(t, w.lane); !slices.Equal(got, []string{"1one "}) {
		t.Errorf("stored %q", got)
	}
}

// A stream that is away for a moment refuses an envelope. The next ones wait for it, also if the
// stream is there again by then.
func TestARefusedEnvelopeIsNotOvertaken(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"it is back": true, "it is still away": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRemote(t, false)
			js, err := natsjs.New(w.nc)
			if err != nil {
				t.Fatal(err)
			}
			if err := js.DeleteStream(t.Context(), jetstream.StreamReply); err != nil {
				t.Fatal(err)
			}
			w.send("one ")
			natstest.Eventually(t, "it is refused", w.d.unconfirmed[0].sent.Failed)
			if !early {
				w.send("two ", "three ")
			}
			if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
				t.Fatal(err)
			}
			if early {
				w.send("two ", "three ")
			}
			w.flush()
			if got := sent(t, w.lane); !slices.Equal(got, []string{"1one ", "2two ", "3three "}) {
				t.Errorf("stored %q", got)
			}
		})
	}
}

// Two owners that both believe to have the run use the same number. What is no text is sent again
// by the owner that came second, also if it could not be sent before the other one's.
func TestAnEventWhoseNumberIsTakenIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"it is connected": false, "it was away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRemote(t, true)
			lost, connect := owner(t, w.lane, state.New("agent.x", "t", "")), func() {}
			if away {
				connect = w.disconnect()
				w.send("mine")
			}
			emit(t, lost, "lost")
			if err := lost.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			connect()
			if !away {
				w.send("mine")
			}
			w.flush()
			if got := sent(t, w.lane); !slices.Equal(got, []string{"1lost", "2mine"}) {
				t.Errorf("stored %q", got)
			}
		})
	}
}

// Another owner has taken the numbers of as many events as may be unconfirmed, and the connection was
// lost before all of them were answered. Sending one again then waits for an older one, which sends all
// of them again.
func TestEventsWhoseNumbersAreTakenOutlastALostConnection(t *testing.T) {
	t.Parallel()
	for answered := maxUnconfirmed - 8; answered < maxUnconfirmed-5; answered++ {
		t.Run(fmt.Sprint(answered), func(t *testing.T) {
			t.Parallel()
			w := newRemote(t, true)
			var theirs, mine []string
			for i := range maxUnconfirmed {
				theirs, mine = append(theirs, fmt.Sprint("lost", i)), append(mine, fmt.Sprint("mine", i))
			}
			lost := owner(t, w.lane, state.New("agent.x", "t", ""))
			emit(t, lost, theirs...)
			if err := lost.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.send(mine[:answered]...)
			natstest.Eventually(t, "they are answered", func() bool { return w.js.PublishAsyncPending() == 0 })
			for _, word := range mine[answered:] {
				w.lose(word)
			}
			w.lose("one more")
			w.disconnect()()
			w.flush()
			read := sent(t, w.lane)
			for _, word := range mine[:answered] {
				if !slices.ContainsFunc(read, func(s string) bool { return strings.HasSuffix(s, word) }) {
					t.Errorf("%q is not stored", word)
				}
			}
		})
	}
}

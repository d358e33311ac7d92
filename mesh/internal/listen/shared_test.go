package listen

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// An agent stops while another one ends the last of the shared subscriptions, of which it has
// none itself: it does not wait for a goroutine that has ended.
func TestAnAgentWithoutASharedSubscriptionStops(t *testing.T) {
	t.Parallel()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	e := NewShared(conn)
	for range 2000 {
		sub, err := e.Subscribe("a", "", func(*nats.Msg) {})
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			e.Settle(nil)
			e.Forget(nil)
		}()
		e.Settle([]*nats.Subscription{sub})
		e.Forget([]*nats.Subscription{sub})
		select {
		case <-stopped:
		case <-time.After(10 * time.Second):
			t.Fatal("the other agent does not stop")
		}
	}
}

// Messages of shared subscriptions are handled in the order of their arrival, one at a time. A
// drain waits for those that have come, and none comes after it.
func TestSharedSubscriptionsAreHandledInOrderAndDrained(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	conn, other := natstest.Conn(t, srv), natstest.Conn(t, srv)
	e := NewShared(conn)
	var got []string // by the one goroutine, until it has ended
	first, goOn := make(chan struct{}), make(chan struct{})
	handle := func(msg *nats.Msg) {
		if len(got) == 0 {
			close(first)
			<-goOn
		}
		got = append(got, string(msg.Data))
	}
	a, errA := e.Subscribe("a", "", handle)
	b, errB := e.Subscribe("b", "group", handle)
	if err := errors.Join(errA, errB, RoundTrip(t.Context(), conn, time.Minute, func() {})); err != nil {
		t.Fatal(err)
	}
	var want []string
	send := func(n int) {
		for i := range n {
			text := fmt.Sprint(i)
			if err := other.Publish([]string{"a", "b"}[i%2], []byte(text)); err != nil {
				t.Fatal(err)
			}
			want = append(want, text)
		}
		if err := RoundTrip(t.Context(), other, time.Minute, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	send(100)
	<-first
	if err := RoundTrip(t.Context(), conn, time.Minute, func() {}); err != nil { // all have been delivered
		t.Fatal(err)
	}
	subs := []*nats.Subscription{a, b}
	wait := Drain(conn, subs, e)
	if err := RoundTrip(t.Context(), conn, time.Minute, func() {}); err != nil { // both are unsubscribed
		t.Fatal(err)
	}
	sent := want
	send(10)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		wait()
	}()
	select { // a pause in which a drain that does not wait would end; the other result needs none
	case <-drained:
		t.Error("the drain ends before the messages are handled")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	<-drained
	if !slices.Equal(got, sent) {
		t.Errorf("handled were %q, want %q", got, sent)
	}
}

// Messages that wait are bounded in bytes: the newest are dropped, which is reported once, as nats.go
// does for a subscription with a goroutine of its own.
func TestSharedSubscriptionsHoldSoManyBytes(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	reported := make(chan error, 100)
	conn := natstest.Conn(t, srv, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { reported <- err }))
	e := NewShared(conn)
	e.most = 10 << 10
	handled := 0 // by the one goroutine, until it has ended
	first, goOn := make(chan struct{}), make(chan struct{})
	sub, err := e.Subscribe("a", "", func(*nats.Msg) {
		if handled == 0 {
			close(first)
			<-goOn
		}
		handled++
	})
	if err != nil {
		t.Fatal(err)
	}
	flood := func(n int) {
		for range n {
			if err := conn.Publish("a", make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	flood(1)
	<-first
	flood(50)
	close(goOn)
	e.Settle([]*nats.Subscription{sub})
	flood(1) // there is room again
	e.Settle([]*nats.Subscription{sub})
	e.Forget([]*nats.Subscription{sub})
	if handled != 1+10+1 {
		t.Errorf("%d messages were handled, want 12", handled)
	}
	if err := natstest.Within(t, "the report", reported); !errors.Is(err, nats.ErrSlowConsumer) || len(reported) > 0 {
		t.Errorf("reported %v, and %d further errors", err, len(reported))
	}
}

// A refused subscription is known, also if something else was refused after it. What was refused
// before, and the subscription of another caller, are another matter.
func TestARefusedSubscriptionIsKnownByItsName(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{{Name: "u", Password: "p", Permissions: &natsd.Permissions{Subscribe: natsd.Subjects{Deny: []string{"not.>"}}}}}})
	nc := natstest.Conn(t, srv, nats.UserInfo("u", "p"))
	subscribe := func(subjects ...string) (subs []*nats.Subscription) {
		for _, s := range subjects {
			sub, err := nc.SubscribeSync(s)
			if err != nil {
				t.Fatal(err)
			}
			subs = append(subs, sub)
		}
		if err := nc.FlushTimeout(20 * time.Second); err != nil {
			t.Fatal(err)
		}
		return subs
	}
	begin := denial.Now(nc)
	subs := subscribe("may.a", "not.b", "not.c")
	if err := Refused(begin, subs[:2]); !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), "not.b") {
		t.Errorf("refused: %v", err)
	}
	if err := Refused(begin, subs[:1]); err != nil {
		t.Errorf("another one: %v", err)
	}
	if err := Refused(denial.Now(nc), subs); err != nil {
		t.Errorf("before: %v", err)
	}
}

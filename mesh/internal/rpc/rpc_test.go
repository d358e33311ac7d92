package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// exchanges is a replies on a connection of its own, and a responder that
// answers on subject "echo" with what it got.
func exchanges(t *testing.T) (*Exchanger, *nats.Conn) {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{})
	conn, other := natstest.Conn(t, srv), natstest.Conn(t, srv)
	if _, err := other.Subscribe("echo", func(m *nats.Msg) { m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	return New(conn), conn
}

func soon() time.Time { return time.Now().Add(time.Minute) }

func mustOpen(t *testing.T, r *Exchanger) *Exchange {
	t.Helper()
	x, err := r.Open("echo", false, soon())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestEveryExchangeGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	r, _ := exchanges(t)
	var wait sync.WaitGroup
	var subjects sync.Map
	for sender := range 4 * gatherFrom {
		wait.Go(func() {
			for n := range 200 {
				x, err := r.Open("echo", false, soon())
				if err != nil {
					t.Error(err)
					return
				}
				subjects.Store(x.subject, true)
				body := fmt.Sprintf("%d of %d", n, sender)
				r.Send(x, Request{To: "echo", Data: []byte(body)})
				m, err := x.Wait(context.Background())
				if err != nil || string(m.Data) != body {
					t.Errorf("asked %s, got %v, %v", body, m, err)
				}
				x.answered = true
				r.Close(x)
			}
		})
	}
	wait.Wait()
	if len(r.byID) != r.idle || len(r.out.waiting) != 0 {
		t.Errorf("%d exchanges and %d requests are left", len(r.byID)-r.idle, len(r.out.waiting))
	}
	n := 0
	subjects.Range(func(any, any) bool { n++; return true })
	if n > 2*(4*gatherFrom)+minRest {
		t.Errorf("%d subjects for %d senders", n, 4*gatherFrom)
	}
}

func TestOneSenderPublishesForAll(t *testing.T) {
	t.Parallel()
	r, conn := exchanges(t)
	o := &r.out
	var all []*Exchange
	for range 3 {
		x := mustOpen(t, r)
		x.request = Request{To: "echo", Data: []byte("x")}
		all = append(all, x)
	}
	o.waiting = append(o.waiting, all[0]) // its sender has let others go on
	o.send(all[1])
	if all[1].sent.Load() || conn.OutMsgs != 0 {
		t.Error("the second sender published by itself")
	}
	if o.settle(all[1]) {
		t.Error("a request that nobody has published counts as published")
	}
	o.send(all[2])
	o.flush() // what the first one does next
	for i, want := range []bool{true, false, true} {
		equalTo(t, fmt.Sprintf("request %d published", i), o.settle(all[i]), want)
	}
	equalTo(t, "messages out", conn.OutMsgs, uint64(2))
}

func equalTo[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestAllSendersHearOfAFailure(t *testing.T) {
	t.Parallel()
	r, conn := exchanges(t)
	first, second := mustOpen(t, r), mustOpen(t, r)
	conn.Close()
	r.out.waiting = append(r.out.waiting, first)
	first.request = Request{To: "echo"}
	r.Send(second, Request{To: "echo"}) // alone, so at once
	r.out.flush()
	for _, x := range []*Exchange{first, second} {
		if _, err := x.Wait(context.Background()); !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("%v, want %v", err, nats.ErrConnectionClosed)
		}
	}
}

// answered ends an exchange as one that had its answer.
func answered(r *Exchanger, x *Exchange) {
	x.answered = true
	r.Close(x)
}

// rested makes as many exchanges with "echo" rest as must.
func rested(t *testing.T, r *Exchanger) (all []*Exchange) {
	t.Helper()
	for range minRest {
		all = append(all, mustOpen(t, r))
	}
	for _, x := range all {
		answered(r, x)
	}
	return all
}

func TestASubjectIsUsedAgainAfterItsRest(t *testing.T) {
	t.Parallel()
	r, _ := exchanges(t)
	all := rested(t, r)
	for _, want := range append(all, all...) {
		x := mustOpen(t, r)
		if x != want || !x.reused {
			t.Fatalf("%s was opened, want %s again", x.subject, want.subject)
		}
		answered(r, x)
	}
	other, err := r.Open("agent.other", false, soon())
	if err != nil || other.reused {
		t.Errorf("an exchange with another recipient has the subject of an earlier one: %v", err)
	}
	stream, err := r.Open("echo", true, soon())
	if err != nil || stream.reused {
		t.Errorf("an exchange of many answers has the subject of an earlier one: %v", err)
	}
}

func TestASubjectOnWhichMoreCameIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	late := func(r *Exchanger, x *Exchange) { r.deliver(&nats.Msg{Subject: x.subject, Data: []byte("late")}) }
	for name, end := range map[string]func(*Exchanger, *Exchange){
		"nobody answered":   func(r *Exchanger, x *Exchange) { r.Close(x) },
		"one more came":     func(r *Exchanger, x *Exchange) { late(r, x); answered(r, x) },
		"two more came":     func(r *Exchanger, x *Exchange) { late(r, x); late(r, x); answered(r, x) },
		"one came too late": func(r *Exchanger, x *Exchange) { answered(r, x); late(r, x) },
		"two came too late": func(r *Exchanger, x *Exchange) { answered(r, x); late(r, x); late(r, x) },
		"another inbox since": func(r *Exchanger, x *Exchange) {
			r.sub.Unsubscribe()
			y, _ := r.Open("echo", false, soon())
			r.Close(y)
			answered(r, x)
		},
	} {
		r, _ := exchanges(t)
		x := mustOpen(t, r)
		end(r, x)
		rested(t, r)
		for range minRest {
			y := mustOpen(t, r)
			if y == x {
				t.Errorf("%s: the subject was used again", name)
			}
			answered(r, y)
		}
		equalTo(t, name+": exchanges that rest", len(r.byID), minRest)
	}
}

// A peer may stream without being asked; the answer that ends it is the last.
func TestAnAnswerIsNotLostBehindAStreamThatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	r, _ := exchanges(t)
	x := mustOpen(t, r)
	for range 100 {
		r.deliver(&nats.Msg{Subject: x.subject, Data: []byte("stream")})
	}
	last := &nats.Msg{Subject: x.subject, Data: []byte("result")}
	r.deliver(last)
	equalTo(t, "answers that wait", len(x.answers), fewBuffered)
	var msg *nats.Msg
	for len(x.answers) > 0 {
		msg = <-x.answers
	}
	if msg != last {
		t.Errorf("the last answer is %v, want the result", msg)
	}
	answered(r, x)
	equalTo(t, "subjects that rest", r.idle, 0)
}

func TestRestingSubjectsAreBounded(t *testing.T) {
	t.Parallel()
	r, _ := exchanges(t)
	for i := range 3 * maxIdle {
		x, err := r.Open(fmt.Sprintf("agent.a%d", i%(maxIdle/4)), false, soon())
		if err != nil {
			t.Fatal(err)
		}
		answered(r, x)
	}
	places := 0
	for to, place := range r.rest {
		n := 0
		for x := place.first; x != nil; x = x.next {
			if n++; x.to != to || r.byID[x.id] != x {
				t.Errorf("%s rests with %s", x.subject, to)
			}
		}
		equalTo(t, "length of "+to, n, place.n)
		places += n
	}
	equalTo(t, "resting", r.idle, maxIdle)
	equalTo(t, "in their places", places, maxIdle)
	equalTo(t, "found by id", len(r.byID), maxIdle)
}

func TestAnExchangeEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	r, _ := exchanges(t)
	for stream, room := range map[bool]int{false: fewBuffered, true: MaxBuffered} {
		late, err := r.Open("echo", stream, soon())
		if err != nil {
			t.Fatal(err)
		}
		early, err := r.Open("echo", stream, soon().Add(-time.Second)) // sooner than what the alarm is set for
		if err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		equalTo(t, "the alarm", r.alarm.At().Equal(early.deadline), true)
		r.mu.Unlock()
		for range room + 1 {
			r.deliver(&nats.Msg{Subject: late.subject})
			r.deliver(&nats.Msg{Subject: early.subject}) // and there is room for the end nevertheless
		}
		r.mu.Lock() // its time comes now that all have been told
		early.deadline = time.Now()
		r.alarm.Set(early.deadline)
		r.mu.Unlock()
		for range room {
			if _, err := early.Wait(context.Background()); err != nil {
				t.Errorf("answer: %v", err)
			}
		}
		if _, err := early.Wait(context.Background()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want %v", err, context.DeadlineExceeded)
		}
		r.Close(early)
		equalTo(t, "answers of the other", len(late.answers), room)
		r.mu.Lock()
		equalTo(t, "the alarm", r.alarm.At().Equal(late.deadline), true)
		r.mu.Unlock()
		r.Close(late)
	}
}

// Answers of a stream that wait for a slow reader are bounded in bytes too. One answer always fits.
func TestAStreamHoldsSoManyBytes(t *testing.T) {
	t.Parallel()
	r, _ := exchanges(t)
	x, err := r.Open("echo", true, soon())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(x)
	whole := make([]byte, MaxBufferedBytes)
	r.deliver(&nats.Msg{Subject: x.subject, Data: whole})
	for range 3 {
		r.deliver(&nats.Msg{Subject: x.subject, Data: whole[:1]})
	}
	equalTo(t, "waiting", len(x.answers), 1)
	equalTo(t, "overflowed", x.Overflowed(), true)
	if _, err := x.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.deliver(&nats.Msg{Subject: x.subject, Data: whole[:1]})
	}
	equalTo(t, "waiting once one was read", len(x.answers), 3)
}

// A NATS user can have JetStream answer its request on the reply subject of another's. Section 13
// of docs/nats-binding.md says how such an answer is told from that of the worker.
func TestARedirectedAnswerOfJetStreamIsNoAnswer(t *testing.T) {
	t.Parallel()
	r, _ := exchanges(t)
	for name, m := range map[string]*nats.Msg{
		"direct get":                   {Header: nats.Header{"Nats-Stream": {"KV_aee_state"}}, Data: []byte("forged")},
		"direct get, no responders":    {Header: nats.Header{"Status": {"503"}, "Nats-Stream": {"KV_aee_state"}}},
		"status":                       {Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}},
		"API":                          {Data: []byte(`{"type":"io.nats.jetstream.api.v1.stream_info_response"}`)},
		"next of a consumer":           {Subject: "aee.work.normal.agent.weather", Data: []byte("forged")},
		"next of a consumer, by token": {Subject: "$KV.aee_state.agent.weather.", Data: []byte("forged")},
	} {
		x := mustOpen(t, r)
		token := x.subject[len(r.prefix):]
		switch {
		case m.Subject == "":
			m.Subject = x.subject
		case m.Subject[len(m.Subject)-1] == '.':
			m.Subject += token
		}
		r.deliver(m)
		equalTo(t, name+": answers", len(x.answers), 0)
		answered(r, x)
		r.deliver(m)
		equalTo(t, name+": the subject rests", x.resting, true)
	}
	x := mustOpen(t, r)
	for _, m := range []*nats.Msg{
		{Subject: x.subject, Header: nats.Header{"Status": {"503"}}},
		{Subject: x.subject, Data: []byte(`{"stream":"S","seq":1}`)}, // tells the sender that a stream captures the request
		{Subject: x.subject, Header: nats.Header{"Aee-Holder": {"-"}}},
	} {
		r.deliver(m)
	}
	equalTo(t, "answers", len(x.answers), 3)
}

// Who has seen one reply subject knows no other.
func TestAReplySubjectCannotBeGuessed(t *testing.T) {
	t.Parallel()
	r, _ := exchanges(t)
	seen := map[string]bool{}
	for range 100 {
		x := mustOpen(t, r)
		begin := fmt.Sprintf("%.10s", x.subject[len(r.prefix):])
		if seen[begin] || !Marked(x.subject) || len(x.subject) < len(r.prefix)+10 {
			t.Errorf("%s is like another", x.subject)
		}
		seen[begin] = true
	}
}

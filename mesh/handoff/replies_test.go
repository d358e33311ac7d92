package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A receiver that is about to stop ends the streams of replies, and finishes what has begun.
func TestAReceiverThatStopsEndsItsReplies(t *testing.T) {
	t.Parallel()
	ending, end := context.WithCancel(t.Context())
	defer end()
	p := newPlatform(t, func(_ *handoff.ReceiverConfig, o *handoff.HandlerOptions) { o.Ending = ending })
	x, y := p.pack(), p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	if _, err := p.commit(x.id); err != nil {
		t.Fatal(err)
	}
	p.replies.add(x.taskID, handoff.Reply{Seq: 5, Data: []byte(`{}`)})
	err := p.client.Replies(t.Context(), x.id, p.request(x.id, handoff.ActionReplies), 0, func(handoff.Reply) error {
		end()
		return nil
	})
	if err == nil {
		t.Error("replies without an end")
	}
	if _, err := p.send(y); err != nil {
		t.Errorf("a run is not received any more: %v", err)
	}
}

func TestHandoffReplies(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.accepted()
	reply := func(n uint64, last bool) handoff.Reply {
		return handoff.Reply{Seq: n, Header: map[string][]string{"Nats-Msg-Id": {fmt.Sprint(n)}}, Data: []byte(fmt.Sprintf(`{"n":%d}`, n)), Last: last}
	}
	for n := uint64(5); n < 10; n++ {
		p.replies.add(x.taskID, reply(n, false))
	}
	var got []string
	ctx := context.Background()
	enough := errors.New("enough")
	// The connection is lost in the middle, and taken up again.
	err := p.client.Replies(ctx, x.id, p.request(x.id, handoff.ActionReplies), 7, func(r handoff.Reply) error {
		got = append(got, string(r.Data))
		return enough
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	err = p.client.Replies(ctx, x.id, p.request(x.id, handoff.ActionReplies), 8, func(r handoff.Reply) error {
		got = append(got, string(r.Data)+r.Header["Nats-Msg-Id"][0])
		if r.Seq == 9 {
			p.replies.add(x.taskID, reply(10, true))
			p.replies.add(x.taskID, reply(11, false)) // never
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	equal(t, "replies", strings.Join(got, " "), `{"n":8} {"n":9}9 {"n":10}10`)
}

// A source follows a run once, or a few times where connections were lost. Of many at once the
// last ones stay, so that a peer cannot hold the receiver's memory with them.
func TestAHandoffIsFollowedAFewTimesAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.accepted()
	p.replies.add(x.taskID, handoff.Reply{Seq: 5, Data: []byte(`{}`)})
	const all, stay = 12, 4
	ended, last := make(chan int, all), make(chan error, 1)
	for i := range all {
		began := make(chan struct{})
		go func() {
			err := p.client.Replies(t.Context(), x.id, p.request(x.id, handoff.ActionReplies), 0, func(handoff.Reply) error {
				select {
				case <-began:
				default:
					close(began)
				}
				return nil
			})
			if i == all-1 {
				last <- err
			}
			ended <- i
		}()
		natstest.Within(t, "a follower's first reply", began)
	}
	for range all - stay {
		if i := natstest.Within(t, "the end of an early one", ended); i >= all-stay {
			t.Errorf("follower %d ended", i)
		}
	}
	p.replies.add(x.taskID, handoff.Reply{Seq: 6, Data: []byte(`{}`), Last: true})
	if err := natstest.Within(t, "the end of the last one", last); err != nil {
		t.Error(err)
	}
}

package jetstream_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
)

// A server may lose the reader's consumer while it reads.
func TestListGoesOnWhenItsConsumerIsLost(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	const many = 1500
	revisions := make([]uint64, many)
	for round := range 2 {
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := w; i < many; i += 16 {
					revisions[i] = putRun(t, s, state.ID{Entity: "agent.x", Run: fmt.Sprint(i)}, revisions[i], fmt.Append(nil, round), jetstream.Note{})
				}
			})
		}
		wg.Wait()
	}
	stream, err := js.Stream(ctx, "KV_aee_state")
	if err != nil {
		t.Fatal(err)
	}
	made := make(chan *nats.Msg, 64)
	sub, err := js.Conn().ChanSubscribe("$JS.EVENT.ADVISORY.CONSUMER.CREATED.KV_aee_state.>", made)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for lost := false; !lost; { // it may have read everything before its consumer is lost
		ended := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			select {
			case msg := <-made:
				lost = stream.DeleteConsumer(ctx, msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]) == nil
			case <-ended:
			}
		})
		got := map[string]string{}
		for r, err := range s.List(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			if _, twice := got[r.ID.Run]; twice {
				t.Errorf("%s twice", r.ID.Run)
			}
			if got[r.ID.Run] = string(r.Data); string(r.Data) != "1" {
				t.Errorf("%s is %s", r.ID.Run, r.Data)
			}
		}
		close(ended)
		wg.Wait()
		if len(got) != many {
			t.Errorf("%d runs", len(got))
		}
	}
}

// A server limits the consumers of a stream to 1000, and every worker lists the runs of
// its agents regularly.
func TestReadingRunsLeavesNoConsumer(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	putRun(t, s, state.ID{Entity: "agent.x", Run: "1"}, 0, []byte("1"), jetstream.Note{})
	left := func() (n int) {
		stream, err := js.Stream(ctx, "KV_aee_state")
		if err != nil {
			t.Fatal(err)
		}
		for range stream.ConsumerNames(ctx).Name() {
			n++
		}
		return n
	}
	for range 3 {
		for _, err := range s.Open(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	waitFor(t, "the lists' consumers to go", func() bool { return left() == 0 })
}

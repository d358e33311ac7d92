package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestGatherIsTheSame(t *testing.T) {
	t.Parallel()
	ctx, plain := testContext(t), start(t)
	js := jetstream.Gather(plain)
	if jetstream.Gather(js) != js {
		t.Error("gathered twice")
	}
	if _, err := js.CreateStream(ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}, MaxMsgSize: 100, Discard: natsjs.DiscardNew, MaxMsgs: 3}); err != nil {
		t.Fatal(err)
	}
	msg := func(subj string, kv ...string) *nats.Msg {
		m := nats.NewMsg(subj)
		m.Data = []byte("x")
		for i := 0; i < len(kv); i += 2 {
			m.Header.Set(kv[i], kv[i+1])
		}
		return m
	}
	for i, m := range []*nats.Msg{
		msg("s.1", natsjs.MsgIDHeader, "a"),
		msg("s.1", natsjs.MsgIDHeader, "a"), // a duplicate
		msg("s.1", natsjs.ExpectedLastSubjSeqHeader, "9"),
		msg("s.2", natsjs.ExpectedStreamHeader, "T"),
		{Subject: "s.3", Data: make([]byte, 101)},
		{Subject: "s.3", Data: make([]byte, 2<<20)},
		msg("nobody"),
		msg("s.4"), msg("s.5"),
		msg("s.6"), // full
		{Subject: "s. 7"},
	} {
		want, wantErr := plain.PublishMsg(ctx, m)
		if i > 0 {
			got, gotErr := js.PublishMsg(ctx, m)
			if gotErr == nil && wantErr == nil {
				want.Sequence, want.Duplicate = got.Sequence, got.Duplicate // it is stored by now
			}
			if fmt.Sprint(got, gotErr) != fmt.Sprint(want, wantErr) {
				t.Errorf("message %d: %v, %v\nwant %v, %v", i, got, gotErr, want, wantErr)
			}
			var api, wantAPI *natsjs.APIError
			if errors.As(wantErr, &wantAPI) != errors.As(gotErr, &api) || api != nil && api.ErrorCode != wantAPI.ErrorCode {
				t.Errorf("message %d: %v, want %v", i, gotErr, wantErr)
			}
			if m.Reply != "" {
				t.Errorf("message %d was written to", i)
			}
		}
	}
	if got, err := js.PublishMsg(ctx, msg("s.1"), natsjs.WithMsgID("a")); err != nil || !got.Duplicate {
		t.Errorf("with an option: %+v, %v", got, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := js.PublishMsg(ended, msg("s.1")); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	js.Conn().Close()
	if _, err := js.PublishMsg(ctx, msg("s.1")); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Every publish waits for an acknowledgement, so the usual form is parsed without
// encoding/json.
func TestTheUsualAcknowledgementIsParsedFast(t *testing.T) {
	js := start(t)
	if _, err := js.CreateStream(testContext(t), natsjs.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	answer, err := js.Conn().Request("s", []byte("x"), patience)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{string(answer.Data), `{"stream":"S", "seq":1}`} {
		ack, err := jetstream.ReadAck([]byte(data))
		if want := (natsjs.PubAck{Stream: "S", Sequence: 1}); err != nil || *ack != want {
			t.Fatalf("%s: %v, %v", data, ack, err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = jetstream.ReadAck([]byte(data)) }); n > 4 {
			t.Errorf("%s: %v allocations", data, n)
		}
	}
	for data, want := range map[string]natsjs.PubAck{
		`{"stream":"S","seq":7,"duplicate": true}`:  {Stream: "S", Sequence: 7, Duplicate: true},
		`{"stream":"S","domain":"hub","seq":7}`:     {Stream: "S", Sequence: 7, Domain: "hub"},
		`{"stream":"S","seq":7,"val":"3"}`:          {Stream: "S", Sequence: 7, Value: "3"},
		`{"seq":7,"stream":"S"}`:                    {Stream: "S", Sequence: 7},
		`{ "stream" : "S" , "seq" : 7 }`:            {Stream: "S", Sequence: 7},
		`{"stream":"S\u0031","seq":7}`:              {Stream: "S1", Sequence: 7},
		`{"stream":"S","seq":18446744073709551615}`: {Stream: "S", Sequence: 1<<64 - 1},
		`{"stream":"S\\\",\"seq\":3","seq":7}`:      {Stream: `S\","seq":3`, Sequence: 7},
	} {
		if ack, err := jetstream.ReadAck([]byte(data)); err != nil || *ack != want {
			t.Errorf("%s: %+v, %v", data, ack, err)
		}
	}
	for _, data := range []string{``, `{}`, `{"stream":"S"`, `{"stream":"S","seq":}`, `{"stream":"S","seq":-1}`, `{"stream":"","seq":7}`, `{"stream":"S""seq":7}`, `{"stream":"S","seq":+7}`} {
		if ack, err := jetstream.ReadAck([]byte(data)); err == nil {
			t.Errorf("%s: %+v", data, ack)
		}
	}
}

func TestGatherKeepsSendersApart(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	ctx, plain := testContext(t), connect(t, srv)
	js := jetstream.Gather(plain)
	stream, err := js.CreateStream(ctx, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	const senders, each = 32, 50
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			subj := fmt.Sprintf("s.%d", s)
			for i := range each {
				ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: subj, Data: fmt.Append(nil, i)})
				if err != nil {
					t.Error(err)
					return
				}
				got, err := stream.GetMsg(ctx, ack.Sequence)
				if err != nil || got.Subject != subj || string(got.Data) != fmt.Sprint(i) {
					t.Errorf("message %d of sender %d has sequence %d, which is %+v, %v", i, s, ack.Sequence, got, err)
					return
				}
			}
		})
	}
	wg.Wait()

	// While the server is down no message is acknowledged; afterwards all are.
	srv.Close()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := js.PublishMsg(short, &nats.Msg{Subject: "s.away"}); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrDisconnected) {
		t.Errorf("away: %v", err)
	}
	natstest.Restart(t, srv)
	waitFor(t, "an acknowledgement after the restart", func() bool {
		_, err := js.PublishMsg(brief(t), &nats.Msg{Subject: "s.back"})
		return err == nil
	})
}

// Senders that wait when the connection is lost get the error at once, long before their
// timeout.
func TestGatherTellsOfALostConnection(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := jetstream.Gather(connect(t, srv))
	heard := make(chan struct{}, 1)
	if _, err := natstest.Conn(t, srv).Subscribe("mute", func(*nats.Msg) { heard <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the subscription", func() bool {
		_, err := js.PublishMsg(brief(t), &nats.Msg{Subject: "mute"})
		return errors.Is(err, context.DeadlineExceeded)
	})
	<-heard
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := js.PublishMsg(ctx, &nats.Msg{Subject: "mute"})
		done <- err
	}()
	<-heard
	srv.Close()
	select {
	case err := <-done:
		if !errors.Is(err, nats.ErrDisconnected) {
			t.Errorf("got %v", err)
		}
	case <-time.After(patience):
		t.Error("the sender waits on")
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, senders := range []int{1, 64} {
		for _, kind := range []string{"plain", "gathered"} {
			b.Run(fmt.Sprintf("%s/%d", kind, senders), func(b *testing.B) {
				js := start(b)
				if kind == "gathered" {
					js = jetstream.Gather(js)
				}
				if _, err := js.CreateStream(b.Context(), natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
					b.Fatal(err)
				}
				data := make([]byte, 1024)
				parallel(b, senders, func(sender, _ int) error {
					_, err := js.PublishMsg(b.Context(), &nats.Msg{Subject: fmt.Sprintf("s.%d", sender), Data: data})
					return err
				})
			})
		}
	}
}

// parallel makes b.N calls from a number of goroutines.
func parallel(b *testing.B, senders int, call func(sender, i int) error) {
	var wg sync.WaitGroup
	b.ResetTimer()
	for s := range senders {
		n := b.N / senders
		if s < b.N%senders {
			n++
		}
		wg.Go(func() {
			for i := range n {
				if err := call(s, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

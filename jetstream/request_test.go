package jetstream_test

import (
	"context"
	"errors"
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

// A request whose answer is lost must fail before its caller's deadline, which is that of
// a task: otherwise the run would hang for as long. The cluster soak found such a run;
// finding D6 of the reliability review is a similar one.
func TestALostAnswerDoesNotTakeTheTimeOfATask(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	nc := natstest.Conn(t, srv)
	silent, err := nc.SubscribeSync("lost.>") // receives requests, and answers none
	if err != nil {
		t.Fatal(err)
	}
	js, err := natsjs.NewWithAPIPrefix(nc, "lost")
	if err != nil {
		t.Fatal(err)
	}
	agents := jetstream.NewAgents(js, subject.Map{})
	for name, ask := range map[string]func(context.Context) error{
		"a record": func(ctx context.Context) error {
			_, err := jetstream.NewStates(js, subject.Map{}).Get(ctx, state.ID{Entity: "agent.x", Run: state.RunID("agent.x", "1")})
			return err
		},
		"a publish": func(ctx context.Context) error {
			_, err := jetstream.Gather(js).PublishMsg(ctx, &nats.Msg{Subject: "lost.publish", Data: []byte("x")})
			return err
		},
		"a bucket": func(ctx context.Context) error {
			_, err := agents.Get(ctx, "agent.x")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				t.Errorf("%v, and the caller's time is over: %v", err, ctx.Err())
			}
		})
	}
	t.Cleanup(func() { _ = silent.Unsubscribe() })
}

// The answer to one who schedules a task may be lost: another one does not wait for it.
func TestALostAnswerHoldsUpNoOtherWhoSchedules(t *testing.T) {
	t.Parallel()
	nc := natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true}))
	asked := make(chan *nats.Msg, 2)
	if _, err := nc.ChanSubscribe("lost.STREAM.INFO.*", asked); err != nil {
		t.Fatal(err)
	}
	js, err := natsjs.NewWithAPIPrefix(nc, "lost")
	if err != nil {
		t.Fatal(err)
	}
	q := jetstream.NewQueue(js, subject.Map{})
	submit := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := q.Submit(ctx, jetstream.Submission{Entity: "agent.x", ID: "1", At: time.Now().Add(time.Hour)})
			done <- err
		}()
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := submit(ctx)
	natstest.Within(t, "the first request", asked)
	brief, end := context.WithCancel(t.Context())
	second := submit(brief)
	end()
	if err := natstest.Within(t, "the end of the second", second); !errors.Is(err, context.Canceled) {
		t.Errorf("the second: %v", err)
	}
	select {
	case err := <-first:
		t.Errorf("the second waited until the first had failed: %v", err)
	default:
	}
	cancel()
	if err := natstest.Within(t, "the end of the first", first); !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
}

// A server whose disk was full may answer for ever that another write of the run is under way.
// The soak with a full disk found a worker that asked it as long, with the run's message.
func TestAbsentDoesNotAskForEverWhileAWriteIsUnderWay(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	nc := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	answer := func(subject, body string) {
		if _, err := nc.Subscribe(subject, func(msg *nats.Msg) { _ = msg.Respond([]byte(body)) }); err != nil {
			t.Fatal(err)
		}
	}
	answer("$JS.API.STREAM.INFO.*", `{"config":{"name":"KV_aee_state","num_replicas":1}}`)
	answer("$KV.>", `{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"KV_aee_state","seq":0}`)
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for name, js := range map[string]natsjs.JetStream{"gathered": jetstream.Gather(js), "single": js} {
		states, ctx := jetstream.NewStates(js, subject.Map{}), testContext(t)
		for range 2 { // the second time it knows the number of replicas
			if states.Absent(ctx, state.ID{Entity: "agent.x", Run: state.RunID("agent.x", "1")}) || ctx.Err() != nil {
				t.Errorf("%s: it is said to be absent, or the caller's time is over: %v", name, ctx.Err())
			}
		}
	}
}

// A leader refuses a write while another write of the subject is under way, perhaps an earlier copy
// of the same one. That does not say that the record has changed: a worker that took it so would give
// up its own run.
func TestAWriteThatIsUnderWayIsNoChange(t *testing.T) {
	t.Parallel()
	const underWay, changed, stored = `{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"KV_aee_state","seq":0}`,
		`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 9"},"stream":"KV_aee_state","seq":0}`, `{"stream":"KV_aee_state","seq":8}`
	for name, c := range map[string]struct {
		then string // the answer after three of underWay
		want error
	}{"not stored": {stored, nil}, "stored": {changed, state.ErrChanged}, "unknown": {underWay, state.ErrUncertain}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
			asked := 0
			if _, err := nc.Subscribe("$KV.>", func(msg *nats.Msg) {
				if asked++; asked <= 3 {
					_ = msg.Respond([]byte(underWay))
				} else {
					_ = msg.Respond([]byte(c.then))
				}
			}); err != nil {
				t.Fatal(err)
			}
			js, err := natsjs.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			id := state.ID{Entity: "agent.x", Run: state.RunID("agent.x", "1")}
			rev, err := jetstream.NewStates(js, subject.Map{}).Put(testContext(t), id, 7, []byte("{}"))
			if !errors.Is(err, c.want) || c.want != state.ErrChanged && errors.Is(err, state.ErrChanged) || err == nil && rev != 8 {
				t.Errorf("revision %d, %v", rev, err)
			}
		})
	}
}

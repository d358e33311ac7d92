package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// denied returns the connection of a user who may not publish to some subjects, and has just tried
// to publish to one of them.
func denied(t *testing.T, try string, subjects ...string) natsjs.JetStream {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "u", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: append(subjects, try)}}},
	}})
	apply(t, connect(t, srv, nats.UserInfo("all", "p")), jetstream.Options{})
	js := connect(t, srv, nats.UserInfo("u", "p"))
	denial.Now(js.Conn()) // from now on all are heard, as after the first request of a worker
	if err := js.Conn().Publish(try, nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the denial", func() bool { return errors.Is(js.Conn().LastError(), nats.ErrPermissionViolation) })
	return js
}

// writes are one of each kind of writer.
func writes(js natsjs.JetStream) map[string]func(context.Context) error {
	id := func(run string) state.ID { return state.ID{Entity: "agent.a", Run: run} }
	return map[string]func(context.Context) error{
		"a record": func(ctx context.Context) error {
			_, err := jetstream.NewStates(js, subject.Map{}).Put(ctx, id("record"), 0, []byte("x"))
			return err
		},
		"a reply of a run": func(ctx context.Context) error {
			_, err := jetstream.NewStates(js, subject.Map{}).Reply(ctx, id("replied"), 0, jetstream.Reply{Entity: "agent.a", TaskID: "t", MsgID: "1", Data: []byte("x")}, jetstream.Note{}, &state.End{})
			return err
		},
		"a key": func(ctx context.Context) error {
			return jetstream.NewTemplates(js, subject.Map{}).Create(ctx, "agent.a", "t", []byte("{}"))
		},
		"a dead letter": func(ctx context.Context) error {
			_, err := jetstream.NewDead(js, subject.Map{}).Put(ctx, jetstream.DeadLetter{Entity: "agent.a", TaskID: "t"})
			return err
		},
		"a task": func(ctx context.Context) error {
			_, err := jetstream.NewQueue(js, subject.Map{}).Submit(ctx, jetstream.Submission{Entity: "agent.a", Data: []byte("x")})
			return err
		},
		"a delayed task": func(ctx context.Context) error {
			_, err := jetstream.NewQueue(js, subject.Map{}).Submit(ctx, jetstream.Submission{Entity: "agent.a", ID: "t", Data: []byte("x"), At: time.Now().Add(time.Hour)})
			return err
		},
		"a reply": func(ctx context.Context) error {
			return jetstream.NewReplies(js, subject.Map{}).Publish(ctx, jetstream.Reply{Entity: "agent.a", TaskID: "t", MsgID: "1", Data: []byte("x")})
		},
		"an envelope": func(ctx context.Context) error {
			return jetstream.NewJournal(js, subject.Map{}).Put(ctx, "agent.a", "t", []byte("x"))
		},
		"an id": func(ctx context.Context) error {
			_, err := seen.New(js, subject.Map{}, time.Minute).Claim(ctx, "agent.a", "t", "me")
			return err
		},
	}
}

// If the answer to a write is lost, the write may be stored, also if something else was denied a
// moment ago.
func TestADenialOfSomethingElseLeavesAWriteUncertain(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js := denied(t, "aee.journal.agent.b.x")
	for what, write := range writes(losesAnswers{js}) {
		if err := write(testContext(t)); !errors.Is(err, jetstream.ErrUncertain) || errors.Is(err, jetstream.ErrDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A document is stored before its record, which is what counts.
	_, err := jetstream.NewStates(losesAnswers{js}, subject.Map{}).Put(testContext(t), state.ID{Entity: "agent.a", Run: "big"}, 0, make([]byte, jetstream.MaxInline+1))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, jetstream.ErrDenied) {
		t.Errorf("a document: %v", err)
	}
}

// A write to a subject that is not permitted is denied, and certainly not stored.
func TestAWriteThatIsNotPermittedIsDenied(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js := denied(t, "$O.>", "$KV.>", "aee.>")
	all := writes(js)
	all["a document"] = func(ctx context.Context) error {
		_, err := jetstream.NewStates(js, subject.Map{}).Put(ctx, state.ID{Entity: "agent.a", Run: "big"}, 0, make([]byte, jetstream.MaxInline+1))
		return err
	}
	for what, write := range all {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			if err := write(ctx); !errors.Is(err, jetstream.ErrDenied) || errors.Is(err, jetstream.ErrUncertain) {
				t.Error(err)
			}
		})
	}
}

// losesAnswers loses the answers to what is published.
type losesAnswers struct{ natsjs.JetStream }

func (l losesAnswers) PublishMsg(ctx context.Context, m *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	_, err := l.JetStream.PublishMsg(ctx, m, opts...)
	if err == nil {
		err = context.DeadlineExceeded
	}
	return nil, err
}

func (l losesAnswers) Publish(ctx context.Context, subject string, data []byte, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	return l.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data}, opts...)
}

// If the server has a delayed task, and the read of it is not answered, it is uncertain what is
// stored; the task is not queued a second time, to be done at once.
func TestADelayedTaskThatCannotBeReadIsUncertain(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	own := denied(t, "aee.journal.agent.b.x")
	nc, queued := own.Conn(), make(chan *nats.Msg, 1)
	if _, err := nc.Subscribe("lost.>", func(msg *nats.Msg) {
		if strings.HasPrefix(msg.Subject, "lost.STREAM.INFO.") {
			_ = nc.PublishRequest("$JS.API."+strings.TrimPrefix(msg.Subject, "lost."), msg.Reply, msg.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.ChanSubscribe("aee.work.>", queued); err != nil {
		t.Fatal(err)
	}
	js, err := natsjs.NewWithAPIPrefix(nc, "lost")
	if err != nil {
		t.Fatal(err)
	}
	task := jetstream.Submission{Entity: "agent.a", ID: "t", Data: []byte("x"), At: time.Now().Add(time.Hour)}
	submit(t, jetstream.NewQueue(own, subject.Map{}), task)
	done, err := jetstream.NewQueue(js, subject.Map{}).Submit(testContext(t), task)
	if !errors.Is(err, jetstream.ErrUncertain) || len(queued) != 0 {
		t.Errorf("%+v, %v; queued %d times", done, err, len(queued))
	}
}

// If a read is not answered, a denial of something else a moment ago does not say that this user may
// not read: what is believed of that is believed as long as the process lives.
func TestADenialOfSomethingElseFencesNothing(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	own := denied(t, "aee.journal.agent.b.x")
	nc := own.Conn()
	// Reads of one subject are answered, no others.
	if _, err := nc.Subscribe("lost.>", func(msg *nats.Msg) {
		if to := strings.TrimPrefix(msg.Subject, "lost."); strings.HasPrefix(to, "DIRECT.GET.AEE_REPLY.") {
			_ = nc.PublishRequest("$JS.API."+to, msg.Reply, msg.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	js, err := natsjs.NewWithAPIPrefix(nc, "lost")
	if err != nil {
		t.Fatal(err)
	}
	reply := jetstream.Reply{Entity: "agent.a", TaskID: "t", MsgID: "1", Data: []byte("x"), Header: nats.Header{jetstream.HeaderSeq: {"2"}}}
	if err := jetstream.NewReplies(own, subject.Map{}).Publish(testContext(t), reply); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func(ctx context.Context) (any, error){
		"open runs": func(ctx context.Context) (any, error) {
			s := jetstream.NewStates(js, subject.Map{})
			for _, err := range s.Open(ctx, "") {
				return s, err
			}
			return s, nil
		},
		"a watch of a run": func(ctx context.Context) (any, error) {
			s := jetstream.NewStates(js, subject.Map{})
			return s, jetstream.WatchRun(ctx, s, state.ID{Entity: "agent.a", Run: "r"}, func(state.Record) {})
		},
		"tasks": func(ctx context.Context) (any, error) {
			q := jetstream.NewQueue(js, subject.Map{})
			for _, err := range q.Peek(ctx, "normal", "agent.a", 0) {
				return q, err
			}
			return q, nil
		},
		"consumers": func(ctx context.Context) (any, error) {
			l, err := jetstream.NewQueue(js, subject.Map{}).Lane("agent.a", creating)
			return l, errors.Join(err, l.Open(ctx))
		},
		"a poll for tasks": func(ctx context.Context) (any, error) {
			q := jetstream.NewQueue(js, subject.Map{})
			n := q.NewNotifier()
			l, err := q.Lane("agent.a", jetstream.LaneOptions{Create: true, Notifier: n})
			if err != nil {
				return n, err
			}
			defer jetstream.Joined(n, l)()
			jetstream.Poll(ctx, n)
			return n, errors.New("a poll returns none")
		},
		"replies": func(ctx context.Context) (any, error) {
			r := jetstream.NewReplies(js, subject.Map{})
			for _, err := range r.Streamed(ctx, "agent.a", "t") {
				return r, err
			}
			return r, nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			of, err := read(testContext(t))
			if err == nil || jetstream.Fenced(of) {
				t.Errorf("fenced: %v, %v", jetstream.Fenced(of), err)
			}
			if errors.Is(err, jetstream.ErrDenied) && !jetstream.Away(err) {
				t.Errorf("%v is final", err)
			}
		})
	}
}

// A follower of replies goes on if a read is not answered and something else was denied a moment ago.
func TestADenialOfSomethingElseEndsNoFollow(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for name, answered := range map[string]string{"the first read": "", "a scan": "DIRECT.GET.AEE_REPLY."} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := denied(t, "aee.journal.agent.b.x")
			nc := own.Conn()
			var all atomic.Bool
			lost := make(chan struct{}, 100)
			if _, err := nc.Subscribe("lost.>", func(msg *nats.Msg) {
				to := strings.TrimPrefix(msg.Subject, "lost.")
				if all.Load() || answered != "" && strings.HasPrefix(to, answered) {
					_ = nc.PublishRequest("$JS.API."+to, msg.Reply, msg.Data)
					return
				}
				lost <- struct{}{}
			}); err != nil {
				t.Fatal(err)
			}
			js, err := natsjs.NewWithAPIPrefix(nc, "lost")
			if err != nil {
				t.Fatal(err)
			}
			reply := jetstream.Reply{Entity: "human.a", TaskID: "t", MsgID: "1", Data: []byte("x"), Header: nats.Header{jetstream.HeaderSeq: {"2"}}}
			if err := jetstream.NewReplies(own, subject.Map{}).Publish(testContext(t), reply); err != nil {
				t.Fatal(err)
			}
			got := make(chan string, 1)
			go func() {
				for m, err := range jetstream.NewReplies(js, subject.Map{}).Follow(testContext(t), "human.a", "t", jetstream.FollowOptions{}) {
					got <- fmt.Sprint(string(m.Data), err)
					return
				}
			}()
			natstest.Within(t, "a read", lost)
			all.Store(true)
			if got := natstest.Within(t, "the reply", got); got != "x<nil>" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// A user who may not subscribe to its inbox gets no answer at all, so it is told, and does not wait.
func TestADeniedInboxEndsAFollow(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "u", Password: "p", Permissions: &natsd.Permissions{Subscribe: natsd.Subjects{Deny: []string{"_INBOX.>"}}}},
	}})
	apply(t, connect(t, srv, nats.UserInfo("all", "p")), jetstream.Options{})
	js := connect(t, srv, nats.UserInfo("u", "p"))
	for _, err := range jetstream.NewReplies(js, subject.Map{}).Follow(testContext(t), "human.a", "t", jetstream.FollowOptions{}) {
		if !errors.Is(err, jetstream.ErrDenied) {
			t.Error(err)
		}
		return
	}
	t.Error("it has waited for as long as its context let it")
}

// A worker that may not update its consumers opens them as they are.
func TestADeniedUpdateOfAConsumerIsHeard(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "worker", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.CONSUMER.CREATE.>"}}}},
	}})
	js := connect(t, srv, nats.UserInfo("all", "p"))
	apply(t, js, jetstream.Options{})
	specs, err := jetstream.Consumers(subject.Map{}, "agent.x", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range specs {
		cfg := s.Config
		cfg.MaxDeliver, cfg.Metadata = 7, nil // as an older release made it
		if _, err := js.CreateConsumer(testContext(t), s.StreamName(subject.Map{}), cfg); err != nil {
			t.Fatal(err)
		}
	}
	l, err := jetstream.NewQueue(connect(t, srv, nats.UserInfo("worker", "p")), subject.Map{}).Lane("agent.x", creating)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Open(testContext(t)); err != nil || !jetstream.Fenced(l) {
		t.Errorf("error %v, an operator makes the consumers: %t", err, jetstream.Fenced(l))
	}
}

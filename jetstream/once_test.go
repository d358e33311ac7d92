package jetstream_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// squat publishes a message with a Nats-Msg-Id, to a subject that its publisher may use,
// before the real message with that id is published.
func squat(t testing.TB, js natsjs.JetStream, subj, msgID, data string) {
	t.Helper()
	ack, err := js.PublishMsg(testContext(t), &nats.Msg{Subject: subj, Data: []byte(data), Header: nats.Header{natsjs.MsgIDHeader: {msgID}}})
	if err != nil || ack.Duplicate {
		t.Fatalf("squat %s: %+v, %v", msgID, ack, err)
	}
}

// on returns the messages of a stream on a subject.
func on(t testing.TB, js natsjs.JetStream, stream, subj string) (data []string) {
	t.Helper()
	s, err := js.Stream(testContext(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); ; seq++ {
		msg, err := s.GetMsg(testContext(t), seq, natsjs.WithGetMsgSubject(subj))
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			return data
		}
		if err != nil {
			t.Fatal(err)
		}
		data, seq = append(data, string(msg.Data)), msg.Sequence
	}
}

func holds(t testing.TB, js natsjs.JetStream, stream, subj string, want ...string) {
	t.Helper()
	if got := on(t, js, stream, subj); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", subj, got, want)
	}
}

// A stream compares Nats-Msg-Ids across its subjects. A user who may publish to one
// subject, and can guess the id of a message on another one, must not keep that message
// out.
func TestASquattedMessageIDKeepsNothingOut(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{false, true} {
		js := start(t)
		apply(t, js, jetstream.Options{})
		ctx, m := testContext(t), prefix(t, "")
		queue, replies, dead, inbox := jetstream.NewQueue(js, m), jetstream.NewReplies(js, m), jetstream.NewDead(js, m), jetstream.NewInbox(js, m)
		if fenced {
			queue.Fence()
			replies.Fence()
		}
		no := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		stored := func(stream, subj string, want ...string) {
			t.Helper()
			holds(t, js, stream, subj, want...)
		}

		// Two tasks whose ids were used before: on another entity's subject, and on their
		// own.
		for i, took := range [][2]string{{"aee.work.normal.agent.a", "task-0"}, {"aee.work.normal.agent.b", "squatter"}} {
			id := "task-" + strconv.Itoa(i)
			squat(t, js, took[0], "agent.b/"+id, took[1])
			_, err := queue.Submit(ctx, jetstream.Submission{Entity: "agent.b", ID: id, Data: []byte(id)})
			no(err)
		}
		stored(jetstream.StreamWork, "aee.work.normal.agent.b", "task-0", "squatter", "task-1")

		// A dead letter must be stored before its task's message is removed.
		letter := jetstream.DeadLetter{Entity: "agent.b", TaskID: "t", Code: "E_MODEL", Subject: "aee.work.high.agent.b", Work: 7, Stored: time.Now(), Data: []byte("dead")}
		squat(t, js, "aee.dead.agent.a.x", "aee.dead.agent.b.t/7/E_MODEL", "dead")
		seq, err := dead.Put(ctx, letter)
		no(err)
		kept, err := dead.Get(ctx, seq)
		if err != nil || kept.TaskID != "t" {
			t.Fatalf("letter %d: %+v, %v", seq, kept, err)
		}
		if again, err := dead.Put(ctx, letter); again != seq || err != nil {
			t.Errorf("put again: %d, %v; want %d", again, err, seq)
		}

		// A letter is deleted when its task is queued.
		squat(t, js, "aee.work.low.agent.a", "agent.b/retry."+strconv.FormatUint(seq, 10), "dead")
		_, err = dead.Retry(ctx, seq)
		no(err)
		stored(jetstream.StreamWork, "aee.work.high.agent.b", "dead")
		if _, err := dead.Get(ctx, seq); !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("the letter: %v", err)
		}

		// A reply.
		squat(t, js, "aee.reply.agent.a.x", "refused.9", "refused")
		reply := jetstream.Reply{Entity: "agent.b", TaskID: "t", MsgID: "refused.9", Data: []byte("refused")}
		no(replies.Publish(ctx, reply))
		stored(jetstream.StreamReply, "aee.reply.agent.b.t", "refused")

		// The first reply to a task, as that to a withdrawn one.
		squat(t, js, "aee.reply.agent.a.x", "withdraw.1", "withdrawn")
		first := jetstream.Reply{Entity: "agent.b", TaskID: "w", MsgID: "withdraw.1", Data: []byte("withdrawn")}
		if _, err := replies.PublishAfter(ctx, first, 0); err != nil {
			t.Errorf("the first reply: %v", err)
		}
		if _, err := replies.PublishAfter(ctx, first, 0); !errors.Is(err, jetstream.ErrExists) {
			t.Errorf("the first reply again: %v", err)
		}
		stored(jetstream.StreamReply, "aee.reply.agent.b.w", "withdrawn")

		// A question to a person.
		squat(t, js, "human.mallory", "call-1", "question")
		no(inbox.Put(ctx, "human.bob", "call-1", []byte("question")))
		stored(jetstream.StreamHuman, "human.bob", "question")
	}
}

// A message that is published again is stored once, if the user may read the stream.
func TestAMessagePublishedAgainIsStoredOnce(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	ctx, m := testContext(t), prefix(t, "")
	for i := range 3 {
		done, err := jetstream.NewQueue(js, m).Submit(ctx, jetstream.Submission{Entity: "agent.b", ID: "t", Data: []byte("task"), Header: nats.Header{"Aee-Run": {"r"}}})
		if err != nil || done.Duplicate != (i > 0) || done.Seq != 1 {
			t.Errorf("submit: %+v, %v", done, err)
		}
		if err := jetstream.NewReplies(js, m).Publish(ctx, jetstream.Reply{Entity: "agent.b", TaskID: "t", MsgID: "r", Data: []byte(strconv.Itoa(i))}); err != nil {
			t.Error(err)
		}
		if err := jetstream.NewInbox(js, m).Put(ctx, "human.bob", "q", []byte("question")); err != nil {
			t.Error(err)
		}
	}
	holds(t, js, jetstream.StreamWork, "aee.work.normal.agent.b", "task")
	holds(t, js, jetstream.StreamReply, "aee.reply.agent.b.t", "0")
	holds(t, js, jetstream.StreamHuman, "human.bob", "question")
}

// inProcess answers like a leader that has proposed another copy of each message to its
// replicas, and does not know yet whether they have stored it.
type inProcess struct{ natsjs.JetStream }

func (inProcess) PublishMsg(context.Context, *nats.Msg, ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	return nil, &natsjs.APIError{Code: 409, ErrorCode: 10158, Description: "duplicate message id is in process"}
}

// While the first copy of a message is on its way to the replicas, because one of them is
// down, the server refuses the second one. Whether the message is stored is unknown: the
// sender tries again.
func TestAMessageWhoseFirstCopyIsInProcessIsUncertain(t *testing.T) {
	t.Parallel()
	js := inProcess{start(t)}
	ctx, m := testContext(t), prefix(t, "")
	if err := jetstream.NewInbox(js, m).Put(ctx, "human.ada", "id", []byte("{}")); !errors.Is(err, jetstream.ErrUncertain) {
		t.Errorf("inbox: %v", err)
	}
	if err := jetstream.NewReplies(js, m).Publish(ctx, jetstream.Reply{Entity: "agent.x", TaskID: "t", MsgID: "t.1", Data: []byte("{}")}); !errors.Is(err, jetstream.ErrUncertain) {
		t.Errorf("replies: %v", err)
	}
	if _, err := jetstream.NewQueue(js, m).Submit(ctx, jetstream.Submission{Entity: "agent.x", ID: "t", Data: []byte("{}")}); !errors.Is(err, jetstream.ErrUncertain) {
		t.Errorf("queue: %v", err)
	}
}

// The server says that it has a message with this id, and the sender cannot read which one for
// now. It is not stored a second time: the sender tries again.
func TestAMessageThatCannotBeLookedForIsUncertain(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js, out := connect(t, srv), natstest.NewOutage(t, srv)
	apply(t, js, jetstream.Options{})
	ctx, m, refusing := testContext(t), prefix(t, ""), out.JetStream(t, js.Conn())
	for name, publish := range map[string]func(natsjs.JetStream) error{
		"a task": func(js natsjs.JetStream) error {
			_, err := jetstream.NewQueue(js, m).Submit(ctx, jetstream.Submission{Entity: "agent.b", ID: "t", Data: []byte("once")})
			return err
		},
		"a reply": func(js natsjs.JetStream) error {
			return jetstream.NewReplies(js, m).Publish(ctx, jetstream.Reply{Entity: "agent.b", TaskID: "t", MsgID: "r", Data: []byte("once")})
		},
		"a question": func(js natsjs.JetStream) error {
			return jetstream.NewInbox(js, m).Put(ctx, "human.bob", "q", []byte("once"))
		},
	} {
		if err := publish(js); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out.RefuseFirst(1)
		if err := publish(refusing); !errors.Is(err, jetstream.ErrUncertain) {
			t.Errorf("%s that cannot be looked for: %v", name, err)
		}
		if err := publish(refusing); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
	}
	holds(t, js, jetstream.StreamWork, "aee.work.normal.agent.b", "once")
	holds(t, js, jetstream.StreamReply, "aee.reply.agent.b.t", "once")
	holds(t, js, jetstream.StreamHuman, "human.bob", "once")
}

// Of several replies to one message, the first one that counts is stored, whatever ids they have
// and what else is stored on the subject.
func TestAReplyIsStoredUnlessOneCounts(t *testing.T) {
	t.Parallel()
	const subj = "aee.reply.agent.b.t"
	counts := func(m jetstream.Message) bool { return string(m.Data) == "counts" }
	for name, c := range map[string]struct {
		before func(t *testing.T, js natsjs.JetStream)
		want   []string
	}{
		"nothing is there":         {func(*testing.T, natsjs.JetStream) {}, []string{"counts"}},
		"the id is on another":     {func(t *testing.T, js natsjs.JetStream) { squat(t, js, "aee.reply.agent.a.x", "r", "forged") }, []string{"counts"}},
		"the id is on this one":    {func(t *testing.T, js natsjs.JetStream) { squat(t, js, subj, "r", "forged") }, []string{"forged", "counts"}},
		"another reply is there":   {func(t *testing.T, js natsjs.JetStream) { squat(t, js, subj, "x", "forged") }, []string{"forged", "counts"}},
		"one that counts is there": {func(t *testing.T, js natsjs.JetStream) { squat(t, js, subj, "x", "counts") }, []string{"counts"}},
		"an answer of the server, too": {func(t *testing.T, js natsjs.JetStream) {
			squat(t, js, subj, "x", "counts")
			strayOn(t, js, jetstream.StreamReply, subj)
		}, []string{"counts", "{"}},
	} {
		for _, fenced := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				js := start(t)
				apply(t, js, jetstream.Options{})
				c.before(t, js)
				var all sync.WaitGroup
				for range 4 {
					replies := jetstream.NewReplies(js, prefix(t, ""))
					if fenced {
						replies.Fence()
					}
					all.Go(func() {
						if err := replies.PublishUnless(testContext(t), jetstream.Reply{Entity: "agent.b", TaskID: "t", MsgID: "r", Data: []byte("counts")}, counts); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				got := on(t, js, jetstream.StreamReply, subj)
				for i := range got {
					if got[i][0] == '{' {
						got[i] = "{"
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		}
	}
}

// Other messages that are stored all the time do not keep a reply out.
func TestAFloodOfMessagesKeepsNoReplyOut(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	replies, looks := jetstream.NewReplies(js, prefix(t, "")), 0
	squat(t, js, "aee.reply.agent.b.t", "x", "flood")
	err := replies.PublishUnless(testContext(t), jetstream.Reply{Entity: "agent.b", TaskID: "t", MsgID: "r", Data: []byte("counts")}, func(jetstream.Message) bool {
		looks++
		squat(t, js, "aee.reply.agent.b.t", "x"+strconv.Itoa(looks), "flood")
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := on(t, js, jetstream.StreamReply, "aee.reply.agent.b.t"); !slices.Contains(got, "counts") {
		t.Errorf("%d messages, and not the reply", len(got))
	}
}

// A worker that takes tasks over may publish replies for the agent that they were sent to, and reads
// none of them. A reply that is there keeps its own out no more than one that it may read.
func TestAReplyUnlessOneCountsNeedsNoRightToRead(t *testing.T) {
	t.Parallel()
	admin, taker := permitted(t, "aee.reply.agent.b.*")
	apply(t, admin, jetstream.Options{})
	squat(t, admin, "aee.reply.agent.b.t", "earlier", "part")
	reply := jetstream.Reply{Entity: "agent.b", TaskID: "t", MsgID: "refused.1", Data: []byte("refused")}
	err := jetstream.NewReplies(taker, prefix(t, "")).PublishUnless(testContext(t), reply, func(jetstream.Message) bool {
		t.Error("it has read a reply")
		return false
	})
	if err != nil {
		t.Error(err)
	}
	holds(t, admin, jetstream.StreamReply, "aee.reply.agent.b.t", "part", "refused")
}

package jetstream_test

import (
	"errors"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/state"
)

// wrongStream is nats-server's code for a message that expects another stream.
const wrongStream natsjs.ErrorCode = 10060

// A write counts as stored only if the stream of the mesh stores it. Another stream may take its
// subject, a backup of all for one, and acknowledges what it stores: no reader looks there.
func TestAWriteIsForTheStreamOfTheMesh(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, m := testContext(t), subject.Map{}
	covered, none := state.ID{Entity: "agent.x", Run: "covered"}, state.ID{Entity: "agent.x", Run: "none"}
	retried := jetstream.DeadLetter{Entity: "agent.x", TaskID: "retried", Subject: "aee.work.normal.agent.x", Data: []byte("task")}
	putRun(t, s, covered, 0, []byte("x"), jetstream.Note{})
	for _, id := range []state.ID{covered, none} {
		subj := "$KV.aee_state.agent.x." + id.Run
		if err := js.Conn().PublishRequest("$JS.API.STREAM.INFO.KV_aee_state", subj, nil); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the answer to be stored", func() bool {
			last, err := jetstream.LastOn(ctx, js, "KV_aee_state", subj)
			return err == nil && !last.Genuine()
		})
	}
	dead := jetstream.NewDead(js, m)
	letter, err := dead.Put(ctx, retried)
	if err != nil {
		t.Fatal(err)
	}
	other := anotherStream(t, js)
	replies, reply := jetstream.NewReplies(js, m), jetstream.Reply{Entity: "agent.x", TaskID: "t", MsgID: "m", Data: []byte(`{}`)}
	id := state.ID{Entity: "agent.x", Run: "r"}
	for name, write := range map[string]func() error{
		"checkpoint":       func() error { _, err := s.Put(ctx, id, 0, []byte("x")); return err },
		"large checkpoint": func() error { _, err := s.Put(ctx, id, 0, make([]byte, jetstream.MaxInline+1)); return err },
		"handoff":          func() error { _, err := jetstream.NewHandoffs(js, m).Put(ctx, id, 0, []byte("x")); return err },
		"reply of a run": func() error {
			_, err := s.Reply(ctx, id, 0, reply, jetstream.Note{Status: aaif.RunCompleted}, &state.End{TaskID: "t"})
			return err
		},
		"deletion":               func() error { return s.Delete(ctx, id) },
		"restoration":            func() error { _, err := s.Get(ctx, covered); return err },
		"restoration of nothing": func() error { _, err := s.Get(ctx, none); return err },
		"reply":                  func() error { return replies.Publish(ctx, reply) },
		"reply, asynchronous": func() error {
			sent, err := replies.PublishAsync(reply)
			if err == nil {
				_, err = sent.Wait(ctx)
			}
			return err
		},
		"first reply": func() error { _, err := replies.PublishAfter(ctx, reply, 0); return err },
		"task": func() error {
			_, err := jetstream.NewQueue(js, m).Submit(ctx, jetstream.Submission{Entity: "agent.x", ID: "t", Data: []byte("x")})
			return err
		},
		"delayed task": func() error {
			_, err := jetstream.NewQueue(js, m).Submit(ctx, jetstream.Submission{Entity: "agent.x", ID: "t", Data: []byte("x"), At: time.Now().Add(time.Hour)})
			return err
		},
		"dead letter": func() error {
			_, err := dead.Put(ctx, jetstream.DeadLetter{Entity: "agent.x", TaskID: "t", Data: []byte("x")})
			return err
		},
		"permit to retry": func() error { _, err := dead.Retry(ctx, letter); return err },
		"inbox":           func() error { return jetstream.NewInbox(js, m).Put(ctx, "human.ada", "m", []byte("x")) },
		"journal":         func() error { return jetstream.NewJournal(js, m).Put(ctx, "agent.x", "id", []byte("x")) },
		"key":             func() error { _, err := jetstream.NewKeys(js, m).Create(ctx, "k", []byte("x")); return err },
		"refutation":      func() error { return jetstream.NewRefutations(js, m).Add(ctx, "agent.x", "id", []byte(`{}`)) },
		"id": func() error {
			_, err := seen.New(js, m, time.Minute).Claim(ctx, "agent.x", "12345678", "by")
			return err
		},
		"slot": func() error { _, err := slot.NewStore(js, m, time.Minute).Try(ctx, "agent.x", 1, "by"); return err },
	} {
		var refusal *natsjs.APIError
		if err := write(); !errors.As(err, &refusal) || refusal.ErrorCode != wrongStream {
			t.Errorf("%s: %v", name, err)
		}
		info, err := other.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n := info.State.Msgs; n != 0 {
			t.Errorf("%s: the other stream has %d messages", name, n)
			if err := other.Purge(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// anotherStream moves the subjects of all streams of the mesh to a stream that is none of its.
func anotherStream(t testing.TB, js natsjs.JetStream) natsjs.Stream {
	t.Helper()
	ctx := testContext(t)
	all := natsjs.StreamConfig{Name: "OTHER", AllowMsgTTL: true, AllowMsgSchedules: true, AllowRollup: true}
	for _, spec := range jetstream.Topology() {
		name := map[jetstream.Kind]string{jetstream.KindBucket: "KV_", jetstream.KindObjects: "OBJ_"}[spec.Kind] + spec.Name
		stream, err := js.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		if cfg.AllowMsgCounter { // what it stores is read from its acknowledgement
			continue
		}
		all.Subjects = append(all.Subjects, cfg.Subjects...)
		cfg.Subjects = []string{"moved." + name + ".>"}
		if _, err := js.UpdateStream(ctx, cfg); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	other, err := js.CreateStream(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

package jetstream_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// restoring starts a server with streams, in which a function stores something, and keeps a copy of
// its store. back puts the copy in the place of the store, as an operator does who restores a backup:
// what was stored since is lost, and its sequences are given again.
func restoring(t *testing.T, opts jetstream.Options, store func(natsjs.JetStream)) (js natsjs.JetStream, back func()) {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js = connect(t, srv)
	apply(t, js, opts)
	store(js)
	older, dir := t.TempDir(), srv.Config().StoreDir
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	again := func(do func() error) {
		srv.Close()
		must(do())
		srv = natstest.Run(t, srv.Config())
		waitFor(t, "the connection", func() bool {
			_, err := js.AccountInfo(brief(t))
			return err == nil
		})
	}
	again(func() error { return os.CopyFS(older, os.DirFS(dir)) })
	return js, func() {
		again(func() error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.CopyFS(dir, os.DirFS(older))
		})
	}
}

// The new messages of a stream that was restored from an older copy have sequences that were read.
func TestReplayFollowsAStreamThatIsRestored(t *testing.T) {
	t.Parallel()
	for _, more := range []int{2, 9} { // fewer than were lost, and more
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			t.Parallel()
			js, back := restoring(t, jetstream.Options{Only: []string{jetstream.StreamBus, jetstream.StreamHuman}}, func(js natsjs.JetStream) {
				publish(t, js, "bus.kept", "bus.kept", "human.kept")
			})
			for range 4 {
				publish(t, js, "bus.lost")
			}
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			var got, want []string
			for msg, err := range jetstream.Replay(ctx, js, jetstream.ReplayOptions{Follow: true}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, msg.Subject)
				if len(got) == 7 {
					back()
					for i := range more {
						subj := fmt.Sprint("bus.new", i)
						want = append(want, subj)
						publish(t, js, subj)
					}
				}
				if len(got) == 7+more {
					cancel()
				}
			}
			if len(got) < 7 || !slices.Equal(got[7:], want) {
				t.Errorf("got %q, want %q at the end", got, want)
			}
		})
	}
}

// Who follows a task gets its terminal reply though the stream was restored from an older copy, and
// the reply came while the connection was lost.
func TestAFollowerFindsTheReplyInAStreamThatIsRestored(t *testing.T) {
	t.Parallel()
	m := subject.Map{}
	put := func(js natsjs.JetStream, entity, id string) {
		t.Helper()
		if err := jetstream.NewReplies(js, m).Publish(testContext(t), jetstream.Reply{Entity: entity, TaskID: "t1", MsgID: id, Data: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	js, back := restoring(t, jetstream.Options{Only: append([]string{jetstream.StreamReply}, states...)}, func(js natsjs.JetStream) { put(js, "human.ada", "kept") })
	for i := range 5 {
		put(js, "human.ada", fmt.Sprint("lost", i))
	}
	follower := jetstream.NewReplies(js, m)
	var got []string
	for msg, err := range follower.Follow(testContext(t), "human.ada", "t1", jetstream.FollowOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(msg.Data))
		if len(got) == 6 {
			back()
			unheard(t, js, "aee.reply.human.ada.t1", "new")
		}
		if string(msg.Data) == "new" {
			return
		}
	}
	t.Errorf("got %q", got)
}

// unheard stores a message on a subject as if no subscriber had heard it.
func unheard(t *testing.T, js natsjs.JetStream, subj, id string) {
	t.Helper()
	stream, err := js.Stream(testContext(t), jetstream.StreamReply)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	subjects := cfg.Subjects
	cfg.Subjects, cfg.SubjectTransform = append([]string{"unheard.>"}, subjects...), &natsjs.SubjectTransformConfig{Source: "unheard.>", Destination: ">"}
	if _, err := js.UpdateStream(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(testContext(t), "unheard."+subj, []byte(id), natsjs.WithMsgID(id)); err != nil {
		t.Fatal(err)
	}
}

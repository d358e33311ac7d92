package jetstream_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
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

// A watch reports a run that has a lower revision than before, though the bucket has as many messages
// as before when the connection is back.
func TestAWatchReportsARunOfABucketThatIsRestored(t *testing.T) {
	t.Parallel()
	m, id := subject.Map{}, state.ID{Entity: "agent.x", Run: "r"}
	js, back := restoring(t, jetstream.Options{Only: states}, func(js natsjs.JetStream) {
		putRun(t, jetstream.NewStates(js, m), id, 0, []byte("kept"), jetstream.Note{})
	})
	s := jetstream.NewStates(js, m)
	rev := uint64(1)
	for range 4 {
		rev = putRun(t, s, id, rev, []byte("lost"), jetstream.Note{})
	}
	nc, err := nats.Connect(js.Conn().ConnectedUrl(), nats.ReconnectWait(time.Hour), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	own, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	heard, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- jetstream.NewStates(own, m).Watch(ctx, state.ID{}, func(r state.Record) { heard <- r.ID.Run + " " + string(r.Data) })
	}()
	hears := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-heard:
				if got == want {
					return
				}
			case err := <-ended:
				t.Fatalf("the watch has ended: %v", err)
			case <-time.After(patience):
				t.Fatalf("it does not report %q", want)
			}
		}
	}
	hears("r lost")
	back()
	putRun(t, s, id, 1, []byte("new"), jetstream.Note{})
	for i := range 9 {
		putRun(t, s, state.ID{Entity: "agent.x", Run: fmt.Sprint("other", i)}, 0, []byte("other"), jetstream.Note{})
	}
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	hears("r new")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// watchEmpty starts a watch of a store without runs, and then makes one. Once that is reported, the
// watch has read everything, and goes on whatever becomes of the bucket.
func watchEmpty(t *testing.T, js natsjs.JetStream, s *jetstream.States, id state.ID, data string) (heard chan string, ended chan error, stop context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	opened := requestsTo(t, js, "$JS.API.CONSUMER.CREATE.KV_aee_state.>", "")
	heard, ended = make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, state.ID{}, func(r state.Record) { heard <- r.ID.Run + " " + string(r.Data) })
	}()
	waitFor(t, "the watch to open", func() bool { return opened.Load() > 0 })
	putRun(t, s, id, 0, []byte(data), jetstream.Note{})
	if got, want := natstest.Within(t, "the run", heard), id.Run+" "+data; got != want {
		t.Fatalf("reported is %q, want %q", got, want)
	}
	return heard, ended, cancel
}

// The bucket is made anew, or restored, under a connection that holds: only the watch's consumer is lost.
// nats.go would go on with another one behind the last sequence that was read.
func TestAWatchReportsTheRunsOfABucketThatIsMadeAnewMeanwhile(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	id := state.ID{Entity: "agent.x", Run: "r"}
	heard, ended, cancel := watchEmpty(t, js, s, id, "lost")
	rev := uint64(1)
	for range 3 {
		rev = putRun(t, s, id, rev, []byte("lost"), jetstream.Note{})
	}
	if err := js.DeleteStream(testContext(t), "KV_aee_state"); err != nil {
		t.Fatal(err)
	}
	apply(t, js, jetstream.Options{Only: states})
	putRun(t, s, id, 0, []byte("new"), jetstream.Note{})
	for got := ""; got != "r new"; {
		select {
		case got = <-heard:
		case err := <-ended:
			t.Fatalf("the watch has ended: %v", err)
		case <-time.After(patience):
			t.Fatal("it does not report the new run")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A watch whose consumer is lost reads the bucket again, and reports no run twice.
func TestAWatchWhoseConsumerIsLostRepeatsNoReport(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	one, two := state.ID{Entity: "agent.x", Run: "one"}, state.ID{Entity: "agent.x", Run: "two"}
	putRun(t, s, one, 0, []byte("same"), jetstream.Note{})
	rev := putRun(t, s, two, 0, []byte("before"), jetstream.Note{})
	heard := make(chan string, 100)
	go func() {
		_ = s.Watch(testContext(t), state.ID{}, func(r state.Record) { heard <- r.ID.Run + " " + string(r.Data) })
	}()
	for _, want := range []string{"one same", "two before"} {
		if got := natstest.Within(t, want, heard); got != want {
			t.Errorf("reported is %q, want %q", got, want)
		}
	}
	made := requestsTo(t, js, "$JS.API.CONSUMER.CREATE.KV_aee_state.>", "")
	stream, err := js.Stream(testContext(t), "KV_aee_state")
	if err != nil {
		t.Fatal(err)
	}
	for name := range stream.ConsumerNames(testContext(t)).Name() {
		if err := stream.DeleteConsumer(testContext(t), name); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the bucket to be read again", func() bool { return made.Load() > 1 }) // nats.go makes one, too
	putRun(t, s, two, rev, []byte("after"), jetstream.Note{})
	if got := natstest.Within(t, "the change", heard); got != "two after" {
		t.Errorf("reported is %q", got)
	}
}

// A watch whose bucket is gone ends with its context.
func TestAWatchEndsThoughItsBucketIsGone(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	_, ended, cancel := watchEmpty(t, js, s, state.ID{Entity: "agent.x", Run: "r"}, "kept")
	tries := requestsTo(t, js, "$JS.API.CONSUMER.CREATE.KV_aee_state.>", "")
	if err := js.DeleteStream(testContext(t), "KV_aee_state"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "another consumer to be asked for", func() bool { return tries.Load() > 0 })
	cancel()
	if err := natstest.Within(t, "the end of the watch", ended); err != nil {
		t.Error(err)
	}
}

// A user who may create no consumer polls, and learns of another record under the same sequence, too.
func TestAPollingWatchReportsTheRunsOfABucketThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	s.Fence()
	id := state.ID{Entity: "agent.x", Run: "r"}
	putRun(t, s, id, 0, []byte("lost"), jetstream.Note{})
	heard := make(chan string, 64)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := s.Watch(ctx, id, func(r state.Record) { heard <- string(r.Data) }); err != nil {
			t.Error(err)
		}
	})
	defer watching.Wait()
	defer cancel()
	wait := func(want string) {
		t.Helper()
		for got := ""; got != want; {
			select {
			case got = <-heard:
			case <-time.After(patience):
				t.Fatalf("it does not report %q", want)
			}
		}
	}
	wait("lost")
	if err := js.DeleteStream(testContext(t), "KV_aee_state"); err != nil {
		t.Fatal(err)
	}
	apply(t, js, jetstream.Options{Only: states})
	putRun(t, s, id, 0, []byte("new"), jetstream.Note{})
	wait("new")
}

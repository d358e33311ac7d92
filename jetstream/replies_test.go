package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
)

// reply returns the nth reply to a task, with its number.
func reply(n int) jetstream.Reply {
	return jetstream.Reply{
		Entity: "agent.x", TaskID: "t 1", MsgID: fmt.Sprint("run.", n), Data: fmt.Append(nil, n),
		Header: nats.Header{jetstream.HeaderSeq: {strconv.Itoa(n)}, "Nats-TTL": {"not mine to say"}},
	}
}

func answer(t testing.TB, r *jetstream.Replies, replies ...jetstream.Reply) {
	t.Helper()
	for _, one := range replies {
		if err := r.Publish(testContext(t), one); err != nil {
			t.Fatal(err)
		}
	}
}

// take reads n messages from a sequence, or all of them if n is 0.
func take(t testing.TB, n int, seq iter.Seq2[jetstream.Message, error]) []jetstream.Message {
	t.Helper()
	var got []jetstream.Message
	for msg, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, msg); len(got) == n {
			break
		}
	}
	if n > 0 && len(got) < n {
		t.Fatalf("%d of %d replies", len(got), n)
	}
	return got
}

func bodies(messages []jetstream.Message) string {
	var all []string
	for _, m := range messages {
		all = append(all, string(m.Data))
	}
	return strings.Join(all, " ")
}

func TestRepliesAreStoredOnce(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "acme.eu"} {
		ctx, js, m := testContext(t), start(t), prefix(t, p)
		r := jetstream.NewReplies(js, m)
		if err := r.Publish(ctx, reply(1)); !errors.Is(err, jetstream.ErrUnavailable) {
			t.Errorf("without the stream: %v", err)
		}
		apply(t, js, jetstream.Options{Map: m})
		if _, err := r.Last(ctx, "agent.x", "t 1"); !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("none yet: %v", err)
		}
		if got := take(t, 0, r.Read(ctx, "agent.x", "t 1", 0)); len(got) != 0 {
			t.Errorf("none yet: %v", got)
		}
		var sent []*jetstream.Sent
		for _, n := range []int{1, 2, 1, 3, 3} {
			s, err := r.PublishAsync(reply(n))
			if err != nil {
				t.Fatal(err)
			}
			sent = append(sent, s)
		}
		for i, s := range sent {
			if dup, err := s.Wait(ctx); err != nil || dup != (i == 2 || i == 4) {
				t.Errorf("%d: duplicate %t, %v", i, dup, err)
			}
		}
		other := reply(9)
		other.TaskID = "t 2"
		answer(t, r, reply(3), other)
		got := take(t, 0, r.Read(ctx, "agent.x", "t 1", 0))
		if bodies(got) != "1 2 3" || got[0].Header.Get(jetstream.HeaderSeq) != "1" || got[0].Seq != 1 || got[0].Time.IsZero() || got[0].Header.Get("Nats-TTL") != "" {
			t.Errorf("read %v", got)
		}
		if got := take(t, 0, r.Read(ctx, "agent.x", "t 1", 2)); bodies(got) != "3" {
			t.Errorf("behind 2: %v", got)
		}
		last, err := r.Last(ctx, "agent.x", "t 1")
		if err != nil || string(last.Data) != "3" || last.Seq != 3 || last.Header.Get(jetstream.HeaderSeq) != "3" || last.Time.IsZero() {
			t.Errorf("last %+v, %v", last, err)
		}
		bad := reply(1)
		bad.MsgID = ""
		for _, one := range []jetstream.Reply{{Entity: "agent.*", TaskID: "t"}, bad} {
			if err := r.Publish(ctx, one); err == nil {
				t.Errorf("published %+v", one)
			}
			if _, err := r.PublishAsync(one); err == nil {
				t.Errorf("published %+v", one)
			}
		}
	}
}

func TestRepliesFind(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	r := jetstream.NewReplies(js, subject.Map{})
	deepest := "agent" + strings.Repeat(".x", jetstream.FindDepth-1)
	for _, entity := range []string{"agent.x", "agent.x.y.z", deepest, deepest + ".x"} {
		for _, n := range []int{1, 2} {
			one := reply(n)
			one.Entity, one.MsgID = entity, entity+one.MsgID
			answer(t, r, one)
		}
	}
	got, err := r.Find(ctx, "t 1")
	if want := []string{"agent.x", deepest, "agent.x.y.z"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("found %q, %v", got, err)
	}
	if _, err := r.Find(ctx, "t 2"); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("nobody's: %v", err)
	}
	if _, err := r.Find(ctx, ""); err == nil {
		t.Error("an empty id")
	}
}

func TestFollowStoredThenLive(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	r := jetstream.NewReplies(js, subject.Map{})
	answer(t, r, reply(1), reply(2))
	var got []jetstream.Message
	for msg, err := range r.Follow(ctx, "agent.x", "t 1", jetstream.FollowOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, msg)
		switch len(got) {
		case 2:
			answer(t, r, reply(3), reply(2), reply(4)) // one of them published again
		case 4:
			answer(t, r, reply(5))
		}
		if string(msg.Data) == "5" {
			break
		}
	}
	if bodies(got) != "1 2 3 4 5" || got[1].Seq != 2 || got[4].Seq != 0 {
		t.Errorf("followed %v", got)
	}
	got = take(t, 2, r.Follow(ctx, "agent.x", "t 1", jetstream.FollowOptions{After: 3}))
	if bodies(got) != "4 5" {
		t.Errorf("behind 3: %v", got)
	}
}

// doors is a dialer that fails while it is closed.
type doors struct{ closed atomic.Bool }

func (d *doors) Dial(network, address string) (net.Conn, error) {
	if d.closed.Load() {
		return nil, errors.New("the doors are closed")
	}
	return net.Dial(network, address)
}

// The end of the try that failed is stored while a retry goes on: a follower of the retry reads
// what that has streamed, also what it has missed.
func TestFollowARetryBesideTheOldEnd(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"1", "3"} { // of the end of the first try, which streamed nothing, or two texts
		ctx, srv, line := testContext(t), natstest.Run(t, natsd.Config{JetStream: true}), &doors{}
		js, far := connect(t, srv), connect(t, srv, nats.SetCustomDialer(line), nats.ReconnectWait(time.Millisecond), nats.MaxReconnects(-1))
		apply(t, js, jetstream.Options{})
		r, s := jetstream.NewReplies(js, subject.Map{}), jetstream.NewStates(js, subject.Map{})
		id := state.ID{Entity: "agent.x", Run: state.RunID("agent.x", "t 1")}
		end := func(prev uint64, number, epoch, text string) uint64 {
			reply := jetstream.Reply{MsgID: "end." + epoch, Data: []byte(text), Header: nats.Header{jetstream.HeaderSeq: {number}, "Aee-Epoch": {epoch}}}
			rev, err := s.Reply(ctx, id, prev, reply, jetstream.Note{Status: "failed"}, &state.End{TaskID: "t 1"})
			if err != nil {
				t.Fatal(err)
			}
			return rev
		}
		failed := end(0, number, "1", "failed")
		text := func(n int) jetstream.Reply {
			one := reply(n)
			one.Header["Aee-Epoch"] = []string{"2"}
			return one
		}
		answer(t, r, text(1), text(2))
		old := func(h nats.Header) bool { return h.Get("Aee-Epoch") == "1" }
		var got []string
		for msg, err := range jetstream.NewReplies(far, subject.Map{}).Follow(ctx, "agent.x", "t 1", jetstream.FollowOptions{Old: old}) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, string(msg.Data)); string(msg.Data) == "done" {
				break
			}
			if len(got) == 2 { // the follower misses the next one
				line.closed.Store(true)
				if err := far.Conn().ForceReconnect(); err != nil {
					t.Fatal(err)
				}
				waitFor(t, "the connection to be gone", func() bool { return !far.Conn().IsConnected() })
				answer(t, r, text(3))
				end(failed, "4", "2", "done")
				line.closed.Store(false)
			}
		}
		if strings.Join(got, " ") != "1 2 3 done" {
			t.Errorf("after an end with the number %s: followed %q", number, got)
		}
	}
}

// A follower that subscribes before the task is submitted receives the replies from their
// publisher, without a request to the server: it has no permission for one.
func TestFollowFreshAsksNothing(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "ears", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{">"}}}},
	}})
	js := connect(t, srv, nats.UserInfo("all", "p"))
	apply(t, js, jetstream.Options{})
	ears := connect(t, srv, nats.UserInfo("ears", "p"))
	f, err := jetstream.NewReplies(ears, subject.Map{}).Open("agent.x", "t 1")
	if err != nil {
		t.Fatal(err)
	}
	if err := ears.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	r := jetstream.NewReplies(js, subject.Map{})
	answer(t, r, reply(1), reply(2), reply(3))
	got := take(t, 3, f.Messages(testContext(t), jetstream.FollowOptions{Fresh: true}))
	if bodies(got) != "1 2 3" || got[2].Seq != 0 {
		t.Errorf("followed %v", got)
	}
	f.Close()
	// If a request is needed, its error is returned.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for msg, err := range jetstream.NewReplies(ears, subject.Map{}).Follow(ctx, "agent.x", "t 1", jetstream.FollowOptions{}) {
		if !errors.Is(err, jetstream.ErrDenied) {
			t.Errorf("%v, %v", msg, err)
		}
	}
}

// A follower notices by the number that a reply was lost, and reads it from the stream
// before it yields the next one. Followers reuse each other's buffers; messages left in a
// buffer must not be yielded.
func TestFollowersShareNoMessages(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{Only: []string{jetstream.StreamReply}})
	r := jetstream.NewReplies(js, subject.Map{})
	of := func(task, n int) jetstream.Reply {
		one := reply(n)
		one.TaskID, one.Data = strconv.Itoa(task), fmt.Append(nil, task)
		one.MsgID = fmt.Sprint(task, ".", n)
		return one
	}
	for task := range 10 {
		f, err := r.Open("agent.x", strconv.Itoa(task))
		if err != nil {
			t.Fatal(err)
		}
		answer(t, r, of(task, 1), of(task, 2), of(task, 3))
		if err := js.Conn().Flush(); err != nil { // all three have arrived
			t.Fatal(err)
		}
		for msg, err := range f.Messages(testContext(t), jetstream.FollowOptions{Fresh: true}) {
			if err != nil || string(msg.Data) != strconv.Itoa(task) {
				t.Fatalf("task %d hears %q, %v", task, msg.Data, err)
			}
			break // leaves two in the buffer
		}
	}
}

func TestFollowMissesAReply(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	r := jetstream.NewReplies(js, subject.Map{})
	answer(t, r, reply(1), reply(2), reply(3)) // before the follower subscribes
	f, err := r.Open("agent.x", "t 1")
	if err != nil {
		t.Fatal(err)
	}
	answer(t, r, reply(4))
	if got := take(t, 4, f.Messages(ctx, jetstream.FollowOptions{Fresh: true})); bodies(got) != "1 2 3 4" {
		t.Errorf("followed %q", bodies(got))
	}
	// A reply that was never stored does not hold up the others for ever.
	if f, err = r.Open("agent.x", "t 2"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 3} {
		one := reply(n)
		one.TaskID, one.MsgID = "t 2", "two"+one.MsgID
		answer(t, r, one)
	}
	if got := take(t, 2, f.Messages(ctx, jetstream.FollowOptions{Fresh: true})); bodies(got) != "1 3" {
		t.Errorf("followed %q", bodies(got))
	}
}

// A worker that had lost its run published another reply with the terminal reply's
// number: the terminal reply is yielded all the same.
func TestFollowTerminalWithATakenNumber(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	r := jetstream.NewReplies(js, subject.Map{})
	f, err := r.Open("agent.x", "t 1")
	if err != nil {
		t.Fatal(err)
	}
	zombie, terminal := reply(2), reply(2)
	zombie.MsgID, zombie.Data = "run.zombie", []byte("zombie")
	terminal.MsgID, terminal.Data = "run.result", []byte("result")
	terminal.Header.Set(jetstream.HeaderStreamCount, "1")
	answer(t, r, reply(1), zombie, terminal, terminal)
	for _, f := range []iter.Seq2[jetstream.Message, error]{
		f.Messages(ctx, jetstream.FollowOptions{Fresh: true}), r.Follow(ctx, "agent.x", "t 1", jetstream.FollowOptions{}),
	} {
		if got := take(t, 3, f); bodies(got) != "1 zombie result" {
			t.Errorf("followed %q", bodies(got))
		}
	}
}

// Replies of other programs, without number or id, are yielded once and in order, too.
func TestFollowRepliesWithoutNumbers(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	r := jetstream.NewReplies(js, subject.Map{})
	f, err := r.Open("agent.x", "t")
	if err != nil {
		t.Fatal(err)
	}
	subj, _ := subject.Map{}.Reply("agent.x", "t")
	const many = 5000 // more than the follower remembers
	var publishing sync.WaitGroup
	defer publishing.Wait()
	publishing.Go(func() {
		for i := range many {
			msg := &nats.Msg{Subject: subj, Data: fmt.Append(nil, i), Header: nats.Header{}}
			if i%500 != 0 {
				msg.Header.Set("Nats-Msg-Id", fmt.Sprint("m", i))
			}
			if _, err := js.PublishMsgAsync(msg); err != nil {
				t.Error(err)
				return
			}
			if i%500 == 499 {
				<-js.PublishAsyncComplete()
			}
		}
	})
	got := take(t, many, f.Messages(ctx, jetstream.FollowOptions{Fresh: true}))
	for i, msg := range got {
		if string(msg.Data) != fmt.Sprint(i) {
			t.Fatalf("at %d: %q", i, msg.Data)
		}
	}
}

// The caller is slow, and more replies arrive than fit in its buffer.
func TestFollowSlowly(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	r := jetstream.NewReplies(js, subject.Map{})
	const many = 2000
	var got []jetstream.Message
	f, err := r.Open("agent.x", "t 1")
	if err != nil {
		t.Fatal(err)
	}
	answer(t, r, reply(1))
	for msg, err := range f.Messages(ctx, jetstream.FollowOptions{Fresh: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, msg); len(got) == 1 {
			for n := 2; n < many; n++ {
				if _, err := r.PublishAsync(reply(n)); err != nil {
					t.Fatal(err)
				}
			}
			answer(t, r, reply(many)) // after all of them
		}
		if len(got) == many {
			break
		}
	}
	for i, msg := range got {
		if string(msg.Data) != fmt.Sprint(i+1) {
			t.Fatalf("at %d: %q", i, msg.Data)
		}
	}
}

// Whatever happens to the server, each reply is yielded once and in order.
func TestFollowAcrossReconnects(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	r := jetstream.NewReplies(js, subject.Map{})
	f, err := r.Open("agent.x", "t 1")
	if err != nil {
		t.Fatal(err)
	}
	answer(t, r, reply(1))
	n, numbered := 1, true
	next := func(r *jetstream.Replies) {
		n++
		one := reply(n)
		if !numbered {
			one.Header = nil
		}
		waitFor(t, "a reply to be stored", func() bool { return r.Publish(brief(t), one) == nil })
	}
	var got []jetstream.Message
	for msg, err := range f.Messages(ctx, jetstream.FollowOptions{Fresh: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, msg)
		if string(msg.Data) != fmt.Sprint(len(got)) {
			t.Fatalf("at %d: %q", len(got), msg.Data)
		}
		if len(got) < n {
			continue
		}
		if n > 12 {
			break
		}
		numbered = n < 6
		// Some replies while the follower is disconnected, at another port, and one after
		// that.
		srv.Close()
		cfg := srv.Config()
		port := cfg.Port
		cfg.Port = natsd.RandomPort
		away := natstest.Run(t, cfg)
		others := jetstream.NewReplies(connect(t, away), subject.Map{})
		next(others)
		next(others)
		away.Close()
		cfg.Port = port
		srv = natstest.Run(t, cfg)
		next(r)
	}
}

func TestFollowEnds(t *testing.T) {
	t.Parallel()
	js := start(t)
	r := jetstream.NewReplies(js, subject.Map{})
	if _, err := r.Open("agent.*", "t"); err == nil {
		t.Error("followed a pattern")
	}
	for _, err := range r.Follow(testContext(t), "agent.x", "t", jetstream.FollowOptions{}) {
		if !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("without the stream: %v", err)
		}
	}
	apply(t, js, jetstream.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	for msg, err := range r.Follow(ctx, "agent.x", "t", jetstream.FollowOptions{}) {
		t.Errorf("%v, %v", msg, err)
	}
	if n := js.Conn().NumSubscriptions(); n > 1 { // one is for requests
		t.Errorf("%d subscriptions are left", n)
	}
	f, err := r.Open("agent.x", "t")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	f.Close()
	time.AfterFunc(20*time.Millisecond, js.Conn().Close)
	var last error
	for _, err := range r.Follow(testContext(t), "agent.x", "t", jetstream.FollowOptions{Fresh: true}) {
		last = err
	}
	if !errors.Is(last, nats.ErrConnectionClosed) {
		t.Errorf("connection closed: %v", last)
	}
}

// docs/nats-binding.md, section 2: error replies have the headers of NATS micro, also where a
// stream stores them. Other headers of NATS would change how the server stores the reply.
func TestStoredRepliesKeepTheHeadersOfErrors(t *testing.T) {
	t.Parallel()
	ctx, js, m := testContext(t), start(t), prefix(t, "")
	apply(t, js, jetstream.Options{Map: m})
	r := jetstream.NewReplies(js, m)
	failed := reply(1)
	failed.Header = nats.Header{"Nats-Service-Error": {"no"}, "Nats-Service-Error-Code": {"E_MINE"}, "Nats-TTL": {"1s"}, "Nats-Rollup": {"sub"}}
	answer(t, r, failed)
	got := take(t, 0, r.Read(ctx, "agent.x", "t 1", 0))
	if len(got) != 1 || got[0].Header.Get("Nats-Service-Error") != "no" || got[0].Header.Get("Nats-Service-Error-Code") != "E_MINE" ||
		got[0].Header.Get("Nats-TTL") != "" || got[0].Header.Get("Nats-Rollup") != "" {
		t.Errorf("read %v", got)
	}
}

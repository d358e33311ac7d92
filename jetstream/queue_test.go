package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
)

func submit(t testing.TB, q *jetstream.Queue, s jetstream.Submission) jetstream.Submitted {
	t.Helper()
	got, err := q.Submit(testContext(t), s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSubmitOnce(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "acme.eu"} {
		ctx, js, m := testContext(t), start(t), prefix(t, p)
		apply(t, js, jetstream.Options{Map: m})
		q := jetstream.NewQueue(js, m)
		s := jetstream.Submission{
			Entity: "agent.x", ID: "t 1", Data: []byte("{}"),
			Header: nats.Header{"Content-Type": {"application/cbor"}, "Nats-Msg-Id": {"not mine to say"}, "Nats-TTL": {"1s"}},
		}
		first := submit(t, q, s)
		again := submit(t, q, s)
		if first != (jetstream.Submitted{Seq: 1}) || again != (jetstream.Submitted{Seq: 1, Duplicate: true}) {
			t.Errorf("%+v, %+v", first, again)
		}
		if len(s.Header) != 3 {
			t.Errorf("the caller's headers are now %v", s.Header)
		}
		// The same id of another entity is another task, and so is every task without an
		// id.
		other := s
		other.Entity = "agent.y"
		none := s
		none.ID = ""
		for i, s := range []jetstream.Submission{other, none, none} {
			if got := submit(t, q, s); got != (jetstream.Submitted{Seq: uint64(i + 2)}) {
				t.Errorf("%d: %+v", i, got)
			}
		}
		stream, err := js.Stream(ctx, jetstream.StreamWork+m.Suffix())
		if err != nil {
			t.Fatal(err)
		}
		msg, err := stream.GetMsg(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		subj, _ := m.Work("normal", "agent.x")
		if msg.Subject != subj || string(msg.Data) != "{}" || msg.Header.Get("Content-Type") != "application/cbor" || msg.Header.Get("Nats-TTL") != "" {
			t.Errorf("stored %+v", msg)
		}

		for seq, want := range []bool{false, true, true, true, true, false} {
			entity := "agent.x"
			if seq == 2 {
				entity = "agent.y"
			}
			for what, c := range map[string]struct {
				entity string
				is     func(jetstream.Message) bool
				want   bool
			}{
				"any message":       {entity, nil, want},
				"this message":      {entity, func(m jetstream.Message) bool { return m.Seq == uint64(seq) && string(m.Data) == "{}" }, want},
				"another message":   {entity, func(jetstream.Message) bool { return false }, false},
				"an entity without": {"agent.z", nil, false},
			} {
				if has, err := q.Has(ctx, c.entity, uint64(seq), c.is); err != nil || has != c.want {
					t.Errorf("has %d, %s: %t, %v", seq, what, has, err)
				}
			}
		}
		if err := stream.DeleteMsg(ctx, 2); err != nil {
			t.Fatal(err)
		}
		if has, err := q.Has(ctx, "agent.y", 2, nil); err != nil || has {
			t.Errorf("has what was deleted: %t, %v", has, err)
		}
	}
}

func TestSubmitRefusals(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true, MaxPayload: 4096})
	js := connect(t, srv)
	q := jetstream.NewQueue(js, subject.Map{})
	ok := jetstream.Submission{Entity: "agent.x", Data: []byte("{}")}
	if _, err := q.Submit(ctx, ok); !errors.Is(err, jetstream.ErrUnavailable) {
		t.Errorf("no stream: %v", err)
	}
	if _, err := q.Has(ctx, "agent.x", 1, nil); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("no stream: %v", err)
	}
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.StreamWork: {MaxBytes: 8192}}})
	for what, c := range map[string]struct {
		s    jetstream.Submission
		want string
	}{
		"entity":   {jetstream.Submission{Entity: "agent.*"}, "submit: entity"},
		"priority": {jetstream.Submission{Entity: "agent.x", Priority: "now"}, "submit: priority"},
		"schedule": {jetstream.Submission{Entity: "agent.x", At: time.Now().Add(time.Hour)}, "it needs an id"},
	} {
		if _, err := q.Submit(ctx, c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	large := ok
	large.Data = make([]byte, 5000)
	if _, err := q.Submit(ctx, large); !errors.Is(err, jetstream.ErrTooLarge) {
		t.Errorf("over max_payload: %v", err)
	}
	large.Data = make([]byte, 3000)
	var err error
	for range 4 {
		if _, err = q.Submit(ctx, large); err != nil {
			break
		}
	}
	if !errors.Is(err, jetstream.ErrFull) || errors.Is(err, jetstream.ErrUncertain) {
		t.Errorf("a full stream: %v", err)
	}
}

func TestSubmitDenied(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "none", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"aee.work.>"}}}},
	}})
	apply(t, connect(t, srv, nats.UserInfo("all", "p")), jetstream.Options{})
	q := jetstream.NewQueue(connect(t, srv, nats.UserInfo("none", "p")), subject.Map{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := q.Submit(ctx, jetstream.Submission{Entity: "agent.x"}); !errors.Is(err, jetstream.ErrDenied) {
		t.Errorf("got %v", err)
	}
}

func TestScheduled(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	var want []jetstream.Scheduled
	for i, entity := range []string{"agent.a", "agent.a.b", "agent.a"} {
		s := jetstream.Submission{
			Entity: entity, Priority: "low", ID: fmt.Sprint("task ", i), Data: []byte("{}"), At: at.Add(-time.Duration(i) * time.Minute).Add(time.Nanosecond),
			Header: nats.Header{"Content-Type": {"application/cbor"}},
		}
		due := at.Add(-time.Duration(i) * time.Minute).Add(time.Second).UTC()
		got := submit(t, q, s)
		if !got.Due.Equal(due) || got.Seq != uint64(i+1) || got.Duplicate {
			t.Errorf("%+v, want %s", got, due)
		}
		// Submitted again with another time: the first one counts, whatever the duplicate
		// window is.
		s.At = s.At.Add(time.Minute)
		if again := submit(t, q, s); !again.Due.Equal(due) || again.Seq != got.Seq || !again.Duplicate {
			t.Errorf("again: %+v", again)
		}
		want = append([]jetstream.Scheduled{{
			Entity: entity, Priority: "low", ID: s.ID, Due: due, Seq: got.Seq, Data: s.Data, Header: s.Header,
		}}, want...)
	}
	list := func(entity string) []jetstream.Scheduled {
		t.Helper()
		all, err := q.Scheduled(ctx, entity)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if all[i].Stored.IsZero() {
				t.Error("no stored time")
			}
			all[i].Stored = time.Time{}
		}
		return all
	}
	if got := list(""); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := list("agent.a"); !reflect.DeepEqual(got, []jetstream.Scheduled{want[0], want[2]}) {
		t.Errorf("of agent.a: %+v", got)
	}
	if got := list("agent.nobody"); len(got) != 0 {
		t.Errorf("of nobody: %+v", got)
	}
	if err := q.Unschedule(ctx, "agent.a", "task 0"); err != nil {
		t.Error(err)
	}
	for _, entity := range []string{"agent.a", "agent.b"} {
		if err := q.Unschedule(ctx, entity, "task 0"); !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("unschedule again: %v", err)
		}
	}
	if got := list(""); !reflect.DeepEqual(got, want[:2]) {
		t.Errorf("one less: %+v", got)
	}
	if _, err := q.Scheduled(ctx, "agent.*"); err == nil {
		t.Error("a pattern is no entity")
	}
}

// More delayed tasks than fit in one answer.
func TestScheduledAreMany(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	const many = 700
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for i := range many {
		msg := &nats.Msg{Subject: fmt.Sprintf("aee.schedule.agent.x.t%d", i), Header: nats.Header{
			"Nats-Schedule": {"@at " + at}, "Nats-Schedule-Target": {"aee.due.high.agent.x"}, "Status": {"204"},
		}}
		if _, err := js.PublishMsgAsync(msg); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	all, err := jetstream.NewQueue(js, subject.Map{}).Scheduled(testContext(t), "")
	if err != nil || len(all) != many {
		t.Errorf("%d, %v", len(all), err)
	}
}

// The bytes of delayed tasks are limited although their stream has no limit.
func TestScheduleWhenTooMuchWaits(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	jetstream.SetScheduled(q, jetstream.MaxScheduled+1)
	_, err := q.Submit(testContext(t), jetstream.Submission{Entity: "agent.x", ID: "1", At: time.Now().Add(time.Hour)})
	if !errors.Is(err, jetstream.ErrFull) {
		t.Errorf("got %v", err)
	}
}

func TestPeekTakesNothing(t *testing.T) {
	t.Parallel()
	js := start(t)
	m := prefix(t, "")
	apply(t, js, jetstream.Options{Map: m})
	q := jetstream.NewQueue(js, m)
	var seqs []uint64
	for i := range 3 {
		s, err := q.Submit(testContext(t), jetstream.Submission{Entity: "agent.x", Priority: "urgent", Data: []byte{byte('a' + i)}})
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, s.Seq)
	}
	if _, err := q.Submit(testContext(t), jetstream.Submission{Entity: "agent.x", Priority: "low", Data: []byte("other")}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var got []string
		for msg, err := range q.Peek(testContext(t), "urgent", "agent.x", seqs[0]) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(msg.Data))
		}
		if len(got) != 2 || got[0] != "b" || got[1] != "c" {
			t.Errorf("peeked at %q", got)
		}
	}
	for _, err := range q.Peek(testContext(t), "urgent", "no entity", 0) {
		if err == nil {
			t.Error("peeked at the tasks of no entity")
		}
	}
}

// Other programs may write to the stream of delayed tasks.
func FuzzScheduled(f *testing.F) {
	f.Add("aee.schedule.agent.x.t1", "@at 2026-01-01T00:00:00Z", "aee.due.low.agent.x")
	f.Add("aee.schedule.agent.x.t=201", "@every 1s", "aee.work.low.agent.x")
	f.Add("aee.due.low.agent.x", "", "")
	f.Fuzz(func(t *testing.T, subj, schedule, target string) {
		s, err := jetstream.DecodeScheduled(jetstream.Message{Subject: subj, Seq: 1, Header: nats.Header{
			"Nats-Schedule": {schedule}, "Nats-Schedule-Target": {target},
		}})
		if err != nil {
			return
		}
		to, errTo := subject.Map{}.Due(s.Priority, s.Entity)
		_, errAt := subject.Map{}.Schedule(s.Entity, s.ID)
		if errTo != nil || errAt != nil || to != target {
			t.Errorf("%q to %q was read as %+v", subj, target, s)
		}
	})
}

// A message that another one has removed, or acknowledged, is not there: that is no failure of
// the server.
func TestAMessageIsRemovedOnce(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	submit(t, q, jetstream.Submission{Entity: "agent.x", ID: "t1", Data: []byte("{}")})
	if err := q.Remove(ctx, 1); err != nil {
		t.Error(err)
	}
	for _, seq := range []uint64{1, 99} {
		if err := q.Remove(ctx, seq); !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("message %d: %v", seq, err)
		}
	}
}

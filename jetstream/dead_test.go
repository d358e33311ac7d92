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
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func letters(t testing.TB, d *jetstream.Dead, entity string) []jetstream.DeadLetter {
	t.Helper()
	var all []jetstream.DeadLetter
	for l, err := range d.List(testContext(t), entity) {
		if err != nil {
			t.Fatal(err)
		}
		if l.Died.IsZero() {
			t.Error("no time")
		}
		l.Died = time.Time{}
		all = append(all, l)
	}
	return all
}

func bury(t testing.TB, d *jetstream.Dead, l jetstream.DeadLetter) uint64 {
	t.Helper()
	seq, err := d.Put(testContext(t), l)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "acme.eu"} {
		ctx, js, m := testContext(t), start(t), prefix(t, p)
		d := jetstream.NewDead(js, m)
		work, _ := m.Work("high", "agent.x")
		at := time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
		letter := jetstream.DeadLetter{
			Entity: "agent.x", TaskID: "t 1", Code: "E_MODEL", Cause: "the model\r\nNats-Msg-Id: failed é", Attempts: 3, Run: "r1", Worker: "w1",
			Subject: work, Work: 7, Stored: at, Data: []byte("{}"),
			Header: nats.Header{"Content-Type": {"application/cbor"}, "Nats-Msg-Id": {"t 1"}, "Aee-Dead-Run": {"forged"}},
		}
		if _, err := d.Put(ctx, letter); !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("without the stream: %v", err)
		}
		apply(t, js, jetstream.Options{Map: m})
		seq := bury(t, d, letter)
		if again := bury(t, d, letter); seq != 1 || again != 1 {
			t.Errorf("put twice: %d, %d", seq, again)
		}
		letter.Seq, letter.Cause, letter.Header = 1, "the model  Nats-Msg-Id: failed é", nats.Header{"Content-Type": {"application/cbor"}}
		// A letter about another message with the same id, one about a task without a
		// readable id, and one about no message are all stored.
		second, poison, nothing := letter, jetstream.DeadLetter{Entity: "agent.y", Code: "poison", Work: 9}, jetstream.DeadLetter{Entity: "agent.y", TaskID: "t"}
		second.Work = 8
		second.Seq, poison.Seq, nothing.Seq = bury(t, d, second), bury(t, d, poison), bury(t, d, nothing)
		poison.TaskID = "work-9"
		poison.Data, nothing.Data = []byte{}, []byte{}
		if got, want := letters(t, d, ""), []jetstream.DeadLetter{letter, second, poison, nothing}; !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if got := letters(t, d, "agent.y"); len(got) != 2 || got[0].Seq != 3 {
			t.Errorf("of agent.y: %+v", got)
		}
		got, err := d.Get(ctx, 2)
		if got.Died = (time.Time{}); err != nil || !reflect.DeepEqual(got, second) {
			t.Errorf("get: %+v, %v", got, err)
		}
		if err := d.Drop(ctx, 2); err != nil {
			t.Error(err)
		}
		for _, seq := range []uint64{0, 2, 99} {
			_, err := d.Get(ctx, seq)
			_, failed := d.Retry(ctx, seq)
			for _, err := range []error{err, failed, d.Drop(ctx, seq)} {
				if !errors.Is(err, jetstream.ErrNotFound) {
					t.Errorf("letter %d: %v", seq, err)
				}
			}
		}
		for _, err := range d.List(ctx, "agent.*") {
			if err == nil {
				t.Error("a pattern is no entity")
			}
		}
	}
}

// A worker that did not hear whether its letter is stored puts it again, also if other letters of
// the task have come since, and though it may read only the last message of a subject.
func TestADeadLetterIsStoredOnceWithOthersOfItsTaskInBetween(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "worker", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.STREAM.MSG.GET.>", "$JS.API.DIRECT.GET.AEE_DEAD"}}}},
	}})
	js := connect(t, srv, nats.UserInfo("all", "p"))
	apply(t, js, jetstream.Options{})
	d := jetstream.NewDead(connect(t, srv, nats.UserInfo("worker", "p")), subject.Map{})
	letter := func(work uint64) jetstream.DeadLetter {
		return jetstream.DeadLetter{Entity: "agent.x", TaskID: "t1", Code: "E_REPLAY", Work: work, Data: []byte("{}")}
	}
	var stored []uint64
	for work := range uint64(3) {
		stored = append(stored, bury(t, d, letter(work+1)))
	}
	about := letter(0) // about no message
	bury(t, d, about)
	for work := range uint64(3) {
		if seq := bury(t, d, letter(work+1)); seq != stored[work] {
			t.Errorf("letter %d put again: %d, was %d", work+1, seq, stored[work])
		}
	}
	other := letter(1)
	other.Code = "poison"
	bury(t, d, other)
	if n := len(letters(t, jetstream.NewDead(js, subject.Map{}), "agent.x")); n != 5 {
		t.Errorf("%d letters, want 5", n)
	}
}

// A queue that was made anew, or restored from an older copy, gives sequences again: a letter about
// another message of the task is stored, beside the one about the lost message.
func TestADeadLetterAboutAnotherMessageWithTheSameSequenceIsStored(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	d, at := jetstream.NewDead(js, subject.Map{}), time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	lost := jetstream.DeadLetter{Entity: "agent.x", TaskID: "t1", Code: "exhausted", Work: 1, Stored: at, Data: []byte("{}")}
	next := lost
	next.Stored = at.Add(time.Nanosecond)
	first, second := bury(t, d, lost), bury(t, d, next)
	if first == second {
		t.Errorf("letter %d is about both", first)
	}
	for range 2 {
		if a, b := bury(t, d, lost), bury(t, d, next); a != first || b != second {
			t.Errorf("put again: %d and %d, were %d and %d", a, b, first, second)
		}
	}
}

// A replica may not have the letter yet.
func TestADeadLetterIsStoredOnceThoughAReplicaLagsBehind(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	d := jetstream.NewDead(js, subject.Map{})
	letter := jetstream.DeadLetter{Entity: "agent.x", TaskID: "t1", Code: "exhausted", Work: 1, Data: []byte("{}")}
	lagging(t, js, "AEE_DEAD", "aee.dead.agent.x.t1", 3)
	seq := bury(t, d, letter)
	if again := bury(t, d, letter); again != seq {
		t.Errorf("put again: %d, was %d", again, seq)
	}
}

func TestDeadRetry(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	d, q := jetstream.NewDead(js, subject.Map{}), jetstream.NewQueue(js, subject.Map{})
	letter := jetstream.DeadLetter{
		Entity: "agent.x", TaskID: "t1", Code: "exhausted", Subject: "aee.work.high.agent.x", Work: 1, Data: []byte("{}"),
		Header: nats.Header{"Content-Type": {"application/cbor"}, jetstream.HeaderRetry: {"17"}},
	}
	// The task was submitted a moment ago: the retry must not count as its duplicate.
	w := startLane(t, js, subject.Map{}, "agent.x", 1, creating)
	submit(t, q, jetstream.Submission{Entity: "agent.x", ID: "t1", Data: letter.Data})
	w.done(t)
	seq := bury(t, d, letter)
	if done, err := d.Retry(ctx, seq); err != nil || done.Seq != 2 || done.Duplicate {
		t.Errorf("%+v, %v", done, err)
	}
	got := w.done(t)
	if got.Subject != letter.Subject || string(got.Data) != "{}" || got.Header.Get(jetstream.HeaderRetry) != fmt.Sprint(seq) ||
		got.Header.Get("Content-Type") != "application/cbor" || got.Header.Get("Aee-Dead-Code") != "" || len(got.Header[jetstream.HeaderRetry]) != 1 {
		t.Errorf("retried %+v", got)
	}
	if left := letters(t, d, ""); len(left) != 0 {
		t.Errorf("still there: %+v", left)
	}
	// A letter whose subject is not one of the entity's tasks is not submitted.
	for _, subj := range []string{"", "aee.work.high.agent.y", "aee.work.high.agent.>", "$JS.API.STREAM.DELETE.AEE_WORK", "aee.dead.agent.x.t1"} {
		letter.Subject, letter.Work = subj, letter.Work+1
		seq := bury(t, d, letter)
		if done, err := d.Retry(ctx, seq); err == nil {
			t.Errorf("retried on %q: %+v", subj, done)
		}
		if _, err := d.Get(ctx, seq); err != nil {
			t.Error(err)
		}
	}
	// Nor is one without an envelope: the letter is all that is left of its task.
	letter.Subject, letter.Work, letter.Data = "aee.work.high.agent.x", letter.Work+1, nil
	seq = bury(t, d, letter)
	if done, err := d.Retry(ctx, seq); err == nil {
		t.Errorf("retried without an envelope: %+v", done)
	}
	if _, err := d.Get(ctx, seq); err != nil {
		t.Error(err)
	}
}

// While a retry waits, other letters of its task may come, from forged messages with the task's
// id too, and several letters of it may be retried. The permits stay, each until its retry fails.
func TestALetterLeavesThePermitsOfItsTask(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	d := jetstream.NewDead(js, subject.Map{})
	letter := func(work uint64, header nats.Header) jetstream.DeadLetter {
		return jetstream.DeadLetter{Entity: "agent.x", TaskID: "t1", Code: "exhausted", Subject: "aee.work.high.agent.x", Work: work, Data: fmt.Append(nil, work%10), Header: header}
	}
	first, second := bury(t, d, letter(1, nil)), bury(t, d, letter(2, nil))
	for _, seq := range []uint64{first, second} {
		if _, err := d.Retry(ctx, seq); err != nil {
			t.Fatal(err)
		}
	}
	header := func(seq uint64) nats.Header { return nats.Header{jetstream.HeaderRetry: {fmt.Sprint(seq)}} }
	permitted := func(when string, seq uint64, data string, want bool) {
		t.Helper()
		if yes, err := d.Retrying(ctx, "agent.x", fmt.Sprint(seq), []byte(data)); err != nil || yes != want {
			t.Errorf("%s, letter %d with the bytes %s is retried: %t, %v", when, seq, data, yes, err)
		}
	}
	bury(t, d, letter(3, nil))
	bury(t, d, letter(14, header(first)))        // other bytes
	bury(t, d, letter(5, header(first)))         // other bytes
	bury(t, d, letter(11, nil))                  // the same bytes, and no retry
	bury(t, d, letter(12, header(1<<63)))        // there is no such letter
	bury(t, d, letter(22, header(second+first))) // nor this one
	bury(t, d, letter(21, header(first)))        // the same bytes, refused before they came to the run
	for seq, data := range map[uint64]string{first: "1", second: "2"} {
		permitted("after other letters", seq, data, true)
		permitted("after other letters", seq, "3", false)
		permitted("after other letters", seq+7, data, false)
	}
	again := letter(31, header(first))
	again.Run = "urn:run"
	for range 2 { // stored once
		bury(t, d, again)
		permitted("after the first failed again", first, "1", false)
		permitted("after the first failed again", second, "2", true)
	}
	for _, header := range []string{"", "0", "+1", "01", "1 ", "x", "1.2", "-1", ">"} {
		if yes, err := d.Retrying(ctx, "agent.x", header, []byte("1")); err != nil || yes {
			t.Errorf("header %q: %t, %v", header, yes, err)
		}
	}
	for seq := uint64(1); seq < 20; seq++ {
		if l, err := d.Get(ctx, seq); err == nil && l.Code == "" || err != nil && !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("%d: %+v, %v", seq, l, err)
		}
	}
	if n := len(letters(t, d, "agent.x")); n != 8 {
		t.Errorf("%d letters", n)
	}
}

// exhausted stores a letter that can be retried.
func exhausted(t *testing.T) (context.Context, natsjs.JetStream, *jetstream.Dead, jetstream.DeadLetter, uint64) {
	t.Helper()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	d := jetstream.NewDead(js, subject.Map{})
	letter := jetstream.DeadLetter{Entity: "agent.x", TaskID: "t1", Code: "exhausted", Subject: "aee.work.high.agent.x", Work: 1, Data: []byte("{}")}
	seq := bury(t, d, letter)
	return ctx, js, d, letter, seq
}

// A replica that lags behind has the letter, and not yet the permit to retry it.
func TestAPermitIsFoundThoughAReplicaLagsBehind(t *testing.T) {
	t.Parallel()
	ctx, js, d, letter, seq := exhausted(t)
	lagging(t, js, "AEE_DEAD", "aee.dead.agent.x.=retry-"+fmt.Sprint(seq), 2)
	if _, err := d.Retry(ctx, seq); err != nil {
		t.Fatal(err)
	}
	if yes, err := d.Retrying(ctx, "agent.x", fmt.Sprint(seq), letter.Data); err != nil || !yes {
		t.Errorf("retried: %t, %v", yes, err)
	}
	if yes, err := d.Retrying(ctx, "agent.x", fmt.Sprint(seq), []byte("[]")); err != nil || yes {
		t.Errorf("other bytes: %t, %v", yes, err)
	}
}

// A retry that failed uses up its permit, and no other one may follow, whatever a replica says that
// lags behind: that there is no permit yet, or that it is not used up.
func TestAPermitIsUsedUpThoughAReplicaLagsBehind(t *testing.T) {
	t.Parallel()
	for _, sees := range []string{"no permit", "the permit"} {
		t.Run(sees, func(t *testing.T) {
			t.Parallel()
			ctx, js, d, letter, seq := exhausted(t)
			lags := func() {
				lagging(t, js, "AEE_DEAD", "aee.dead.agent.x.=retry-"+fmt.Sprint(seq), 2)
				lagging(t, js, "AEE_DEAD", "aee.dead.agent.x.t1", 0)
			}
			if sees == "no permit" {
				lags()
			}
			if _, err := d.Retry(ctx, seq); err != nil {
				t.Fatal(err)
			}
			if sees == "the permit" {
				lags()
			}
			letter.Work, letter.Run, letter.Header = 2, "urn:run", nats.Header{jetstream.HeaderRetry: {fmt.Sprint(seq)}}
			bury(t, d, letter)
			if yes, err := d.Retrying(ctx, "agent.x", fmt.Sprint(seq), letter.Data); err != nil || yes {
				t.Errorf("retried once more: %t, %v", yes, err)
			}
		})
	}
}

// An envelope that fills a message leaves no room for the cause: the letter is stored
// without the envelope.
func TestDeadLetterOfALargeTask(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js := connect(t, natstest.Run(t, natsd.Config{JetStream: true, MaxPayload: 4096}))
	apply(t, js, jetstream.Options{})
	d := jetstream.NewDead(js, subject.Map{})
	for size, kept := range map[int]bool{2000: true, 4090: false} {
		letter := jetstream.DeadLetter{Entity: "agent.x", TaskID: fmt.Sprint(size), Code: "poison", Cause: strings.Repeat("é", 5000), Work: 1, Subject: "aee.work.low.agent.x", Data: make([]byte, size)}
		seq := bury(t, d, letter)
		got, err := d.Get(ctx, seq)
		if err != nil || kept != (len(got.Data) == size && got.Omitted == 0) || !kept && (got.Omitted != size || len(got.Data) != 0) || got.Cause != strings.Repeat("é", 512) {
			t.Errorf("%d bytes: %+v, %v", size, got, err)
		}
		if _, err := d.Retry(ctx, seq); kept != (err == nil) || !kept && !errors.Is(err, jetstream.ErrTooLarge) {
			t.Errorf("retry of %d bytes: %v", size, err)
		}
	}
}

// The headers of a task may leave no room for those of a letter: it is stored without them, and
// so without the envelope, which they say how to read.
func TestDeadLetterOfATaskWithManyHeaders(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js := start(t)
	apply(t, js, jetstream.Options{})
	d := jetstream.NewDead(js, subject.Map{})
	for size, kept := range map[int]bool{50 << 10: true, 64<<10 - 100: false} {
		header := nats.Header{"X-Long": {strings.Repeat("x", size)}}
		work, err := jetstream.NewQueue(js, subject.Map{}).Submit(ctx, jetstream.Submission{Entity: "agent.x", Priority: "low", Data: []byte("task"), Header: header})
		if err != nil {
			t.Fatal(err)
		}
		letter := jetstream.DeadLetter{Entity: "agent.x", TaskID: fmt.Sprint(size), Code: "poison", Work: work.Seq, Subject: "aee.work.low.agent.x", Data: []byte("task"), Header: header}
		seq, err := d.Put(ctx, letter)
		if err != nil {
			t.Errorf("with %d bytes of headers: %v", size, err)
			continue
		}
		got, err := d.Get(ctx, seq)
		if err != nil || got.Code != "poison" || kept != (len(got.Data) == 4 && len(got.Header.Get("X-Long")) == size) || !kept && (got.Omitted != 4 || got.Header != nil) {
			t.Errorf("with %d bytes of headers: %d bytes of a body, %d omitted, %d headers, %v", size, len(got.Data), got.Omitted, len(got.Header), err)
		}
		if _, err := d.Retry(ctx, seq); kept != (err == nil) || !kept && !errors.Is(err, jetstream.ErrTooLarge) {
			t.Errorf("retry with %d bytes of headers: %v", size, err)
		}
	}
}

// Other programs may write to the stream: no header of a letter may harm its reader.
func FuzzDeadLetter(f *testing.F) {
	f.Add("aee.dead.agent.x.t1", "Aee-Dead-Attempts", "3", []byte("{}"))
	f.Add("aee.dead.agent.x.t1", "Aee-Dead-Stored", "2026-01-01T00:00:00Z", []byte(nil))
	f.Add("aee.dead.x", "Aee-Dead-Work", "18446744073709551616", []byte(nil))
	f.Fuzz(func(t *testing.T, subj, key, value string, data []byte) {
		letter, err := jetstream.DecodeDead(jetstream.Message{Subject: subj, Header: nats.Header{key: {value}}, Data: data, Seq: 1})
		if err != nil {
			return
		}
		if letter.Attempts < 0 || letter.Omitted < 0 {
			t.Errorf("%+v", letter)
		}
		// A decoded letter is encoded to the same message.
		letter.Header = nil
		again, err := jetstream.DecodeDead(jetstream.EncodeDead(letter))
		if err != nil || again.Entity != letter.Entity || again.TaskID != letter.TaskID || again.Attempts != letter.Attempts ||
			!again.Stored.Equal(letter.Stored) || again.Work != letter.Work || again.Omitted != letter.Omitted {
			t.Errorf("read again: %+v, %v\nwas %+v", again, err, letter)
		}
	})
}

package api

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func stream(t *testing.T, cfg natsjs.StreamConfig) natsjs.JetStream {
	t.Helper()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return js
}

// A scan yields each message that matches once, in order, also beyond one batch.
func TestAScanYieldsEachMessageOnce(t *testing.T) {
	t.Parallel()
	js := stream(t, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true})
	const n = 2*scanBatch + 3
	for i := range n {
		for _, kind := range []string{"a", "b"} {
			if _, err := js.Publish(t.Context(), fmt.Sprintf("s.%s.%d", kind, i), fmt.Appendf(nil, "%d", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	next := 0
	for m, err := range Scan(t.Context(), js, "S", "s.a.*", 1) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint(next); string(m.Data) != want || m.Subject != "s.a."+want || m.Seq != uint64(2*next+1) || m.Stream != "S" {
			t.Fatalf("message %d is %q on %s, sequence %d", next, m.Data, m.Subject, m.Seq)
		}
		next++
	}
	if next != n {
		t.Errorf("%d messages of %d", next, n)
	}
	subjects, err := Subjects(t.Context(), js, "S", "s.b.*")
	if err != nil || len(subjects) != n || subjects["s.b.7"] != 1 {
		t.Errorf("%d subjects, %v", len(subjects), err)
	}
	last, err := Last(t.Context(), js, "S", "s.a.1", "s.b.1", "s.c.*")
	if err != nil || len(last) != 2 {
		t.Errorf("the last of two subjects: %v, %v", last, err)
	}
	if _, err := Last(t.Context(), js, "S", "s.>"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("the last of %d subjects: %v", 2*n, err)
	}
}

// The server sends so many bytes at once, and says how many messages it left out.
func TestTheLastOfEachSubjectAreReadAlsoIfTheyAreLarge(t *testing.T) {
	t.Parallel()
	js := stream(t, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true, MaxMsgsPerSubject: 1})
	var want []string
	for i := range 12 {
		want = append(want, fmt.Sprintf("s.%d", i))
		for range 2 {
			if _, err := js.Publish(t.Context(), want[i], make([]byte, scanBytes/5)); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := Last(t.Context(), js, "S", "s.>")
	if err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for i, m := range got {
		subjects = append(subjects, m.Subject)
		if i > 0 && m.Seq <= got[i-1].Seq {
			t.Errorf("%d after %d", m.Seq, got[i-1].Seq)
		}
	}
	if !slices.Equal(subjects, want) {
		t.Errorf("read %q", subjects)
	}
}

// Each way to read one message gives the same, and says if there is none.
func TestOneMessageIsReadInEachWay(t *testing.T) {
	t.Parallel()
	js := stream(t, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true})
	for _, text := range []string{"old", "new"} {
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "s.a", Data: []byte(text), Header: nats.Header{"K": {text}}}); err != nil {
			t.Fatal(err)
		}
	}
	direct, err := Newest(t.Context(), js, "S", "s.a")
	if err != nil {
		t.Fatal(err)
	}
	leader, err := LeaderGet(t.Context(), js, "S", map[string]any{"last_by_subj": "s.a"})
	if err != nil {
		t.Fatal(err)
	}
	for how, m := range map[string]Message{"direct": direct, "leader": leader} {
		if string(m.Data) != "new" || m.Seq != 2 || m.Subject != "s.a" || m.Stream != "S" || m.Header.Get("K") != "new" || time.Since(m.Time) > time.Hour {
			t.Errorf("%s: %+v", how, m)
		}
	}
	if _, err := Newest(t.Context(), js, "S", "s.b"); !errors.Is(err, natsjs.ErrMsgNotFound) {
		t.Errorf("direct, none: %v", err)
	}
	if _, err := LeaderGet(t.Context(), js, "S", map[string]any{"last_by_subj": "s.b"}); !errors.Is(err, natsjs.ErrMsgNotFound) {
		t.Errorf("leader, none: %v", err)
	}
}

func TestStraysAreSkippedAndCounted(t *testing.T) {
	t.Parallel()
	js := stream(t, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.*"}, AllowDirect: true})
	stray := []byte(`{"stream":"OTHER","seq":1}`) // an acknowledgement
	for _, m := range []*nats.Msg{
		{Subject: "s.a", Data: []byte("text")}, {Subject: "s.a", Data: stray}, {Subject: "s.b", Data: stray}, {Subject: "s.c", Data: []byte("text")},
	} {
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for subj, want := range map[string]string{"s.a": "2 1 <nil>", "s.b": "3 0 " + natsjs.ErrMsgNotFound.Error(), "s.c": "4 4 <nil>", "s.d": "0 0 " + natsjs.ErrMsgNotFound.Error()} {
		last, m, err := LastAndPublished(t.Context(), js, "S", subj)
		if got := fmt.Sprint(last, m.Seq, err); got != want {
			t.Errorf("%s: %s, want %s", subj, got, want)
		}
	}
	subjects, at, err := SubjectsAt(t.Context(), js, "S", "s.*")
	if err != nil || len(subjects) != 3 || subjects["s.a"] != 2 || time.Since(at).Abs() > time.Minute {
		t.Errorf("%v at %v, %v", subjects, at, err)
	}
}

// A stream without direct gets is said to be one.
func TestAStreamWithoutDirectGets(t *testing.T) {
	t.Parallel()
	js := stream(t, natsjs.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if _, err := Newest(t.Context(), js, "S", "s.a"); !errors.Is(err, ErrNoDirect) {
		t.Errorf("newest: %v", err)
	}
	for _, err := range Scan(t.Context(), js, "S", "s.>", 1) {
		if !errors.Is(err, ErrNoDirect) {
			t.Errorf("scan: %v", err)
		}
	}
}

// An answer that is broken is an error, and no message.
func TestABrokenAnswerIsAnError(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{``, `{`, `{"message":{"data":"`, `{"message":{"data":"!"}}`, `{"message":{"hdrs":"eA=="}}`, `{"error":{"code":404,"err_code":10037}}`} {
		if m, err := ReadMessage([]byte(answer)); err == nil {
			t.Errorf("%s: %+v", answer, m)
		}
	}
	m, err := ReadMessage([]byte(`{"message":{"subject":"s.\"data\":\"x","seq":3,"data":"YWJj"}}`))
	if err != nil || string(m.Data) != "abc" || m.Seq != 3 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestOnlyHeadersOfTheServerAreLeftOut(t *testing.T) {
	t.Parallel()
	was := nats.Header{"Nats-Msg-Id": {"1"}, "Aee-Run": {"r"}, "K": {"v"}}
	got := PlainHeader(was)
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []string{"Aee-Run", "K"}) || len(was) != 3 {
		t.Errorf("left are %q, of %v", keys, was)
	}
}

// A denied subscription to something that JetStream's answers do not come by is the cause of no
// timeout, as that of an inbox is.
func TestADeniedSubscriptionIsTheCauseOfATimeoutIfItIsToAnInbox(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{{Name: "u", Password: "p", Permissions: &natsd.Permissions{Subscribe: natsd.Subjects{Deny: []string{"aee.reply.>", "_INBOX.>"}}}}}})
	nc := natstest.Conn(t, srv, nats.UserInfo("u", "p"))
	for _, subject := range []string{"aee.reply.agent.a.x", "_INBOX.x.*"} {
		denied := subject[0] == '_'
		_, err := nc.SubscribeSync(subject)
		if err := errors.Join(err, nc.Flush()); err != nil {
			t.Fatal(err)
		}
		if err := Explain(nc, nats.ErrTimeout, "read"); errors.Is(err, ErrDenied) != denied || errors.Is(Uncertain(err), ErrUncertain) == denied {
			t.Errorf("%s: %v", subject, err)
		}
	}
}

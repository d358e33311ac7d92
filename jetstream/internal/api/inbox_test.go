package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Who has seen one reply subject of a process does not know the others: beyond what nats.go
// counts up, they are random.
func TestAnInboxCannotBeGuessed(t *testing.T) {
	t.Parallel()
	nc := stream(t, natsjs.StreamConfig{Name: "S"}).Conn()
	counted := len(nc.NewInbox())
	seen := map[string]bool{}
	for range 100 {
		inbox := Inbox(nc)
		if tail := inbox[counted:]; len(tail) < 20 || seen[tail] || !strings.HasPrefix(inbox, nats.InboxPrefix) {
			t.Fatalf("%s can be guessed", inbox)
		} else {
			seen[tail] = true
		}
	}
}

// What another one sends to where nats.go's next inbox would be does not come as a record that
// was read.
func TestAReadIsAnsweredByTheServerAlone(t *testing.T) {
	t.Parallel()
	js := stream(t, natsjs.StreamConfig{Name: "S", Subjects: []string{"s"}, AllowDirect: true})
	inboxes := make(chan string, 1)
	if _, err := js.Conn().Subscribe("$JS.API.DIRECT.GET.S", func(m *nats.Msg) { inboxes <- m.Reply }); err != nil {
		t.Fatal(err)
	}
	counted := len(js.Conn().NewInbox())
	if _, err := Direct(t.Context(), js, "S", map[string]any{"seq": 1}); err != nil {
		t.Fatal(err)
	}
	if inbox := <-inboxes; len(inbox) < counted+20 {
		t.Errorf("it was answered on %s", inbox)
	}
}

// Who may not subscribe to its inbox is denied every answer, and not what it has asked for. A denial
// of another subject is a guess.
func TestATimeoutAfterADenial(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{
		{Name: "unheard", Password: "p", Permissions: &natsd.Permissions{Subscribe: natsd.Subjects{Deny: []string{"_INBOX.>"}}}},
		{Name: "other", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.INFO"}}}},
	}})
	for user, want := range map[string][3]bool{"unheard": {true, false, false}, "other": {false, false, true}} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo(user, "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			denial.Now(nc)
			_ = nc.Publish("$JS.API.INFO", nil)
			_, _ = nc.Request("x", nil, time.Millisecond)
			natstest.Eventually(t, "the denial", func() bool { return errors.Is(nc.LastError(), nats.ErrPermissionViolation) })
			err = Explain(nc, context.DeadlineExceeded, "read")
			if got := [3]bool{Denied(err), Refused(err), Away(err)}; got != want || !errors.Is(err, ErrDenied) {
				t.Errorf("sure, of the subject, temporary: %v, want %v: %v", got, want, err)
			}
		})
	}
}

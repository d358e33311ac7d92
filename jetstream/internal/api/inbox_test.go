package api

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
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

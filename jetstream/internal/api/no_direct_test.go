package api

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A user who may read messages and not a stream's configuration asks for it once, to say why no
// server answers: each refusal is a line in the server's log.
func TestADeniedQuestionIsNotRepeatedWhileNoServerAnswers(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{{Name: "u", Password: "p", Permissions: &natsd.Permissions{
		Publish: natsd.Subjects{Allow: []string{"$JS.API.DIRECT.GET.S", "$JS.API.DIRECT.GET.S.>"}}, Subscribe: natsd.Subjects{Allow: []string{"_INBOX.>"}},
	}}}}) // without JetStream
	var refused atomic.Int32
	nc := natstest.Conn(t, srv, nats.UserInfo("u", "p"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if strings.Contains(err.Error(), "$JS.API.STREAM.INFO.S") {
			refused.Add(1)
		}
	}))
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := Newest(t.Context(), js, "S", "s.a"); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("Newest: %v", err)
		}
		if _, err := Last(t.Context(), js, "S", "s.*"); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("Last: %v", err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := refused.Load(); got != 1 {
		t.Errorf("%d refusals, want 1", got)
	}
}

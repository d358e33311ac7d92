package jetstream_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// If the answer to a write is lost, its record may be stored all the same, so its document stays. A
// denial of something else shortly before changes nothing.
func TestADocumentStaysIfItsRecordMayBeStored(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{{Name: "u", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"aee.journal.>"}}}}}})
	js := connect(t, srv, nats.UserInfo("u", "p"))
	apply(t, js, jetstream.Options{})
	if err := js.Conn().Publish("aee.journal.x", nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the denial", func() bool { return errors.Is(js.Conn().LastError(), nats.ErrPermissionViolation) })
	id := state.ID{Entity: "agent.a", Run: "r"}
	if _, err := jetstream.NewStates(losesRecordAnswers{js}, subject.Map{}).Put(ctx, id, 0, make([]byte, jetstream.MaxInline+1)); !errors.Is(err, state.ErrUncertain) || errors.Is(err, jetstream.ErrDenied) {
		t.Fatalf("the write: %v", err)
	}
	if rec, err := jetstream.NewStates(js, subject.Map{}).Get(ctx, id); err != nil || len(rec.Data) != jetstream.MaxInline+1 {
		t.Errorf("%d bytes, %v", len(rec.Data), err)
	}
}

// losesRecordAnswers loses the answers to writes of records.
type losesRecordAnswers struct{ natsjs.JetStream }

func (l losesRecordAnswers) PublishMsg(ctx context.Context, m *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	ack, err := l.JetStream.PublishMsg(ctx, m, opts...)
	if strings.HasPrefix(m.Subject, "$KV.") && err == nil {
		return nil, context.DeadlineExceeded
	}
	return ack, err
}

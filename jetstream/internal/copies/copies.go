package copies

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// wait is how long Count waits for answers.
const wait = 250 * time.Millisecond

// wrongStream refuses a message for another stream ([natsjs.ExpectedStreamHeader]).
const wrongStream natsjs.ErrorCode = 10060

// Subject returns the subject of a task in the mesh's work queue, for an entity that does not
// exist.
func Subject(m subject.Map) (string, error) { return m.Work("normal", "service.probe") }

// Count returns how many streams store a message that is published on a subject. It asks with a
// message that each of them refuses, so it stores nothing. A stream that answers after more than
// a quarter of a second is not counted.
func Count(ctx context.Context, nc *nats.Conn, to string) (int, error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return 0, err
	}
	defer sub.Unsubscribe()
	// nats.go's JetStream would take only the first answer.
	msg := &nats.Msg{Subject: to, Reply: sub.Subject, Header: nats.Header{natsjs.ExpectedStreamHeader: {"none"}}}
	if err := nc.PublishMsg(msg); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for n := 0; ; {
		answer, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return n, nil // there are no more, or nothing listens there
		}
		if _, err := api.ReadAck(answer.Data); api.HasCode(err, wrongStream) {
			n++
		}
	}
}

// Elsewhere reports whether streams store messages of a subject, and none of them is in js's
// domain. It returns false if it cannot find out.
func Elsewhere(ctx context.Context, js natsjs.JetStream, to string) bool {
	if n, err := Count(ctx, js.Conn(), to); err != nil || n == 0 {
		return false
	}
	var here struct {
		Total int `json:"total"`
	}
	err := api.Request(ctx, js, "STREAM.NAMES", map[string]string{"subject": to}, &here)
	return err == nil && here.Total == 0
}

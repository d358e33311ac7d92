package inspect

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// copyWait is how long [Copies] waits for answers.
const copyWait = 250 * time.Millisecond

// CopiesSubject is the subject that [Copies] publishes to.
func CopiesSubject(m subject.Map) (string, error) { return m.Work("normal", probeEntity) }

// Copies counts the streams that store a task of this mesh. It asks with a message that each of
// them refuses, so it stores nothing. More than one stream answers where a hub and a leaf node
// have JetStream domains of their own, both with the mesh's streams, and share the subjects of
// an account: then each task is stored in both, and done in both. A stream that answers after
// more than a quarter of a second is not counted.
func Copies(ctx context.Context, nc *nats.Conn, m subject.Map) (int, error) {
	to, err := CopiesSubject(m)
	if err != nil {
		return 0, err
	}
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return 0, err
	}
	defer sub.Unsubscribe()
	// Not through nats.go's JetStream, which takes the first answer only.
	msg := &nats.Msg{Subject: to, Reply: sub.Subject, Header: nats.Header{natsjs.ExpectedStreamHeader: {"none"}}}
	if err := nc.PublishMsg(msg); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, copyWait)
	defer cancel()
	for n := 0; ; {
		answer, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return n, nil // there are no more
		}
		if _, err := api.ReadAck(answer.Data); api.HasCode(err, wrongStream) {
			n++
		}
	}
}

// wrongStream refuses a message for another stream ([natsjs.ExpectedStreamHeader]).
const wrongStream natsjs.ErrorCode = 10060

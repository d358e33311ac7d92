package jetstream

import (
	"errors"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/room"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Errors for errors.Is.
var (
	// ErrUnavailable: JetStream is not enabled for this server or this account, or does
	// not answer at the moment.
	ErrUnavailable = api.ErrUnavailable
	// ErrNoDirect is an ErrUnavailable: the stream was made without direct gets, so it cannot be read.
	ErrNoDirect = api.ErrNoDirect
	// ErrDenied: the connection's NATS permissions do not cover the request.
	ErrDenied = api.ErrDenied
	// ErrNotFound: no such stream, bucket, envelope or record.
	ErrNotFound = api.ErrNotFound
	// ErrExists: the record exists already.
	ErrExists = api.ErrExists
	// ErrChanged: the record is not at the revision that the caller knows.
	ErrChanged = api.ErrChanged
	// ErrUncertain: no answer came; the request may have had its effect.
	ErrUncertain = api.ErrUncertain
	// ErrFull: the stream is at its limits and accepts no more messages.
	ErrFull = api.ErrFull
	// ErrAccountFull is an ErrFull: the account or its server has no storage left; the stream's
	// limit is not reached.
	ErrAccountFull = api.ErrAccountFull
	// ErrNoRoom: the server or the account has less storage left than a stream would
	// reserve.
	ErrNoRoom = api.ErrNoRoom
	// ErrAccountLimit is an ErrNoRoom: the account may not have that many streams.
	ErrAccountLimit = room.ErrAccountLimit
	// ErrElsewhere: the streams of the mesh are in another JetStream domain.
	ErrElsewhere = errors.New("another JetStream domain stores the tasks of this mesh")
	// ErrConflict: a stream or consumer cannot be corrected without losing what it holds. Apply has made
	// all other changes.
	ErrConflict = errors.New("it cannot be corrected without losing what it holds")
	// ErrTooLarge: the message is larger than the server's max_payload, or than the
	// stream allows.
	ErrTooLarge = api.ErrTooLarge
)

// Away reports temporary errors of JetStream, which a retry may not meet: it does not
// answer, has no leader, is full, or did not confirm a write. Such an error is an [ErrDenied] too
// if the server has denied something else shortly before, which may be why it does not answer.
func Away(err error) bool { return api.Away(err) }

// Off reports whether an [ErrUnavailable] means that the server or the account has no JetStream.
// Other such errors mean that JetStream does not answer at the moment.
func Off(err error) bool {
	return errors.Is(err, natsjs.ErrJetStreamNotEnabled) || errors.Is(err, natsjs.ErrJetStreamNotEnabledForAccount) || errors.Is(err, nats.ErrNoResponders)
}

// A Message is a stored message.
type Message = api.Message

// Published reports whether a user published a message that a subscription of one subject
// received. It is false for messages that the server sent there, as the answer to a request or as
// the next message of a consumer; the latter keeps the subject under which it is stored.
func Published(m *nats.Msg, subject string) bool { return api.Published(m, subject) }

// Gather returns js with a PublishMsg that is cheaper when many goroutines call it at
// once: messages that are published at about the same time share a system call, and their
// acknowledgements share one subscription. A single message takes as long as before. All
// other methods are js's own, as is PublishMsg when it is given options.
//
// When the connection is lost, the messages under way fail at once with
// [nats.ErrDisconnected] instead of at their timeout: their acknowledgements cannot
// arrive any more, though the messages may be stored.
//
// The subscription is created with the first message and ends with the connection.
func Gather(js natsjs.JetStream) natsjs.JetStream { return api.Gather(js) }

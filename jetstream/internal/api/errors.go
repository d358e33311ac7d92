package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/state"
)

// Errors for errors.Is. Package jetstream says what they mean.
var (
	ErrUnavailable = errors.New("jetstream is not available")
	ErrDenied      = errors.New("NATS permissions do not allow it")
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("exists already")
	ErrChanged     = errors.New("changed meanwhile")
	ErrUncertain   = state.ErrUncertain
	ErrFull        = errors.New("the stream is full")
	ErrNoRoom      = errors.New("the server has not that much storage left")
	ErrTooLarge    = errors.New("too large")
)

// ErrAccountFull is an [ErrFull] that is not caused by a limit of a stream.
var ErrAccountFull error = accountFull{}

type accountFull struct{}

func (accountFull) Error() string        { return "the storage of the account, or of its server, is used up" }
func (accountFull) Is(target error) bool { return target == ErrFull }

// errGuessed is an [ErrDenied] that is a guess: the server has denied something else shortly before.
var errGuessed error = guessed{}

type guessed struct{}

func (guessed) Error() string        { return ErrDenied.Error() }
func (guessed) Is(target error) bool { return target == ErrDenied }

// errUnheard is an [ErrDenied] of the inbox: no answer arrives, whatever was asked for.
var errUnheard error = unheard{}

type unheard struct{}

func (unheard) Error() string        { return ErrDenied.Error() }
func (unheard) Is(target error) bool { return target == ErrDenied }

// Refused reports whether an error is an [ErrDenied] that the server has reported of the very request
// that failed.
func Refused(err error) bool { return Denied(err) && !errors.Is(err, errUnheard) }

// Denied reports whether an error is an [ErrDenied] that is no guess: the request was denied, or the
// inbox for all answers.
func Denied(err error) bool { return errors.Is(err, ErrDenied) && !errors.Is(err, errGuessed) }

// Explain wraps an error of nats.go with the operation that failed and with the matching
// error of this package. A timeout becomes [ErrDenied] if the server has denied something that may
// be its cause, unless it is that of a write: see [OfWrite].
func Explain(nc *nats.Conn, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	op := fmt.Sprintf(format, args...)
	switch {
	case errors.Is(err, ErrDenied):
	case errors.Is(err, natsjs.ErrJetStreamNotEnabled), errors.Is(err, natsjs.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)
	case errors.Is(err, natsjs.ErrStreamNotFound), errors.Is(err, natsjs.ErrBucketNotFound), errors.Is(err, natsjs.ErrConsumerNotFound), errors.Is(err, natsjs.ErrMsgNotFound), errors.Is(err, natsjs.ErrKeyNotFound):
		return fmt.Errorf("%s: %w: %w", op, ErrNotFound, err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, natsjs.ErrNoStreamResponse), errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)
	case HasNoRoom(err):
		return fmt.Errorf("%s: %w: %w", op, ErrNoRoom, err)
	case UsedUp(err):
		return fmt.Errorf("%s: %w: %w", op, ErrAccountFull, err)
	case isFull(err):
		return fmt.Errorf("%s: %w: %w", op, ErrFull, err)
	case isAway(err):
		return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, natsjs.ErrStreamMessageExceedsMaximum):
		return fmt.Errorf("%s: %w: %w", op, ErrTooLarge, err)
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		d, denied := violation(nc)
		switch {
		case !denied || errors.As(err, new(lostAnswer)):
		case d.Op == denial.Subscribe && !strings.HasSuffix(d.Subject, ">"): // the inbox of the answers themselves
			return fmt.Errorf("%s: %w: %w", op, errUnheard, d.Err)
		default:
			return fmt.Errorf("%s: %w: %w", op, errGuessed, d.Err)
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}

// Uncertain adds [ErrUncertain] to an error of a write that may have been stored all the same.
func Uncertain(err error) error {
	if err == nil || errors.Is(err, ErrDenied) || errors.Is(err, ErrUnavailable) {
		return err
	}
	for _, e := range []error{nats.ErrTimeout, context.DeadlineExceeded, context.Canceled, nats.ErrConnectionClosed, nats.ErrDisconnected} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrUncertain, err)
		}
	}
	if HasCode(err, duplicateInProcess) || IsUnderWay(err) {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return err
}

// duplicateInProcess is the answer of a replicated stream's leader to a message whose
// Nats-Msg-Id an earlier copy has, while it does not know yet whether the replicas have
// stored that copy.
const duplicateInProcess natsjs.ErrorCode = 10158

// Publish publishes a message and waits until the server has stored it. See [OfWrite]. It publishes
// it again for a third of a second while the stream's leader says that another write of the subject
// is under way: that write may never be stored, so it is not known yet whether the subject changes.
func Publish(ctx context.Context, js natsjs.JetStream, msg *nats.Msg) (*natsjs.PubAck, error) {
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		ack, err := js.PublishMsg(ctx, msg)
		if !IsUnderWay(err) || wait > 160*time.Millisecond || !pause.For(ctx, wait) {
			return ack, OfWrite(js.Conn(), msg.Subject, err)
		}
	}
}

// OfWrite returns the error of a write to a subject. A timeout becomes [ErrDenied] only if the server
// has denied this subject, or the reply subject. After another one [Explain] does not guess: the
// message may be stored.
func OfWrite(nc *nats.Conn, subject string, err error) error {
	if !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	inbox := inboxOf(nc)
	if d, denied := denial.Why(nc, func(d denial.Denial) bool {
		return d.Is(denial.Publish, subject) || d.Op == denial.Reply && strings.HasPrefix(d.Subject, inbox)
	}); denied {
		return fmt.Errorf("%w: %w", ErrDenied, d.Err)
	}
	if d, denied := denial.Why(nc, func(d denial.Denial) bool { return d.Op == denial.Subscribe && strings.HasPrefix(d.Subject, inbox) }); denied {
		err = fmt.Errorf("%w: %w", err, d.Err) // no answer arrives, whether the message is stored or not
	}
	return lostAnswer{err}
}

// lostAnswer is the timeout of a write that was not denied.
type lostAnswer struct{ error }

func (e lostAnswer) Unwrap() error { return e.error }

// violation returns the last denial that may be why JetStream does not answer: of publishing to a
// subject that this package publishes to, or of subscribing to an inbox, where the answers arrive.
// The server reports it besides the request, which then times out.
func violation(nc *nats.Conn) (d denial.Denial, denied bool) {
	inbox := inboxOf(nc)
	return denial.Why(nc, func(d denial.Denial) bool {
		if d.Op == denial.Subscribe {
			return strings.HasPrefix(d.Subject, inbox)
		}
		return slices.ContainsFunc([]string{"$JS.", "$KV.", "$O.", inbox}, func(s string) bool { return strings.HasPrefix(d.Subject, s) }) ||
			slices.ContainsFunc([]string{"aee.journal.", "aee.work.", "aee.schedule.", "aee.reply.", "aee.dead."}, func(s string) bool { return strings.Contains(d.Subject, s) })
	})
}

// inboxOf returns how the connection's inboxes begin.
func inboxOf(nc *nats.Conn) string {
	if nc.Opts.InboxPrefix != "" {
		return nc.Opts.InboxPrefix + "."
	}
	return nats.InboxPrefix
}

// IsWrongSequence reports whether a write failed because the subject was not at the
// expected sequence, or because another write of the subject was under way ([IsUnderWay]).
func IsWrongSequence(err error) bool {
	return IsChanged(err) || IsUnderWay(err)
}

// IsUnderWay reports whether a write was refused because another write of the subject is under way,
// perhaps an earlier copy of the same one. It may never be stored.
func IsUnderWay(err error) bool {
	return HasCode(err, natsjs.JSErrCodeStreamWrongLastSequenceConstant)
}

// IsChanged reports whether a write failed because the subject has changed.
func IsChanged(err error) bool { return HasCode(err, natsjs.JSErrCodeStreamWrongLastSequence) }

// nats-server's codes for a stream, an account or a server at its limits.
const (
	jsStorageExceeded  natsjs.ErrorCode = 10047 // a stream would reserve more than is left
	jsMemoryExceeded   natsjs.ErrorCode = 10028
	AccountExceeded    natsjs.ErrorCode = 10002
	jsNotEnoughStorage natsjs.ErrorCode = 10023
	jsStoreFailed      natsjs.ErrorCode = 10077 // "maximum bytes exceeded", "maximum messages exceeded", …
	jsNoPeers          natsjs.ErrorCode = 10005 // of a cluster: "insufficient storage", among others
	CreateFailed       natsjs.ErrorCode = 10049 // "error creating store for stream", among others
)

// HasNoRoom reports whether a stream would reserve more than a server, or enough servers
// of a cluster, have left.
func HasNoRoom(err error) bool {
	var refusal *natsjs.APIError
	return HasCode(err, jsStorageExceeded, jsMemoryExceeded) ||
		errors.As(err, &refusal) && refusal.ErrorCode == jsNoPeers && strings.Contains(refusal.Description, "insufficient storage")
}

func isFull(err error) bool {
	var refusal *natsjs.APIError
	return errors.As(err, &refusal) && refusal.ErrorCode == jsStoreFailed && strings.Contains(refusal.Description, "maximum")
}

// Away reports temporary errors, which a retry may not meet. A denial that is a guess is one: no
// answer came.
func Away(err error) bool {
	for _, e := range []error{ErrUncertain, ErrUnavailable, ErrFull, natsjs.ErrNoStreamResponse, errGuessed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return isAway(err)
}

// The codes of what is away for now although the server answers with 500 (an internal error)
// and not with 503 (unavailable): no server that holds it is up, or an election is under way.
const (
	jsNotLeader             natsjs.ErrorCode = 10009
	jsStreamOffline         natsjs.ErrorCode = 10118
	jsConsumerOffline       natsjs.ErrorCode = 10119
	jsStreamOfflineReason   natsjs.ErrorCode = 10194
	jsConsumerOfflineReason natsjs.ErrorCode = 10195
)

// isAway reports whether the server cannot do it at the moment: there is no leader, or
// the server is shutting down.
func isAway(err error) bool {
	var refusal *natsjs.APIError
	return errors.As(err, &refusal) && (refusal.Code == http.StatusServiceUnavailable ||
		HasCode(err, jsNotLeader, jsStreamOffline, jsConsumerOffline, jsStreamOfflineReason, jsConsumerOfflineReason))
}

// HasCode reports whether an error is a refusal with one of the codes.
func HasCode(err error, codes ...natsjs.ErrorCode) bool {
	var refusal *natsjs.APIError
	return errors.As(err, &refusal) && slices.Contains(codes, refusal.ErrorCode)
}

// Temporary reports whether an error is temporary.
func Temporary(err error) bool {
	return !errors.Is(err, ErrDenied) && !errors.Is(err, ErrNotFound) && !errors.Is(err, nats.ErrConnectionClosed)
}

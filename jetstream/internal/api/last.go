package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/pause"
)

// LastSequence asks a stream's leader for the sequence of the last message on the subjects of a
// pattern, 0 if there is none. NATS permissions cannot restrict any JetStream request for that by
// subject. So it publishes a message to one of these subjects that the leader must refuse, because
// the message expects a last sequence that no stream reaches. The refusal contains the real
// sequence. ask sends the message and returns the answer.
func LastSequence(ctx context.Context, stream, subject, pattern string, ask func(*nats.Msg) (*nats.Msg, error)) (uint64, error) {
	for {
		answer, err := ask(&nats.Msg{Subject: subject, Header: nats.Header{
			natsjs.ExpectedLastSubjSeqHeader:     unreachable,
			natsjs.ExpectedLastSubjSeqSubjHeader: {pattern},
			natsjs.ExpectedStreamHeader:          {stream},
		}})
		if err != nil {
			return 0, err
		}
		if seq, ok := refusedAt(answer.Data); ok {
			return seq, nil
		}
		_, err = ReadAck(answer.Data)
		if seq, ok := LastIn(err); ok {
			return seq, nil
		}
		if !IsUnderWay(err) { // otherwise another write is under way
			return 0, fmt.Errorf("ask for the last sequence under %s: %w", pattern, err)
		}
		if !pause.For(ctx, time.Millisecond) {
			return 0, ctx.Err()
		}
	}
}

// LastOfLeader is [LastSequence], or [LeaderLast] while the account has no storage left, for users who
// may send both. An error of [UsedUp] means that this user may not send the second.
func LastOfLeader(ctx context.Context, js natsjs.JetStream, stream, subject, pattern string) (uint64, error) {
	last, err := LastSequence(ctx, stream, subject, pattern, func(m *nats.Msg) (*nats.Msg, error) { return Exchange(ctx, js.Conn(), m) })
	if UsedUp(err) {
		if read, failed := LeaderLast(ctx, js, stream, pattern); !errors.Is(failed, ErrDenied) {
			return read, failed
		}
	}
	return last, err
}

// UsedUp reports whether [LastSequence] failed because the account, or the server, has no storage
// left: then the leader of a replicated stream refuses a message before it looks at the sequence
// that the message expects.
func UsedUp(err error) bool { return HasCode(err, AccountExceeded, jsNotEnoughStorage) }

// LeaderLast is [LastSequence] by a request for the last message, which needs permission for
// $JS.API.STREAM.MSG.GET.<stream>.
func LeaderLast(ctx context.Context, js natsjs.JetStream, stream, pattern string) (uint64, error) {
	m, err := LeaderGet(ctx, js, stream, map[string]any{"last_by_subj": pattern})
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		return 0, nil
	}
	return m.Seq, err
}

// unreachable is a sequence that no stream reaches.
var unreachable = []string{strconv.FormatInt(math.MaxInt64, 10)}

// refusedAt returns the sequence that a refusal names. It does not decode the JSON, which would
// take longer than the rest of the request, and every new task makes one.
func refusedAt(answer []byte) (seq uint64, ok bool) {
	_, rest, found := bytes.Cut(answer, []byte(`"err_code":10071,"description":"wrong last sequence: `))
	number, _, end := bytes.Cut(rest, []byte(`"`))
	if !found || !end {
		return 0, false
	}
	seq, err := strconv.ParseUint(string(number), 10, 64)
	return seq, err == nil
}

// LastIn returns the last sequence that the refusal of a write names.
func LastIn(err error) (seq uint64, ok bool) {
	var refused *natsjs.APIError
	if !errors.As(err, &refused) || refused.ErrorCode != natsjs.JSErrCodeStreamWrongLastSequence {
		return 0, false
	}
	_, number, _ := strings.Cut(refused.Description, ": ")
	seq, err = strconv.ParseUint(number, 10, 64)
	return seq, err == nil
}

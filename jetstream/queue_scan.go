package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Limits of one batch of a direct get. A batch has at least one message, whatever its
// size.
const (
	scanBatch = 256
	scanBytes = 4 * mib
)

// scan yields the messages of a stream that match a filter, from a sequence on. It also
// yields messages that are stored while it reads. It creates no consumer: it reads by
// direct get in batches (nats-server 2.11, ADR-31), which needs permission for
// $JS.API.DIRECT.GET.<stream>. Any replica may answer, so a message that was stored a
// moment ago may be missing. It skips strays (see copied.go). After an error it yields
// nothing more.
func scan(ctx context.Context, js natsjs.JetStream, stream, filter string, from uint64) iter.Seq2[Message, error] {
	return withoutStrays(scanSince(ctx, js, stream, filter, from, time.Time{}))
}

// scanSince is like scan but includes strays, and skips messages stored before since if
// from is the beginning of the stream.
func scanSince(ctx context.Context, js natsjs.JetStream, stream, filter string, from uint64, since time.Time) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		from := max(from, 1)
		for {
			query := map[string]any{"seq": from, "next_by_subj": filter, "batch": scanBatch, "max_bytes": scanBytes}
			if from == 1 && !since.IsZero() {
				delete(query, "seq")
				query["start_time"] = since.UTC()
			}
			batch, err := direct(ctx, js, stream, query)
			for _, msg := range batch.messages {
				if !yield(msg, nil) {
					return
				}
				from = msg.Seq + 1
			}
			if err != nil {
				yield(Message{}, err)
				return
			}
			if batch.pending == 0 || len(batch.messages) == 0 {
				return
			}
		}
	}
}

// last returns the newest message on each subject that matches one of the filters, in the
// order in which they are stored. It fails with [ErrTooLarge] if more than 1,024 subjects
// match.
func last(ctx context.Context, js natsjs.JetStream, stream string, filters ...string) ([]Message, error) {
	batch, err := direct(ctx, js, stream, map[string]any{"multi_last": filters})
	return batch.messages, err
}

// refusal returns why a direct get has no messages: the status, or an error of the API,
// as from a server without a leader.
func refusal(msg *nats.Msg) error {
	var failed struct {
		Error *natsjs.APIError `json:"error"`
	}
	if json.Unmarshal(msg.Data, &failed) == nil && failed.Error != nil {
		return failed.Error
	}
	return fmt.Errorf("the server refuses: %s %s", msg.Header.Get("Status"), msg.Header.Get("Description"))
}

type directBatch struct {
	messages []Message
	pending  uint64 // how many more there are
}

// direct sends a direct get and reads its answers to the end. No message is not an error.
func direct(ctx context.Context, js natsjs.JetStream, stream string, query map[string]any) (directBatch, error) {
	fail := func(err error) (directBatch, error) {
		return directBatch{}, explain(js.Conn(), err, "read %s", stream)
	}
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	nc := js.Conn()
	to := apiPrefix(js) + "DIRECT.GET." + stream
	ctx, stop := untilDenied(ctx, nc, to+`"`)
	defer stop()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	body, err := json.Marshal(query)
	if err != nil {
		return fail(err)
	}
	if err := nc.PublishRequest(to, inbox, body); err != nil {
		return fail(err)
	}
	var batch directBatch
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if errors.Is(err, nats.ErrNoResponders) {
			return fail(noDirect(ctx, js, stream))
		}
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrDenied) {
			return fail(cause)
		}
		if err != nil {
			return fail(err)
		}
		if msg.Header.Get(natsjs.SequenceHeader) != "" { // a message, whatever headers of its own it has
			m, err := stored(msg)
			if err != nil {
				return fail(err)
			}
			batch.messages = append(batch.messages, m)
			continue
		}
		switch status := msg.Header.Get("Status"); status {
		case "204": // the end of the batch
			batch.pending, _ = strconv.ParseUint(msg.Header.Get("Nats-Num-Pending"), 10, 64)
			return batch, nil
		case "404":
			return batch, nil
		case "413":
			return fail(fmt.Errorf("%w: more than 1024 subjects match", ErrTooLarge))
		default:
			return fail(refusal(msg))
		}
	}
}

// newest returns the last message on a subject by direct get, or [natsjs.ErrMsgNotFound].
// The subject is part of the request's subject, so that permissions can restrict what may
// be read: $JS.API.DIRECT.GET.<stream>.<subject>. Any replica may answer, so a message
// that was stored a moment ago may be missing.
func newest(ctx context.Context, js natsjs.JetStream, stream, subj string) (Message, error) {
	answer, err := exchange(ctx, js.Conn(), &nats.Msg{Subject: apiPrefix(js) + "DIRECT.GET." + stream + "." + subj})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return Message{}, noDirect(ctx, js, stream)
	case err != nil:
		return Message{}, err
	case answer.Header.Get(natsjs.SequenceHeader) != "":
		return stored(answer)
	case answer.Header.Get("Status") == "404":
		return Message{}, natsjs.ErrMsgNotFound
	}
	return Message{}, refusal(answer)
}

var errNoDirect = fmt.Errorf("%w: the stream does not allow direct gets (allow_direct); `aeemesh apply` corrects that", ErrUnavailable)

// noDirect returns why no server answers a direct get.
func noDirect(ctx context.Context, js natsjs.JetStream, stream string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var info natsjs.StreamInfo
	err := request(ctx, js, "STREAM.INFO."+stream, nil, &info)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrDenied) { // the user may not read the stream's configuration
		return nats.ErrNoResponders
	}
	if err != nil {
		return err
	}
	if !info.Config.AllowDirect {
		return errNoDirect
	}
	return nats.ErrNoResponders
}

// stored decodes the answer to a direct get.
func stored(msg *nats.Msg) (Message, error) {
	h := msg.Header
	seq, err := strconv.ParseUint(ofServer(h, natsjs.SequenceHeader), 10, 64)
	if err != nil {
		return Message{}, fmt.Errorf("decode a stored message: its sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, ofServer(h, natsjs.TimeStampHeaer))
	if err != nil {
		return Message{}, fmt.Errorf("decode a stored message: its time: %w", err)
	}
	h.Del("Nats-Num-Pending") // of a batch
	h.Del("Nats-Last-Sequence")
	return Message{
		Subject: ofServer(h, natsjs.SubjectHeader), Data: msg.Data, Header: h,
		Time: at, Stream: ofServer(h, natsjs.StreamHeader), Seq: seq,
	}, nil
}

// leaderGet reads one message from the stream's leader.
func leaderGet(ctx context.Context, js natsjs.JetStream, stream string, query map[string]any) (Message, error) {
	var answer struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Time    time.Time `json:"time"`
			Data    []byte    `json:"data"`
			Header  []byte    `json:"hdrs"`
		} `json:"message"`
	}
	if err := request(ctx, js, "STREAM.MSG.GET."+stream, query, &answer); err != nil {
		return Message{}, err
	}
	m := answer.Message
	msg := Message{Subject: m.Subject, Data: m.Data, Time: m.Time, Stream: stream, Seq: m.Seq}
	if len(m.Header) > 0 {
		var err error
		if msg.Header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return Message{}, fmt.Errorf("decode the headers of message %d of %s: %w", m.Seq, stream, err)
		}
	}
	return msg, nil
}

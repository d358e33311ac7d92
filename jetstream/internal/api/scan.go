package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream/denial"
)

// Limits of one batch of a direct get. A batch has at least one message, whatever its
// size. The first one is small, for readers that soon have enough. The server counts the
// messages behind each batch, block by block, so the others grow.
const (
	firstBatch = 256
	scanBatch  = 2048
	scanBytes  = 4 << 20
)

// Scan yields the messages of a stream that match a filter, from a sequence on. It also
// yields messages that are stored while it reads. It creates no consumer: it reads by
// Direct get in batches (nats-server 2.11, ADR-31), which needs permission for
// $JS.API.DIRECT.GET.<stream>. Any replica may answer, so a message that was stored a
// moment ago may be missing. It skips strays (see copied.go). After an error it yields
// nothing more.
func Scan(ctx context.Context, js natsjs.JetStream, stream, filter string, from uint64) iter.Seq2[Message, error] {
	return WithoutStrays(ScanSince(ctx, js, stream, filter, from, time.Time{}))
}

// ScanSince is like [Scan] but includes strays, and skips messages stored before since if from is
// the beginning of the stream.
func ScanSince(ctx context.Context, js natsjs.JetStream, stream, filter string, from uint64, since time.Time) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		from := max(from, 1)
		for size := firstBatch; ; size = min(2*size, scanBatch) {
			query := map[string]any{"seq": from, "next_by_subj": filter, "batch": size, "max_bytes": scanBytes}
			if from == 1 && !since.IsZero() {
				delete(query, "seq")
				query["start_time"] = since.UTC()
			}
			batch, err := Direct(ctx, js, stream, query)
			for _, msg := range batch.Messages {
				if !yield(msg, nil) {
					return
				}
				from = msg.Seq + 1
			}
			if err != nil {
				yield(Message{}, err)
				return
			}
			if batch.pending == 0 || len(batch.Messages) == 0 {
				return
			}
		}
	}
}

// Last returns the newest message on each subject that matches one of the filters, in the
// order in which they are stored. It fails with [ErrTooLarge] if more than 1,024 subjects
// match. It reads some MiB at a time: a subject that is written meanwhile is returned once,
// with its new message.
func Last(ctx context.Context, js natsjs.JetStream, stream string, filters ...string) ([]Message, error) {
	query := map[string]any{"multi_last": filters, "max_bytes": scanBytes}
	batch, err := Direct(ctx, js, stream, query)
	all := batch.Messages
	for err == nil && batch.pending > 0 && len(batch.Messages) > 0 {
		query["seq"] = all[len(all)-1].Seq + 1
		batch, err = Direct(ctx, js, stream, query)
		all = append(all, batch.Messages...)
	}
	if err != nil || len(all) == len(batch.Messages) {
		return all, err
	}
	newest := make(map[string]uint64, len(all))
	for _, m := range all {
		newest[m.Subject] = m.Seq
	}
	return slices.DeleteFunc(all, func(m Message) bool { return m.Seq < newest[m.Subject] }), nil
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

// A Batch is the answer to one direct get.
type Batch struct {
	Messages []Message
	pending  uint64 // how many more there are
}

// Direct sends a direct get and reads its answers to the end. No message is not an error.
func Direct(ctx context.Context, js natsjs.JetStream, stream string, query map[string]any) (Batch, error) {
	fail := func(err error) (Batch, error) {
		return Batch{}, Explain(js.Conn(), err, "read %s", stream)
	}
	ctx, cancel := OneRequest(ctx)
	defer cancel()
	nc := js.Conn()
	to := Prefix(js) + "DIRECT.GET." + stream
	ctx, stop := UntilDenied(ctx, nc, to+`"`)
	defer stop()
	inbox := Inbox(nc)
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
	var batch Batch
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
			batch.Messages = append(batch.Messages, m)
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

// Newest returns the last message on a subject by direct get, or [natsjs.ErrMsgNotFound].
// The subject is part of the request's subject, so that permissions can restrict what may
// be read: $JS.API.DIRECT.GET.<stream>.<subject>. Any replica may answer, so a message
// that was stored a moment ago may be missing.
func Newest(ctx context.Context, js natsjs.JetStream, stream, subj string) (Message, error) {
	answer, err := Exchange(ctx, js.Conn(), &nats.Msg{Subject: Prefix(js) + "DIRECT.GET." + stream + "." + subj})
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

// ErrNoDirect: the stream was made without direct gets.
var ErrNoDirect = fmt.Errorf("%w: the stream does not allow direct gets (allow_direct); `aeemesh apply` corrects that", ErrUnavailable)

// noDirect returns why no server answers a direct get. A user who may not ask for the stream's
// configuration is not told, and asks once a minute at most: each denial is a line in the server's log.
func noDirect(ctx context.Context, js natsjs.JetStream, stream string) error {
	if denial.Lately(js.Conn(), denial.Publish, Prefix(js)+"STREAM.INFO."+stream) {
		return nats.ErrNoResponders
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var info natsjs.StreamInfo
	err := Request(ctx, js, "STREAM.INFO."+stream, nil, &info)
	switch {
	case errors.Is(err, ErrDenied):
		return nats.ErrNoResponders
	case errors.Is(err, context.DeadlineExceeded):
		return errNoReplica
	case err != nil:
		return err
	case !info.Config.AllowDirect:
		return ErrNoDirect
	}
	return errNoReplica
}

// errNoReplica: there is a JetStream, and no server that has the stream answers at the moment.
var errNoReplica = fmt.Errorf("%w: no server that has the stream answers", ErrUnavailable)

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

// LeaderGet reads one message from the stream's leader.
func LeaderGet(ctx context.Context, js natsjs.JetStream, stream string, query map[string]any) (Message, error) {
	body, err := json.Marshal(query)
	if err != nil {
		return Message{}, err
	}
	answer, err := Exchange(ctx, js.Conn(), &nats.Msg{Subject: Prefix(js) + "STREAM.MSG.GET." + stream, Data: body})
	if err != nil {
		return Message{}, err
	}
	m, err := ReadMessage(answer.Data)
	m.Stream = stream
	return m, err
}

// ReadMessage decodes the answer of $JS.API.STREAM.MSG.GET. encoding/json needs most of a
// millisecond for the base64 of 64 KiB, so the data are cut out first. The search for the
// member cannot match inside a JSON string, which cannot contain unescaped quotation
// marks.
func ReadMessage(answer []byte) (Message, error) {
	var data []byte
	const member = `"data":"`
	if i := bytes.Index(answer, []byte(member)); i >= 0 {
		i += len(member)
		n := bytes.IndexByte(answer[i:], '"')
		if n < 0 {
			return Message{}, errors.New("read a message: its data do not end")
		}
		data = make([]byte, base64.StdEncoding.DecodedLen(n))
		got, err := base64.StdEncoding.Decode(data, answer[i:i+n])
		if err != nil {
			return Message{}, fmt.Errorf("read a message: %w", err)
		}
		data, answer = data[:got], slices.Concat(answer[:i], answer[i+n:])
	}
	var got struct {
		Error   *natsjs.APIError `json:"error"`
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return Message{}, fmt.Errorf("read a message: %w", err)
	}
	if got.Error != nil {
		return Message{}, got.Error
	}
	m := Message{Subject: got.Message.Subject, Data: data, Time: got.Message.Time, Seq: got.Message.Seq}
	if len(got.Message.Header) > 0 {
		var err error
		if m.Header, err = nats.DecodeHeadersMsg(got.Message.Header); err != nil {
			return Message{}, fmt.Errorf("read a message: %w", err)
		}
	}
	return m, nil
}

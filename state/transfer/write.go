package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope"
)

// WriteHandoff writes an Agent State document as a streaming handoff, message by message:
// it blocks while w blocks. The document is JSON with its checksum and without a
// migration token, which is passed separately.
//
// When ctx ends, or w fails, the handoff fails: WriteHandoff then tries to write a
// handoff_error, which makes the receiver discard everything. The error is the context's
// cause (see [NewHandoffError]).
func WriteHandoff(ctx context.Context, w io.Writer, token string, doc []byte) error {
	sum, messages, err := splitHandoff(token, doc)
	if err != nil {
		return fmt.Errorf("write handoff: %w", err)
	}
	out := handoffWriter{w: w}
	for _, m := range messages {
		if err := out.value(ctx, m.typ, m.value); err != nil {
			return fmt.Errorf("write handoff: %w", err)
		}
	}
	if err := out.line(ctx, msgComplete, jsonMember{"checksum", appendText(sum)}); err != nil {
		return fmt.Errorf("write handoff: %w", err)
	}
	return nil
}

// A handoffValue is the content of one message, or of several if it is long.
type handoffValue struct {
	typ   string
	value jsontext.Value
}

// splitHandoff splits a document into the contents of its messages. The first is
// handoff_init with its two members.
func splitHandoff(token string, doc []byte) (sum string, values []handoffValue, err error) {
	text := jsontext.Value(doc).Clone()
	if err := text.Compact(); err != nil { // a message is one line
		return "", nil, err
	}
	if sum, err = ContentChecksum(text); err != nil {
		return "", nil, err
	}
	members, err := readObject(text)
	if err != nil {
		return "", nil, err
	}
	if err := checkStated(members, sum); err != nil {
		return "", nil, err
	}
	var head []jsonMember
	var rest []handoffValue
	for _, m := range members {
		if inPipelineState(m.name) {
			rest = append(rest, handoffValue{msgPipeline, appendObject(nil, []jsonMember{m})})
		} else {
			head = append(head, m)
		}
	}
	for _, l := range handoffLists {
		for i, m := range head {
			if m.name != l.member {
				continue
			}
			items, err := readArray(m.value)
			if err != nil {
				return "", nil, fmt.Errorf("%s: %w", m.name, err)
			}
			head[i].value = jsontext.Value("[]") // the receiver has to know that the list exists
			for _, item := range items {
				rest = append(rest, handoffValue{l.typ, item})
			}
		}
	}
	init := appendObject(nil, []jsonMember{{"migration_token", appendText(token)}, {"state", appendObject(nil, head)}})
	return sum, append([]handoffValue{{msgInit, init}}, rest...), nil
}

// checkStated compares the checksum in the document, if any, with sum, and refuses a
// document that has a token.
func checkStated(members []jsonMember, sum string) error {
	p, err := readProvenance(members)
	switch {
	case err != nil:
		return err
	case p.token != "":
		return errors.New("provenance.migration_token is set: in a stream the token comes beside the state")
	case p.checksum != "" && p.checksum != sum:
		return fmt.Errorf("%w: provenance says %.70q, and it is %s", ErrChecksum, p.checksum, sum)
	}
	return nil
}

type handoffWriter struct {
	w   io.Writer
	seq int
	buf []byte
}

// value writes a value in one message, or in parts.
func (w *handoffWriter) value(ctx context.Context, typ string, v jsontext.Value) error {
	if typ == msgInit {
		members, err := readObject(v)
		if err != nil {
			return err
		}
		return w.line(ctx, typ, members...)
	}
	if len(v) <= handoffPart {
		return w.line(ctx, typ, jsonMember{"value", v})
	}
	for len(v) > 0 {
		n := min(len(v), handoffPart)
		for n < len(v) && !utf8.RuneStart(v[n]) {
			n--
		}
		part := []jsonMember{{"part", appendText(string(v[:n]))}}
		if v = v[n:]; len(v) > 0 {
			part = append(part, jsonMember{"more", jsontext.Value("true")})
		}
		if err := w.line(ctx, typ, part...); err != nil {
			return err
		}
	}
	return nil
}

func (w *handoffWriter) line(ctx context.Context, typ string, members ...jsonMember) error {
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		return errors.Join(cause, w.fail(cause))
	}
	if err := w.write(typ, members); err != nil {
		return errors.Join(err, w.fail(ErrHandoffAborted))
	}
	return nil
}

// fail tells the reader to discard everything. If the stream is broken, the reader
// notices by itself.
func (w *handoffWriter) fail(cause error) error {
	e := NewHandoffError(cause)
	if e.Code == HandoffInternal {
		e = &HandoffError{Code: HandoffAborted, Message: "the sender gave up"}
	}
	return w.write(msgError, []jsonMember{{"code", appendText(string(e.Code))}, {"message", appendText(e.Message)}})
}

func (w *handoffWriter) write(typ string, members []jsonMember) error {
	head := []jsonMember{{"type", appendText(typ)}, {"seq", strconv.AppendInt(nil, int64(w.seq), 10)}}
	w.buf = append(appendObject(w.buf[:0], append(head, members...)), '\n')
	if len(w.buf) > minHandoffLine {
		return fmt.Errorf("%w: a %s of %d bytes, and %d is the limit", ErrTooLarge, typ, len(w.buf), minHandoffLine)
	}
	w.seq++
	_, err := w.w.Write(w.buf)
	return err
}

func appendText(s string) jsontext.Value { return envelope.AppendString(nil, s) }

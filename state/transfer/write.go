package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/internal/rawdoc"
)

// Write writes an Agent State document as a streaming handoff, message by message:
// it blocks while w blocks. The document is JSON with its checksum and without a
// migration token, which is passed separately.
//
// When ctx ends, or w fails, the handoff fails: Write then tries to write a
// handoff_error, which makes the receiver discard everything. The error is the context's
// cause (see [NewError]).
func Write(ctx context.Context, w io.Writer, token string, doc []byte) error {
	sum, messages, err := split(token, doc)
	if err != nil {
		return fmt.Errorf("write handoff: %w", err)
	}
	out := writer{w: w}
	for _, m := range messages {
		if err := out.value(ctx, m.typ, m.value); err != nil {
			return fmt.Errorf("write handoff: %w", err)
		}
	}
	if err := out.line(ctx, msgComplete, member("checksum", rawdoc.Quote(sum))); err != nil {
		return fmt.Errorf("write handoff: %w", err)
	}
	return nil
}

// A value is the content of one message, or of several if it is long.
type value struct {
	typ   string
	value jsontext.Value
}

// split splits a document into the contents of its messages. The first is
// handoff_init with its two members.
func split(token string, doc []byte) (sum string, values []value, err error) {
	text := jsontext.Value(doc)
	if bytes.IndexByte(text, '\n') >= 0 { // a message is one line
		text = text.Clone()
		if err := text.Compact(); err != nil {
			return "", nil, err
		}
	}
	if sum, err = state.ContentChecksum(text); err != nil {
		return "", nil, err
	}
	members, err := rawdoc.Object(text)
	if err != nil {
		return "", nil, err
	}
	if err := checkStated(members, sum); err != nil {
		return "", nil, err
	}
	var head []rawdoc.Member
	var rest []value
	for _, m := range members {
		if inPipelineState(m.Name) {
			rest = append(rest, value{msgPipeline, rawdoc.Append(nil, []rawdoc.Member{m})})
		} else {
			head = append(head, m)
		}
	}
	for _, l := range lists {
		for i, m := range head {
			if m.Name != l.member {
				continue
			}
			items, err := rawdoc.Array(m.Value)
			if err != nil {
				return "", nil, fmt.Errorf("%s: %w", m.Name, err)
			}
			head[i].Value = jsontext.Value("[]") // the receiver has to know that the list exists
			for _, item := range items {
				rest = append(rest, value{l.typ, item})
			}
		}
	}
	init := jsontext.Value(rawdoc.Append(nil, []rawdoc.Member{member("migration_token", rawdoc.Quote(token)), member("state", rawdoc.Append(nil, head))}))
	if err := init.Compact(); err != nil { // it is not sent in parts
		return "", nil, err
	}
	return sum, append([]value{{msgInit, init}}, rest...), nil
}

// checkStated compares the checksum in the document, if any, with sum, and refuses a
// document that has a token.
func checkStated(members []rawdoc.Member, sum string) error {
	p, err := rawdoc.ReadProvenance(members)
	switch {
	case err != nil:
		return err
	case p.Token != "":
		return errors.New("provenance.migration_token is set: in a stream the token comes beside the state")
	case p.Checksum != "" && p.Checksum != sum:
		return fmt.Errorf("%w: provenance says %.70q, and it is %s", state.ErrChecksum, p.Checksum, sum)
	}
	return nil
}

type writer struct {
	w   io.Writer
	seq int
	buf []byte
}

// value writes a value in one message, or in parts.
func (w *writer) value(ctx context.Context, typ string, v jsontext.Value) error {
	if typ == msgInit {
		members, err := rawdoc.Object(v)
		if err != nil {
			return err
		}
		return w.line(ctx, typ, members...)
	}
	if len(v) <= maxPart {
		return w.line(ctx, typ, member("value", v))
	}
	for len(v) > 0 {
		n := min(len(v), maxPart)
		for n < len(v) && !utf8.RuneStart(v[n]) {
			n--
		}
		part := []rawdoc.Member{member("part", rawdoc.Quote(string(v[:n])))}
		if v = v[n:]; len(v) > 0 {
			part = append(part, member("more", jsontext.Value("true")))
		}
		if err := w.line(ctx, typ, part...); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) line(ctx context.Context, typ string, members ...rawdoc.Member) error {
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		return errors.Join(cause, w.fail(cause))
	}
	if err := w.write(typ, members); err != nil {
		return errors.Join(err, w.fail(ErrAborted))
	}
	return nil
}

// fail tells the reader to discard everything. If the stream is broken, the reader
// notices by itself.
func (w *writer) fail(cause error) error {
	e := NewError(cause)
	if e.Code == CodeInternal {
		e = &Error{Code: CodeAborted, Message: "the sender gave up"}
	}
	return w.write(msgError, []rawdoc.Member{member("code", rawdoc.Quote(string(e.Code))), member("message", rawdoc.Quote(e.Message))})
}

func (w *writer) write(typ string, members []rawdoc.Member) error {
	head := []rawdoc.Member{member("type", rawdoc.Quote(typ)), member("seq", strconv.AppendInt(nil, int64(w.seq), 10))}
	w.buf = append(rawdoc.Append(w.buf[:0], append(head, members...)), '\n')
	if len(w.buf) > minLine {
		return fmt.Errorf("%w: a %s of %d bytes, and %d is the limit", state.ErrTooLarge, typ, len(w.buf), minLine)
	}
	w.seq++
	_, err := w.w.Write(w.buf)
	return err
}

func member(name string, value jsontext.Value) rawdoc.Member {
	return rawdoc.Member{Name: name, Value: value}
}

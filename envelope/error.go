package envelope

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Error is the payload of an error envelope, and a Go error (AEE, Message Types,
// "error"). The hidden cause stays in this process: errors.Is and errors.As see it, peers
// do not.
type Error struct {
	Code         Code     // one of this package's codes, or an application's own
	Message      string   // for people: what is wrong
	Retryable    bool     // the same task may succeed if it is sent again, with a new id
	BackoffMS    int64    // how many milliseconds to wait before that; 0: no advice
	EvidenceRefs []string // what supports the claim
	Details      []Member // further members of the payload

	peer    bool
	unbegun bool // a peer says that it has not begun the task
	cause   error
}

// Errorf makes an error with a code, and the code's usual Retryable. As in fmt.Errorf, %w
// wraps a cause. But peers must not see a cause's text, so Message ends before the first
// %w: write %w last, after ": ".
func Errorf(code Code, format string, args ...any) *Error {
	e := &Error{Code: code, Retryable: code.Retryable()}
	if i := strings.Index(format, "%w"); i >= 0 {
		e.cause = errors.Unwrap(fmt.Errorf(format, args...))
		format = strings.TrimRight(format[:i], ": ")
		args = args[:strings.Count(strings.ReplaceAll(format, "%%", ""), "%")]
	}
	e.Message = fmt.Sprintf(format, args...)
	return e
}

// Error returns the text for this process's logs: code, message and the hidden cause.
func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap returns the hidden cause.
func (e *Error) Unwrap() error { return e.cause }

// Is makes errors.Is(err, &Error{Code: c}) true for every error with code c.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.cause == nil && t.Code == e.Code
}

// FromPeer reports whether the error was received in a peer's error envelope.
func (e *Error) FromPeer() bool { return e.peer }

// notBegun is the member of an error's payload that says which task was not begun.
const notBegun = "not_begun"

// NotBegun returns a copy of e that says that the task was not begun, for a code that does not say
// it by itself. The copy names the task, so that an agent whose own call fails may pass the
// error on: it says nothing of the agent's own task.
func (e *Error) NotBegun(task *Envelope) *Error {
	c := *e
	c.Details = append(slices.Clone(e.Details), Member{notBegun, AppendString(nil, task.ID)})
	return &c
}

// SaysNotBegun reports whether the error was received in an error envelope that says of the task
// that it answers that it was not begun. Some codes say that by themselves.
func (e *Error) SaysNotBegun() bool { return e.unbegun }

// WithCause returns a copy of e with another hidden cause.
func (e *Error) WithCause(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// WithBackoff returns a copy of e that is retryable after d.
func (e *Error) WithBackoff(d time.Duration) *Error {
	c := *e
	c.Retryable, c.BackoffMS = true, d.Milliseconds()
	return &c
}

// Backoff returns BackoffMS as a duration.
func (e *Error) Backoff() time.Duration { return time.Duration(e.BackoffMS) * time.Millisecond }

// AsError returns the *[Error] in err's chain. If there is none, it returns E_INTERNAL
// with err as its hidden cause, so that peers learn nothing else.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) && e != nil {
		return e
	}
	return Errorf(CodeInternal, "the agent failed for an internal reason").WithCause(err)
}

// ErrorOf decodes an error envelope's payload. AEE only says that code, message and
// retryable SHOULD be present: a member that is missing, or of the wrong type, gets a
// default.
func ErrorOf(e *Envelope) *Error {
	out := &Error{peer: true, Code: CodeAgent}
	eachMember(e.Payload, func(name, value []byte) error {
		switch string(name) {
		case "code":
			if code, ok := stringValue(value); ok && code != "" {
				out.Code = Code(code)
			}
		case "message":
			out.Message, _ = stringValue(value)
		case "retryable":
			out.Retryable, _ = boolValue(value)
		case "backoff_ms":
			if ms, ok := numberValue(value); ok && ms > 0 {
				out.BackoffMS = int64(min(ms, float64(maxTimeout)))
			}
		case "evidence_refs":
			var refs []string
			if json.Unmarshal(value, &refs) == nil && len(refs) > 0 {
				out.EvidenceRefs = refs
			}
		case notBegun:
			id, ok := stringValue(value)
			out.unbegun = ok && id != "" && id == e.ReplyTo
			fallthrough
		default:
			out.Details = append(out.Details, Member{string(name), value})
		}
		return nil
	})
	out.Message = cmp.Or(out.Message, "the peer gave no message")
	return out
}

// Payload returns the error as the payload of an error envelope. It leaves out details
// that would make the payload invalid: one with the name of another member, or with a
// value that is not JSON.
func (e *Error) Payload() json.RawMessage {
	b := append(make([]byte, 0, 128), `{"code":`...)
	b = AppendString(b, strings.ToValidUTF8(string(e.Code), "\uFFFD"))
	b = append(b, `,"message":`...)
	b = AppendString(b, strings.ToValidUTF8(e.Message, "\uFFFD"))
	b = fmt.Appendf(b, `,"retryable":%t`, e.Retryable)
	if e.BackoffMS > 0 {
		b = fmt.Appendf(b, `,"backoff_ms":%d`, e.BackoffMS)
	}
	if len(e.EvidenceRefs) > 0 {
		b = append(b, `,"evidence_refs":[`...)
		for i, ref := range e.EvidenceRefs {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendString(b, strings.ToValidUTF8(ref, "\uFFFD"))
		}
		b = append(b, ']')
	}
	for i, m := range e.Details {
		if !m.detail() || slices.ContainsFunc(e.Details[:i], func(o Member) bool { return o.Name == m.Name }) {
			continue
		}
		b = append(b, ',')
		b = AppendString(b, m.Name)
		b = append(b, ':')
		b = append(b, m.Value...)
	}
	return append(b, '}')
}

// detail reports whether m may be added to an error's own members.
func (m Member) detail() bool {
	switch m.Name {
	case "code", "message", "retryable", "backoff_ms", "evidence_refs":
		return false
	}
	return utf8.ValidString(m.Name) && checkJSON(m.Value, defaultMaxDepth-2) == nil
}

// MarshalJSON is [Error.Payload].
func (e *Error) MarshalJSON() ([]byte, error) { return e.Payload(), nil }

// UnmarshalJSON decodes what MarshalJSON wrote. It fails only if data is not a JSON
// object: like [ErrorOf] it uses defaults for missing members.
func (e *Error) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '{' {
		return fmt.Errorf("read an error: %.40q is no JSON object", data)
	}
	*e = *ErrorOf(&Envelope{Payload: data})
	e.peer = false
	return nil
}

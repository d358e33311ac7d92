package program

import (
	"bufio"
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/time/rate"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pattern"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
)

// answer is a line that the program writes.
type answer struct {
	Type    jsontext.Value `json:"type"`
	ReplyTo string         `json:"reply_to"`
	Payload jsontext.Value `json:"payload"`
}

// typeHandoff is the type of a line that delegates the task. It is not a type
// of envelope.
const typeHandoff envelope.Type = "handoff"

// kind returns the type of the line, and reports whether a program may send it.
func (a *answer) kind() (typ envelope.Type, legal bool) {
	if a.Type.Kind() != '"' || json.Unmarshal(a.Type, &typ) != nil {
		return "", false
	}
	return typ, typ == envelope.TypeStream || typ == envelope.TypeResult || typ == envelope.TypeError || typ == typeHandoff
}

// lineCounts counts the lines that were ignored.
type lineCounts struct {
	malformed, oversized, unknown, late, overrun, stderrDropped atomic.Int64
}

func (c *lineCounts) details(d map[string]any) {
	for name, n := range map[string]*atomic.Int64{
		"lines_malformed": &c.malformed, "lines_oversized": &c.oversized, "lines_unknown_task": &c.unknown,
		"lines_late": &c.late, "tasks_unanswered": &c.overrun, "stderr_lines_dropped": &c.stderrDropped,
	} {
		if v := n.Load(); v > 0 {
			d[name] = v
		}
	}
}

// readLoop reads the program's answers until its standard output is closed,
// after which the process can do no more work.
func (x *process) readLoop() {
	r := lineReader{r: bufio.NewReaderSize(x.pipes.Stdout, 64<<10), max: x.p.cfg.MaxLine}
	for {
		line, err := r.next()
		if err == errLineTooLong {
			x.p.counts.oversized.Add(1)
			x.unread(line, fmt.Sprintf("it is longer than %d bytes", x.p.cfg.MaxLine),
				envelope.Errorf(envelope.CodeTooLarge, "the agent's program answered with a line of more than %d bytes", x.p.cfg.MaxLine))
			continue
		}
		// A last line without a newline was truncated.
		if err != nil {
			break
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			x.take(line)
		}
	}
	x.abandon()
	x.broken <- errors.New("the program closed its standard output")
}

// take handles one line.
func (x *process) take(line []byte) {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil || a.ReplyTo == "" {
		x.p.counts.malformed.Add(1)
		x.unread(line, unreadable(line, err), envelope.Errorf(envelope.CodeAgent, "the agent's program answered with a line that is no JSON object"))
		return
	}
	typ, legal := a.kind()
	if !legal {
		x.malformed("its type is not stream, result, error or handoff")
	}
	isObject := a.Payload.Kind() == '{'
	if typ == envelope.TypeStream && !isObject {
		x.malformed("its payload is no object")
		return
	}
	f, late := x.find(a.ReplyTo, typ != envelope.TypeStream)
	switch {
	case f == nil && !legal:
		return
	case f == nil && late:
		x.p.counts.late.Add(1)
		return
	case f == nil:
		x.p.counts.unknown.Add(1)
		x.ignored("it is about a task that is not under way")
		return
	case f.over.Load():
		x.p.counts.late.Add(1)
	}
	if typ == envelope.TypeStream {
		x.queueStream(f, stdjson.RawMessage(a.Payload))
		return
	}
	x.answered.Store(true)
	switch {
	case !legal:
		f.done <- outcome{err: envelope.Errorf(envelope.CodeAgent, "the agent's program answered with a type that is not stream, result, error or handoff")}
	case !isObject:
		x.malformed("its payload is no object")
		f.done <- outcome{err: envelope.Errorf(envelope.CodeAgent, "the agent's program answered without a payload object")}
	case typ == typeHandoff:
		f.done <- outcome{err: delegation(stdjson.RawMessage(a.Payload))}
	case typ == envelope.TypeResult:
		f.done <- outcome{payload: stdjson.RawMessage(a.Payload)}
	default:
		f.done <- outcome{err: failure(stdjson.RawMessage(a.Payload))}
	}
}

// unread handles a line that cannot be read. If it was meant as the answer to a task under way,
// the task fails with problem: otherwise its sender would wait until the deadline, and not learn
// the cause.
func (x *process) unread(line []byte, reason string, problem *envelope.Error) {
	f := x.meant(line)
	if f == nil {
		x.ignored(reason)
		return
	}
	x.p.notes.warn("answer of program not read", "reason", reason)
	x.answered.Store(true)
	f.done <- outcome{err: problem}
}

// These patterns find reply_to and type in a line that is not JSON. They accept both kinds of
// quotes, because programs print Python dictionaries.
var (
	namesTask = pattern.Of(`reply_to["']\s*:\s*["']([^"'\\]+)["']`)
	namesType = pattern.Of(`type["']\s*:\s*["']([^"'\\]+)["']`)
)

// meant returns the task that an unreadable line is meant to end, and removes it from the table;
// nil if the line names no task under way, or several, or is part of a stream.
func (x *process) meant(line []byte) *flight {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := ""
	for _, m := range namesTask.RE().FindAllSubmatch(line, -1) {
		switch said := string(m[1]); {
		case x.flights[said] == nil || said == id:
		case id != "":
			return nil
		default:
			id = said
		}
	}
	streams, ends := false, false
	for _, m := range namesType.RE().FindAllSubmatch(line, -1) {
		switch envelope.Type(m[1]) {
		case envelope.TypeStream:
			streams = true
		case envelope.TypeResult, envelope.TypeError, typeHandoff:
			ends = true
		}
	}
	f := x.flights[id]
	if f == nil || streams && !ends {
		return nil
	}
	x.remove(id, f)
	return f
}

// unreadable says why a line belongs to no task, without quoting the line. err is the error of
// reading it; nil if the line has no reply_to.
func unreadable(line []byte, err error) string {
	const noObject = "it is no JSON object on one line"
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return noObject + ": it ends too early"
	case errors.As(err, &syntax):
		return fmt.Sprintf("%s: byte %d is wrong", noObject, syntax.ByteOffset+1)
	case jsontext.Value(line).Kind() != '{':
		return noObject
	case err != nil:
		return "its reply_to is no text"
	}
	return "it has no reply_to"
}

// delegation returns the delegation that a handoff line asks for, as an error
// for the mesh, or an error that says why the line is invalid.
func delegation(payload stdjson.RawMessage) error {
	var said struct {
		To      string         `json:"to"`
		Reason  string         `json:"reason"`
		Intent  string         `json:"intent"`
		Payload jsontext.Value `json:"payload"`

		Rest map[string]jsontext.Value `json:",embed"`
	}
	if err := json.Unmarshal(payload, &said); err != nil || said.To == "" || said.Payload != nil && said.Payload.Kind() != '{' {
		return envelope.Errorf(envelope.CodeAgent, "the agent's program delegated the task without saying to whom, or with a payload that is no object")
	}
	if err := subject.ValidateEntity(said.To); err != nil {
		return envelope.Errorf(envelope.CodeAgent, "the agent's program delegated the task to %q, which is no entity, such as agent.billing", clip.Text(said.To, 64))
	}
	if subject.EntityType(said.To) == subject.TypeBus {
		return envelope.Errorf(envelope.CodeAgent, "the agent's program delegated the task to %s, where no worker answers", said.To)
	}
	if len(said.Rest) > 0 {
		return envelope.Errorf(envelope.CodeAgent, "the agent's program delegated the task with %s, which is not read: the members are to, reason, intent and payload, and the receiver's data belongs into the payload",
			namesText(slices.Sorted(maps.Keys(said.Rest))))
	}
	return &handsOn{mesh.Delegation{To: said.To, Reason: said.Reason, Intent: said.Intent, Payload: stdjson.RawMessage(said.Payload)}}
}

// namesText lists names in quotes, up to a few.
func namesText(names []string) string {
	const most = 5
	more := ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(clip.Text(name, 64))
	}
	return strings.Join(quoted, ", ") + more
}

// failure reads the program's error. Its code is sent unchanged, unless it is a code of the mesh
// about the admission of a message.
func failure(payload stdjson.RawMessage) *envelope.Error {
	said := envelope.ErrorOf(&envelope.Envelope{Payload: payload})
	var message struct {
		Message *string `json:"message"`
	}
	if stdjson.Unmarshal(payload, &message); message.Message == nil || *message.Message == "" {
		said.Message = "the agent's program gave no message"
	}
	switch {
	case !isCode(said.Code):
		said.Code = envelope.CodeAgent
	case ofMesh(said.Code):
		said.Message = string(said.Code) + ": " + said.Message
		said.Code = envelope.CodeAgent
	}
	return &envelope.Error{
		Code: said.Code, Message: said.Message, Retryable: said.Retryable, BackoffMS: said.BackoffMS,
		EvidenceRefs: said.EvidenceRefs, Details: said.Details,
	}
}

// maxCode is the length of the longest code, in bytes.
const maxCode = 128

// isCode reports whether a program's code is one word.
func isCode(c envelope.Code) bool {
	return len(c) <= maxCode && !strings.ContainsFunc(string(c), func(r rune) bool { return r <= ' ' || r > '~' })
}

// ofMesh reports whether a code is about the admission of a message. A program cannot send such a
// code, because it gets only admitted tasks.
func ofMesh(c envelope.Code) bool {
	switch c {
	case envelope.CodeInvalidEnvelope, envelope.CodeEncoding, envelope.CodeWrongRecipient, envelope.CodeUnexpectedType,
		envelope.CodeSigRequired, envelope.CodeSigInvalid, envelope.CodeSigUncheckable,
		envelope.CodeKeyUnknown, envelope.CodeKeyInvalid, envelope.CodeFromDenied,
		envelope.CodeReplay, envelope.CodeStale:
		return true
	}
	return false
}

func (x *process) malformed(reason string) {
	x.p.counts.malformed.Add(1)
	x.ignored(reason)
}

func (x *process) ignored(reason string) {
	x.p.notes.warn("line of program ignored", "reason", reason)
}

// maxStderrLine is the length at which a line of standard error is truncated.
const maxStderrLine = 4 << 10

// stderrLoop passes the program's standard error on to the operator.
func (x *process) stderrLoop() {
	r := lineReader{r: bufio.NewReaderSize(x.pipes.Stderr, maxStderrLine), max: maxStderrLine, cut: true}
	own := newLimitedLog(x.p.cfg.Logger, 50, 200)
	for {
		line, err := r.next()
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			if known := x.p.cfg.Redactor; len(r.end) > 0 {
				text = known.Head(text)
			} else {
				text = known.Scrub(text)
			}
			switch w := x.p.cfg.Stderr; {
			case w != nil:
				io.WriteString(w, text+"\n")
			case !own.info("program", "stderr", strings.ToValidUTF8(text, "\uFFFD")):
				x.p.counts.stderrDropped.Add(1)
			}
		}
		if err != nil {
			return
		}
	}
}

var errLineTooLong = errors.New("the line is too long")

// endOfLine is how many bytes of the end of an overlong line are returned.
const endOfLine = 4 << 10

// lineReader reads lines with a maximum length.
type lineReader struct {
	r   *bufio.Reader
	max int
	cut bool // an overlong line is no error: its beginning is returned
	buf []byte
	end []byte // the end of a line that is too long
}

// next returns the next line with its newline; it is valid until the next call. For an overlong
// line it returns the beginning and, with an error, the end. At the end of input, the remaining
// text is returned together with the error.
func (l *lineReader) next() ([]byte, error) {
	l.buf, l.end = l.buf[:0], l.end[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		room := min(l.max-len(l.buf), len(part))
		l.buf = append(l.buf, part[:room]...)
		l.end = append(l.end, part[room:]...)
		tooLong := len(l.end) > 0
		l.end = l.end[max(0, len(l.end)-endOfLine):]
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return l.buf, err
		case tooLong && !l.cut:
			return append(l.buf, l.end...), errLineTooLong
		default:
			return l.buf, nil
		}
	}
}

// limitedLog limits the lines that a program can write to the log.
type limitedLog struct {
	log     *slog.Logger
	limiter *rate.Limiter
	skipped atomic.Int64
}

func newLimitedLog(log *slog.Logger, perSecond float64, burst int) *limitedLog {
	return &limitedLog{log: log, limiter: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

func (l *limitedLog) warn(msg string, args ...any) bool { return l.write(slog.LevelWarn, msg, args) }
func (l *limitedLog) info(msg string, args ...any) bool { return l.write(slog.LevelInfo, msg, args) }

func (l *limitedLog) write(level slog.Level, msg string, args []any) bool {
	if !l.limiter.Allow() {
		l.skipped.Add(1)
		return false
	}
	if n := l.skipped.Swap(0); n > 0 {
		args = append(args, "skipped_before", n)
	}
	l.log.Log(context.Background(), level, msg, args...)
	return true
}

package term

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
)

// Terminal prints all output: data on stdout, messages for people on stderr.
// Its methods are safe for concurrent use.
type Terminal struct {
	Data  *Stream
	Words *Stream
	JSON  bool // data as JSON

	Records *slog.Logger // messages become records of this log; nil: they are for people
	Logs    atomic.Int32 // whether messages have the time in front: logNone, LogWords, LogServing
}

// Stream is stdout or stderr. Concurrent writes do not mix.
type Stream struct {
	mu     sync.Mutex
	Writer io.Writer
	TTY    bool
	Color  bool
	err    error // the first failed write
}

// New returns the terminal of a process; env tells NO_COLOR and TERM.
func New(stdout, stderr io.Writer, env func(string) string) *Terminal {
	return &Terminal{Data: newStream(stdout, env), Words: newStream(stderr, env)}
}

func newStream(w io.Writer, env func(string) string) *Stream {
	f, ok := w.(*os.File)
	tty := ok && term.IsTerminal(int(f.Fd()))
	return &Stream{Writer: w, TTY: tty, Color: tty && env("NO_COLOR") == "" && env("TERM") != "dumb"}
}

// Write implements [io.Writer]. The first error is kept.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.Writer.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}

// Painted is text that is already safe for its stream, with our own colours.
type Painted string

// Paint makes text safe for the stream and colours it, if the stream shows
// colours.
func (s *Stream) Paint(style text.Colors, str string) Painted {
	return s.colour(style, s.Safe(str))
}

// colour is paint for text that is already safe.
func (s *Stream) colour(style text.Colors, str string) Painted {
	if !s.Color || str == "" {
		return Painted(str)
	}
	return Painted(style.EscapeSeq() + str + text.EscapeReset)
}

// Safe makes a peer's text safe for a terminal, which control characters could
// command. For other streams the text is unchanged.
func (s *Stream) Safe(str string) string {
	if !s.TTY {
		return str
	}
	return plain.Text(str)
}

// sprintf makes all arguments safe for the stream except painted ones, because
// any of them may contain a peer's text.
func (s *Stream) sprintf(format string, args ...any) string {
	if !s.TTY {
		return fmt.Sprintf(format, args...)
	}
	return sprintf(format, args...)
}

// sprintf is for messages, which are no data: they are made safe for any
// stream.
func sprintf(format string, args ...any) string {
	fit := make([]any, len(args))
	for i, arg := range args {
		if _, own := arg.(Painted); !own {
			arg = foreign{arg}
		}
		fit[i] = arg
	}
	return fmt.Sprintf(format, fit...)
}

// foreign formats like its value, made safe.
type foreign struct{ value any }

// Format implements [fmt.Formatter].
func (f foreign) Format(s fmt.State, verb rune) {
	io.WriteString(s, plain.Text(fmt.Sprintf(fmt.FormatString(s, verb), f.value)))
}

// The styles.
var (
	StyleError  = text.Colors{text.FgRed, text.Bold}
	StyleWarn   = text.Colors{text.FgYellow}
	StyleGood   = text.Colors{text.FgGreen}
	StyleFaint  = text.Colors{text.Faint}
	StyleStrong = text.Colors{text.Bold}
	StyleType   = map[string]text.Colors{
		"task": {text.FgBlue}, "result": {text.FgGreen}, "error": {text.FgRed}, "stream": {text.FgCyan}, "event": {text.FgMagenta},
	}
)

// Err returns the first failure to print data. A closed pipe (| head) is not a
// failure.
func (t *Terminal) Err() error {
	t.Data.mu.Lock()
	defer t.Data.mu.Unlock()
	if t.Data.err == nil || errors.Is(t.Data.err, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("write to stdout: %w", t.Data.err)
}

// ReaderGone reports whether err is that stdout is a closed pipe (| head), which is not a
// failure.
func (t *Terminal) ReaderGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) && t.Broken()
}

// Broken reports whether stdout accepts no more data.
func (t *Terminal) Broken() bool {
	t.Data.mu.Lock()
	defer t.Data.mu.Unlock()
	return t.Data.err != nil
}

// Line prints a line of data.
func (t *Terminal) Line(format string, args ...any) {
	io.WriteString(t.Data, t.Data.sprintf(format, args...)+"\n")
}

// Object prints one JSON object, on one line.
func (t *Terminal) Object(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	t.Data.Write(plain.JSON(b.Bytes()))
	return nil
}

// Raw prints existing JSON, on one line.
func (t *Terminal) Raw(json []byte) {
	t.Data.Write(append(plain.JSON(Compact(json)), '\n'))
}

// Bytes prints data unchanged, except on a terminal.
func (t *Terminal) Bytes(data []byte) error {
	switch {
	case !t.Data.TTY:
	case json.Valid(data):
		data = plain.JSON(data)
	default:
		data = []byte(plain.Text(string(data)))
	}
	_, err := t.Data.Write(data)
	return err
}

// Compact removes the white space between JSON values.
func Compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// Objects prints a list, one JSON object per line.
func Objects[T any](t *Terminal, list []T) error {
	for _, v := range list {
		if err := t.Object(v); err != nil {
			return err
		}
	}
	return nil
}

// Payload prints a payload for people and pipes: only the text of {"text": …},
// indented JSON otherwise.
func (t *Terminal) Payload(raw json.RawMessage) {
	if s, ok := TextOf(raw); ok {
		t.Line("%s", s)
		return
	}
	t.Line("%s", Indented(raw))
}

// besideText are members that the mesh and its agents add to a text, and that a
// reader of the text does not need.
var besideText = []string{"seq", "usage", "cost", "job_id"}

// TextOf returns the text of a payload {"text": …}.
func TextOf(raw json.RawMessage) (string, bool) {
	var members map[string]json.RawMessage
	var s string
	if json.Unmarshal(raw, &members) != nil || members["text"] == nil || json.Unmarshal(members["text"], &s) != nil {
		return "", false
	}
	for _, name := range besideText {
		delete(members, name)
	}
	return s, len(members) == 1
}

// Indented returns JSON on several lines, with characters escaped that are
// unsafe for a terminal.
func Indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return string(plain.JSON(b.Bytes()))
}

// Printable makes a peer's text safe to print, on lines of its own.
func Printable(s string) string { return plain.Text(s) }

// OneLine makes a peer's text safe to print within a line.
func OneLine(s string) string { return plain.Line(s) }

// Table prints rows under a header. On a narrow terminal the rows are cut.
func (t *Terminal) Table(header []string, rows [][]string) {
	if len(rows) > 0 {
		io.WriteString(t.Data, TableText(header, rows, t.Data.Width(), t.Data.Color))
	}
}

// List prints a list: one JSON object per line, or a table with the cells of each item.
func List[T any](t *Terminal, header []string, list []T, cells func(T) []string) error {
	if t.JSON {
		return Objects(t, list)
	}
	rows := make([][]string, len(list))
	for i, item := range list {
		rows[i] = cells(item)
	}
	t.Table(header, rows)
	return nil
}

// TableText formats a table of at most width columns; 0: no limit.
func TableText(header []string, rows [][]string, width int, color bool) string {
	w := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	if color {
		style.Color.Header = StyleFaint
	}
	w.SetStyle(style)
	w.AppendHeader(row(header))
	for _, r := range rows {
		w.AppendRow(row(r))
	}
	var b strings.Builder
	for line := range strings.Lines(w.Render()) {
		line = strings.TrimRight(line, " \n")
		if width > 0 {
			line = text.Snip(line, width, "…")
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// Width is the number of columns of a terminal; 0 if the stream is none.
func (s *Stream) Width() int {
	f, ok := s.Writer.(*os.File)
	if !ok || !s.TTY {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

func row(cells []string) table.Row {
	out := make(table.Row, len(cells))
	for i, c := range cells {
		out[i] = OneLine(c)
	}
	return out
}

// Mark is the symbol of a check's outcome.
func (t *Terminal) Mark(outcome string) Painted {
	switch outcome {
	case "ok":
		return t.Data.Paint(StyleGood, "ok  ")
	case "warn":
		return t.Data.Paint(StyleWarn, "warn")
	}
	return t.Data.Paint(StyleError, "fail")
}

// Problem is one problem of a document in one line: place, rule, message, hint.
func (t *Terminal) Problem(p aaif.Problem) Painted {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d ", p.Line, p.Column)
	}
	if p.Pointer != "" {
		fmt.Fprintf(&b, "%s ", t.Data.Paint(StyleStrong, Printable(p.Pointer)))
	}
	style := StyleError
	switch p.Severity {
	case aaif.SeverityWarning:
		style = StyleWarn
	case aaif.SeverityNote:
		style = StyleFaint
	}
	fmt.Fprintf(&b, "%s %s", t.Data.Paint(style, string(p.Severity)+" "+string(p.Rule)+":"), Printable(p.Message))
	if p.Hint != "" {
		fmt.Fprintf(&b, "%s", t.Data.Paint(StyleFaint, " ("+Printable(p.Hint)+")"))
	}
	return Painted(b.String())
}

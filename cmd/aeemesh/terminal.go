package main

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

// terminal prints all output: data on stdout, messages for people on stderr.
// Its methods are safe for concurrent use.
type terminal struct {
	data  *stream
	words *stream
	json  bool // data as JSON

	records *slog.Logger // messages become records of this log; nil: they are for people
	logs    atomic.Int32 // whether messages have the time in front: logNone, logWords, logServing
}

// stream is stdout or stderr. Concurrent writes do not mix.
type stream struct {
	mu    sync.Mutex
	w     io.Writer
	tty   bool
	color bool
	err   error // the first failed write
}

func newTerminal(stdout, stderr io.Writer, env func(string) string) *terminal {
	return &terminal{data: newStream(stdout, env), words: newStream(stderr, env)}
}

func newStream(w io.Writer, env func(string) string) *stream {
	f, ok := w.(*os.File)
	tty := ok && term.IsTerminal(int(f.Fd()))
	return &stream{w: w, tty: tty, color: tty && env("NO_COLOR") == "" && env("TERM") != "dumb"}
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.w.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}

// painted is text that is already safe for its stream, with our own colours.
type painted string

// paint makes text safe for the stream and colours it, if the stream shows
// colours.
func (s *stream) paint(style text.Colors, str string) painted {
	return s.colour(style, s.safe(str))
}

// colour is paint for text that is already safe.
func (s *stream) colour(style text.Colors, str string) painted {
	if !s.color || str == "" {
		return painted(str)
	}
	return painted(style.EscapeSeq() + str + text.EscapeReset)
}

// safe makes a peer's text safe for a terminal, which control characters could
// command. For other streams the text is unchanged.
func (s *stream) safe(str string) string {
	if !s.tty {
		return str
	}
	return plain.Text(str)
}

// sprintf makes all arguments safe for the stream except painted ones, because
// any of them may contain a peer's text.
func (s *stream) sprintf(format string, args ...any) string {
	if !s.tty {
		return fmt.Sprintf(format, args...)
	}
	return sprintf(format, args...)
}

// sprintf is for messages, which are no data: they are made safe for any
// stream.
func sprintf(format string, args ...any) string {
	fit := make([]any, len(args))
	for i, arg := range args {
		if _, own := arg.(painted); !own {
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
	styleError  = text.Colors{text.FgRed, text.Bold}
	styleWarn   = text.Colors{text.FgYellow}
	styleGood   = text.Colors{text.FgGreen}
	styleFaint  = text.Colors{text.Faint}
	styleStrong = text.Colors{text.Bold}
	styleType   = map[string]text.Colors{
		"task": {text.FgBlue}, "result": {text.FgGreen}, "error": {text.FgRed}, "stream": {text.FgCyan}, "event": {text.FgMagenta},
	}
)

// err returns the first failure to print data. A closed pipe (| head) is not a
// failure.
func (t *terminal) err() error {
	t.data.mu.Lock()
	defer t.data.mu.Unlock()
	if t.data.err == nil || errors.Is(t.data.err, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("write to stdout: %w", t.data.err)
}

// broken reports whether stdout accepts no more data.
func (t *terminal) broken() bool {
	t.data.mu.Lock()
	defer t.data.mu.Unlock()
	return t.data.err != nil
}

// line prints a line of data.
func (t *terminal) line(format string, args ...any) {
	io.WriteString(t.data, t.data.sprintf(format, args...)+"\n")
}

// object prints one JSON object, on one line.
func (t *terminal) object(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	t.data.Write(plain.JSON(b.Bytes()))
	return nil
}

// raw prints existing JSON, on one line.
func (t *terminal) raw(json []byte) {
	t.data.Write(append(plain.JSON(compact(json)), '\n'))
}

// bytes prints data unchanged, except on a terminal.
func (t *terminal) bytes(data []byte) error {
	switch {
	case !t.data.tty:
	case json.Valid(data):
		data = plain.JSON(data)
	default:
		data = []byte(plain.Text(string(data)))
	}
	_, err := t.data.Write(data)
	return err
}

// compact removes the white space between JSON values.
func compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// objects prints a list, one JSON object per line.
func objects[T any](t *terminal, list []T) error {
	for _, v := range list {
		if err := t.object(v); err != nil {
			return err
		}
	}
	return nil
}

// payload prints a payload for people and pipes: only the text of {"text": …},
// indented JSON otherwise.
func (t *terminal) payload(raw json.RawMessage) {
	if s, ok := textOf(raw); ok {
		t.line("%s", s)
		return
	}
	t.line("%s", indented(raw))
}

// besideText are members that the mesh and its agents add to a text, and that a
// reader of the text does not need.
var besideText = []string{"seq", "usage", "cost", "job_id"}

// textOf returns the text of a payload {"text": …}.
func textOf(raw json.RawMessage) (string, bool) {
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

// indented returns JSON on several lines, with characters escaped that are
// unsafe for a terminal.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return string(plain.JSON(b.Bytes()))
}

// printable makes a peer's text safe to print, on lines of its own.
func printable(s string) string { return plain.Text(s) }

// oneLine makes a peer's text safe to print within a line.
func oneLine(s string) string { return plain.Line(s) }

// table prints rows under a header. On a narrow terminal the rows are cut.
func (t *terminal) table(header []string, rows [][]string) {
	if len(rows) > 0 {
		io.WriteString(t.data, tableText(header, rows, t.data.width(), t.data.color))
	}
}

// tableText formats a table of at most width columns; 0: no limit.
func tableText(header []string, rows [][]string, width int, color bool) string {
	w := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	if color {
		style.Color.Header = styleFaint
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

// width is the number of columns of a terminal; 0 if the stream is none.
func (s *stream) width() int {
	f, ok := s.w.(*os.File)
	if !ok || !s.tty {
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
		out[i] = oneLine(c)
	}
	return out
}

// mark is the symbol of a check's outcome.
func (t *terminal) mark(outcome string) painted {
	switch outcome {
	case "ok":
		return t.data.paint(styleGood, "ok  ")
	case "warn":
		return t.data.paint(styleWarn, "warn")
	}
	return t.data.paint(styleError, "fail")
}

// problem is one problem of a document in one line: place, rule, message, hint.
func (t *terminal) problem(p aaif.Problem) painted {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d ", p.Line, p.Column)
	}
	if p.Pointer != "" {
		fmt.Fprintf(&b, "%s ", t.data.paint(styleStrong, printable(p.Pointer)))
	}
	style := styleError
	switch p.Severity {
	case aaif.SeverityWarning:
		style = styleWarn
	case aaif.SeverityNote:
		style = styleFaint
	}
	fmt.Fprintf(&b, "%s %s", t.data.paint(style, string(p.Severity)+" "+string(p.Rule)+":"), printable(p.Message))
	if p.Hint != "" {
		fmt.Fprintf(&b, "%s", t.data.paint(styleFaint, " ("+printable(p.Hint)+")"))
	}
	return painted(b.String())
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
	"github.com/aeemesh/aeemesh/mesh"
)

// terminal owns what is printed: data on stdout, words for people on stderr.
// Its methods may be called from many goroutines.
type terminal struct {
	data  *stream
	words *stream
	json  bool // data as JSON

}

// stream is one of the two. Whole writes do not mix.
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

// painted is text that is fit for its stream already, with colours of our own.
type painted string

// paint makes text fit for the stream and gives it a colour, where the stream
// shows colours.
func (s *stream) paint(style text.Colors, str string) painted {
	return s.colour(style, s.safe(str))
}

// colour is paint for text that is fit.
func (s *stream) colour(style text.Colors, str string) painted {
	if !s.color || str == "" {
		return painted(str)
	}
	return painted(style.EscapeSeq() + str + text.EscapeReset)
}

// safe makes a peer's text fit for the stream: a terminal must not be commanded
// by it. What goes elsewhere stays as it is.
func (s *stream) safe(str string) string {
	if !s.tty {
		return str
	}
	return plain.Text(str)
}

// sprintf makes all arguments fit for the stream, but what is painted: whatever
// is printed may hold a peer's words.
func (s *stream) sprintf(format string, args ...any) string {
	if !s.tty {
		return fmt.Sprintf(format, args...)
	}
	return sprintf(format, args...)
}

// sprintf is for the stream of words, which are no data: they are made fit
// wherever they go.
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

// foreign prints as its value does, made fit.
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

// err is the first failure to print data. That nobody reads any more (| head)
// is none.
func (t *terminal) err() error {
	t.data.mu.Lock()
	defer t.data.mu.Unlock()
	if t.data.err == nil || errors.Is(t.data.err, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("write to stdout: %w", t.data.err)
}

// broken reports whether stdout takes no more.
func (t *terminal) broken() bool {
	t.data.mu.Lock()
	defer t.data.mu.Unlock()
	return t.data.err != nil
}

// say prints a line for people.
func (t *terminal) say(format string, args ...any) {
	io.WriteString(t.words, sprintf(format, args...)+"\n")
}

// note is say for what matters less.
func (t *terminal) note(format string, args ...any) {
	fmt.Fprintln(t.words, t.words.colour(styleFaint, sprintf(format, args...)))
}

// progress is a note on a terminal and nothing elsewhere.
func (t *terminal) progress(format string, args ...any) {
	if t.words.tty {
		t.note(format, args...)
	}
}

// good says that something worked.
func (t *terminal) good(format string, args ...any) {
	fmt.Fprintln(t.words, t.words.colour(styleGood, sprintf(format, args...)))
}

// warn says what a person should know.
func (t *terminal) warn(format string, args ...any) {
	fmt.Fprintln(t.words, string(t.words.paint(styleWarn, "warning: "))+sprintf(format, args...))
}

// notice says what an agent's document declares and nobody does here, and the
// like: an error where a runtime MUST do it.
func (t *terminal) notice(about string, p aaif.Problem) {
	word, style := "warning: ", styleWarn
	if p.Severity == aaif.SeverityError {
		word, style = "error: ", styleError
	}
	p.Severity = aaif.SeverityError // the word is said once
	fmt.Fprintln(t.words, string(t.words.paint(style, word))+plain.Text(about+": "+p.String()))
}

// hint is the line under an error or a warning.
func (t *terminal) hint(hint string) {
	if hint != "" {
		fmt.Fprintln(t.words, string(t.words.paint(styleFaint, "hint: "))+plain.Text(hint))
	}
}

// fail prints an error: what is wrong, then one hint.
func (t *terminal) fail(err error) {
	if errors.Is(err, errQuiet) {
		return
	}
	fmt.Fprintln(t.words, string(t.words.paint(styleError, "error: "))+plain.Text(errorText(err)))
	t.hint(hintFor(err))
}

// errorText drops what Go's own wrapping repeats.
func errorText(err error) string {
	return strings.TrimRight(strings.ReplaceAll(err.Error(), "nats: ", ""), "\n")
}

// steps prints what a user may type next.
func (t *terminal) steps(title string, commands ...string) {
	var b strings.Builder
	b.WriteString(string(t.words.colour(styleStrong, plain.Text(title))) + "\n")
	for _, c := range commands {
		b.WriteString("  " + plain.Line(c) + "\n")
	}
	io.WriteString(t.words, b.String())
}

// status says what happens to the connection. A command that lives long says
// all of it; one that ends soon says only what goes wrong.
func (t *terminal) status(long bool) func(mesh.Status) {
	var away seldom
	return func(s mesh.Status) {
		why := ""
		if s.Err != nil {
			why = ": " + errorText(s.Err)
		}
		switch s.State {
		case "connected":
			away.over()
			if long {
				t.good("connected to %s", s.URL)
			}
		case "disconnected":
			t.warn("disconnected from %s%s; reconnecting", s.URL, why)
		case "reconnected":
			away.over()
			t.good("reconnected to %s", s.URL)
		case "error":
			if s.URL != "" && !away.now(s.URL+why) {
				return
			}
			if s.URL != "" {
				t.warn("no connection to %s%s; trying again", s.URL, why)
			} else {
				t.warn("NATS%s", why)
			}
		}
	}
}

// seldom lets what is said over and over through the first time, and then at
// growing intervals: the 8th time, the 64th, the 512th.
type seldom struct {
	mu       sync.Mutex
	what     string
	n, again int
}

func (s *seldom) now(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what != s.what {
		s.what, s.n, s.again = what, 0, 1
	}
	if s.n++; s.n < s.again {
		return false
	}
	s.again *= 8
	return true
}

// over forgets it: the next time is a first one.
func (s *seldom) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.what = ""
}

// heading begins a part of what a person reads.
func (t *terminal) heading(format string, args ...any) {
	fmt.Fprintln(t.words, "\n"+string(t.words.colour(styleStrong, sprintf(format, args...))))
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

// raw prints JSON that is there already, on one line.
func (t *terminal) raw(json []byte) {
	t.data.Write(append(plain.JSON(compact(json)), '\n'))
}

// bytes prints what must not change by a bit, but on a terminal.
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

// compact is JSON without the blanks that its author has put between values.
func compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// objects prints a list, one JSON object a line.
func objects[T any](t *terminal, list []T) error {
	for _, v := range list {
		if err := t.object(v); err != nil {
			return err
		}
	}
	return nil
}

// payload prints a payload for people and pipes: the text alone where it is
// {"text": …}, indented JSON otherwise.
func (t *terminal) payload(raw json.RawMessage) {
	if s, ok := textOf(raw); ok {
		t.line("%s", s)
		return
	}
	t.line("%s", indented(raw))
}

// besideText are the members that the mesh and its agents put next to a
// text, and that nobody misses who wants to read it.
var besideText = []string{"seq", "usage", "cost", "job_id"}

// textOf is the text of a payload {"text": …}.
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

// indented is JSON on many lines, what a terminal must not get escaped.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return string(plain.JSON(b.Bytes()))
}

// printable makes a peer's word fit for one line among others.
func printable(s string) string { return plain.Text(s) }

// oneLine makes a peer's word fit for a place within a line.
func oneLine(s string) string { return plain.Line(s) }

// table prints rows under a header.
func (t *terminal) table(header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	w := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	if t.data.color {
		style.Color.Header = styleFaint
	}
	w.SetStyle(style)
	w.AppendHeader(row(header))
	for _, r := range rows {
		w.AppendRow(row(r))
	}
	var b strings.Builder
	for line := range strings.Lines(w.Render()) {
		b.WriteString(strings.TrimRight(line, " \n"))
		b.WriteByte('\n')
	}
	io.WriteString(t.data, b.String())
}

func row(cells []string) table.Row {
	out := make(table.Row, len(cells))
	for i, c := range cells {
		out[i] = oneLine(c)
	}
	return out
}

// mark is how a check's outcome is shown.
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
	if p.Severity == aaif.SeverityWarning {
		style = styleWarn
	}
	fmt.Fprintf(&b, "%s %s", t.data.paint(style, string(p.Severity)+" "+string(p.Rule)+":"), printable(p.Message))
	if p.Hint != "" {
		fmt.Fprintf(&b, "%s", t.data.paint(styleFaint, " ("+printable(p.Hint)+")"))
	}
	return painted(b.String())
}

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
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/aeemesh/aeemesh/agents/aaif"
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

// paint gives text a colour where the stream shows colours.
func (s *stream) paint(style text.Colors, str string) string {
	if !s.color || str == "" {
		return str
	}
	return style.EscapeSeq() + str + text.EscapeReset
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
	fmt.Fprintf(t.words, format+"\n", args...)
}

// note is say for what matters less.
func (t *terminal) note(format string, args ...any) {
	fmt.Fprintln(t.words, t.words.paint(styleFaint, fmt.Sprintf(format, args...)))
}

// progress is a note on a terminal and nothing elsewhere.
func (t *terminal) progress(format string, args ...any) {
	if t.words.tty {
		t.note(format, args...)
	}
}

// good says that something worked.
func (t *terminal) good(format string, args ...any) {
	fmt.Fprintln(t.words, t.words.paint(styleGood, fmt.Sprintf(format, args...)))
}

// warn says what a person should know.
func (t *terminal) warn(format string, args ...any) {
	fmt.Fprintln(t.words, t.words.paint(styleWarn, "warning: ")+fmt.Sprintf(format, args...))
}

// notices say what is done otherwise than a document says, and the like: as errors
// only what stops something. What is said of several places in the same words is
// one line, and a hint that several have stands once.
func (t *terminal) notices(about string, problems []aaif.Problem) {
	folded := map[aaif.Problem][]int{} // places of problems, by what they say
	bare := func(p aaif.Problem) aaif.Problem {
		return aaif.Problem{Rule: p.Rule, Severity: p.Severity, Message: p.Message, Hint: p.Hint}
	}
	for i, p := range problems {
		folded[bare(p)] = append(folded[bare(p)], i)
	}
	hints := map[string]bool{}
	for i, p := range problems {
		same := folded[bare(p)]
		if same[0] != i {
			continue
		}
		if len(same) > 1 {
			p.Pointer += fmt.Sprintf(" and %s", counted(len(same)-1, "place more", "places more"))
		}
		if hints[p.Hint] {
			p.Hint = ""
		}
		hints[p.Hint] = true
		word, style := "warning: ", styleWarn
		switch p.Severity {
		case aaif.SeverityError:
			word, style = "error: ", styleError
		case aaif.SeverityNote:
			word, style = "note: ", styleFaint
		}
		p.Severity = aaif.SeverityError // the word is said once
		fmt.Fprintln(t.words, t.words.paint(style, word)+printable(about+": "+p.String()))
	}
}

// hint is the line under an error or a warning.
func (t *terminal) hint(hint string) {
	if hint != "" {
		fmt.Fprintln(t.words, t.words.paint(styleFaint, "hint: ")+hint)
	}
}

// fail prints an error: what is wrong, then one hint.
func (t *terminal) fail(err error) {
	if errors.Is(err, errQuiet) {
		return
	}
	fmt.Fprintln(t.words, t.words.paint(styleError, "error: ")+printable(errorText(err)))
	t.hint(printable(hintFor(err)))
}

// errorText drops what Go's own wrapping repeats.
func errorText(err error) string {
	return strings.TrimRight(strings.ReplaceAll(err.Error(), "nats: ", ""), "\n")
}

// steps prints what a user may type next.
func (t *terminal) steps(title string, commands ...string) {
	var b strings.Builder
	b.WriteString(t.words.paint(styleStrong, title) + "\n")
	for _, c := range commands {
		b.WriteString("  " + c + "\n")
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
	fmt.Fprintln(t.words, "\n"+t.words.paint(styleStrong, fmt.Sprintf(format, args...)))
}

// line prints a line of data.
func (t *terminal) line(format string, args ...any) {
	fmt.Fprintf(t.data, format+"\n", args...)
}

// object prints one JSON object, on one line.
func (t *terminal) object(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	t.data.Write(b.Bytes())
	return nil
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
		t.line("%s", t.safe(s))
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

func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// safe makes a peer's text fit for stdout: where that is a terminal, it must
// not be able to command it.
func (t *terminal) safe(s string) string { return t.data.safe(s) }

func (out *stream) safe(s string) string {
	if !out.tty {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// printable makes a peer's word fit for one line among others.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// oneLine makes a peer's word fit for a place within a line.
func oneLine(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(printable(s))
}

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
func (t *terminal) mark(outcome string) string {
	switch outcome {
	case "ok":
		return t.data.paint(styleGood, "ok  ")
	case "warn":
		return t.data.paint(styleWarn, "warn")
	}
	return t.data.paint(styleError, "fail")
}

// problem is one problem of a document in one line: place, rule, message, hint.
func (t *terminal) problem(p aaif.Problem) string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d ", p.Line, p.Column)
	}
	if p.Pointer != "" {
		b.WriteString(t.data.paint(styleStrong, printable(p.Pointer)) + " ")
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
		b.WriteString(t.data.paint(styleFaint, " ("+printable(p.Hint)+")"))
	}
	return b.String()
}

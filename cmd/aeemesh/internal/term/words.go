package term

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
)

// Messages go to stderr. With --log-format json each message is a record of the
// log, so that stderr contains nothing but the log; otherwise messages are
// lines for people, with the time in front if the command runs for long.

// An event is a message: in a log record a constant text with attributes, for
// people a sentence.
type Event struct {
	Level slog.Level
	Style text.Colors // of the sentence
	Label string      // in front of it, such as "warning: "
	Mark  text.Colors // of the label
	Msg   string      // the text of the record; "": the sentence
	Attrs []any       // of the record
	end   bool        // it ends the command
}

// Tell prints an event.
func (t *Terminal) Tell(e Event, format string, args ...any) {
	sentence := sprintf(format, args...)
	if t.Records != nil {
		msg := cmp.Or(e.Msg, sentence)
		t.Records.Log(context.Background(), e.Level, msg, e.Attrs...)
		return
	}
	io.WriteString(t.Words, t.time(e)+string(t.Words.Paint(e.Mark, e.Label))+string(t.Words.colour(e.Style, sentence))+"\n")
}

// The phases of a long-running command, which decide whether its messages look
// like a log.
const (
	logNone    = iota
	LogWords   // its work begins; an error that ends it now is for the person who started it
	LogServing // it serves
)

// time is the text in front of a line of a log for people.
func (t *Terminal) time(e Event) string {
	switch now, logs := time.Now(), t.Logs.Load(); {
	case logs == logNone, logs == LogWords && e.end:
		return ""
	case t.Words.TTY:
		return string(t.Words.colour(StyleFaint, now.Format("15:04:05"))) + " "
	default:
		return now.Format("2006-01-02T15:04:05.000Z07:00") + " "
	}
}

// ProgramOutput returns a writer for the standard error of an operator's
// program, one line per Write.
func (t *Terminal) ProgramOutput() io.Writer { return programOutput{t} }

type programOutput struct{ t *Terminal }

func (o programOutput) Write(p []byte) (int, error) {
	switch {
	case o.t.Records != nil:
		o.t.Records.Info("program wrote to standard error", "line", strings.ToValidUTF8(strings.TrimRight(string(p), "\r\n"), "\uFFFD"))
	case o.t.Words.TTY:
		io.WriteString(o.t.Words, plain.Text(string(p)))
	default:
		return o.t.Words.Write(p)
	}
	return len(p), nil
}

// Say prints a line for people.
func (t *Terminal) Say(format string, args ...any) {
	t.Tell(Event{Level: slog.LevelInfo}, format, args...)
}

// Note prints a less important line.
func (t *Terminal) Note(format string, args ...any) {
	t.Tell(Event{Level: slog.LevelInfo, Style: StyleFaint}, format, args...)
}

// Progress prints a note on a terminal, and nothing elsewhere.
func (t *Terminal) Progress(format string, args ...any) {
	if t.Words.TTY && t.Records == nil {
		t.Note(format, args...)
	}
}

// Good prints that something worked.
func (t *Terminal) Good(format string, args ...any) {
	t.Tell(Event{Level: slog.LevelInfo, Style: StyleGood}, format, args...)
}

// Warn prints a warning.
func (t *Terminal) Warn(format string, args ...any) {
	t.Tell(Event{Level: slog.LevelWarn, Label: "warning: ", Mark: StyleWarn}, format, args...)
}

// Notices prints problems of a document, as errors only if they stop the agent.
// Problems with the same text at several places share one line, and a common
// hint is printed once, except for the hint that the operator has accepted a
// field.
func (t *Terminal) Notices(about string, problems []aaif.Problem) {
	folded := map[aaif.Problem][]int{} // the places of problems, by their texts
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
			p.Pointer += fmt.Sprintf(" and %s", Counted(len(same)-1, "place more", "places more"))
		}
		if hints[p.Hint] && p.Hint != aaif.HintAccepted {
			p.Hint = ""
		}
		hints[p.Hint] = true
		t.Notice(about, p)
	}
}

// Notice prints one of them.
func (t *Terminal) Notice(about string, p aaif.Problem) {
	e := Event{Level: slog.LevelWarn, Label: "warning: ", Mark: StyleWarn, Msg: "notice",
		Attrs: []any{"entity", about, "pointer", p.Pointer, "why", p.Message, "hint", p.Hint}}
	switch p.Severity {
	case aaif.SeverityError:
		e.Level, e.Label, e.Mark = slog.LevelError, "error: ", StyleError
	case aaif.SeverityNote:
		e.Level, e.Label, e.Mark = slog.LevelInfo, "note: ", StyleFaint
	}
	p.Severity = aaif.SeverityError // the label is printed once
	t.Tell(e, "%s", about+": "+p.String())
}

// Hint prints the line under an error or a warning.
func (t *Terminal) Hint(hint string) {
	if hint != "" {
		t.Tell(Event{Level: slog.LevelInfo, Label: "hint: ", Mark: StyleFaint, Msg: "hint", Attrs: []any{"hint", hint}}, "%s", hint)
	}
}

// Fail prints an error and its code, then one hint.
func (t *Terminal) Fail(text, code, hint string) {
	if t.Records != nil {
		t.Records.Error(plain.Text(text), "code", code, "hint", hint)
		return
	}
	t.Tell(Event{Level: slog.LevelError, Label: "error: ", Mark: StyleError, end: true}, "%s", text)
	if hint != "" {
		t.Tell(Event{Level: slog.LevelInfo, Label: "hint: ", Mark: StyleFaint, end: true}, "%s", hint)
	}
}

// Steps prints commands that a user may run next.
func (t *Terminal) Steps(title string, commands ...string) {
	if t.Records != nil {
		t.Records.Info(plain.Line(strings.TrimSpace(title)), "commands", commands)
		return
	}
	var b strings.Builder
	b.WriteString(string(t.Words.colour(StyleStrong, plain.Text(title))) + "\n")
	for _, c := range commands {
		b.WriteString("  " + plain.Line(c) + "\n")
	}
	io.WriteString(t.Words, b.String())
}

// Heading begins a section of output for people.
func (t *Terminal) Heading(format string, args ...any) {
	if t.Records != nil {
		t.Say(format, args...)
		return
	}
	fmt.Fprintln(t.Words, "\n"+string(t.Words.colour(StyleStrong, sprintf(format, args...))))
}

// Counted formats a number with its noun.
func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

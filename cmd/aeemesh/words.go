package main

import (
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
type event struct {
	level slog.Level
	style text.Colors // of the sentence
	label string      // in front of it, such as "warning: "
	mark  text.Colors // of the label
	msg   string      // the text of the record; "": the sentence
	attrs []any       // of the record
	end   bool        // it ends the command
}

// tell prints an event.
func (t *terminal) tell(e event, format string, args ...any) {
	sentence := sprintf(format, args...)
	if t.records != nil {
		msg := e.msg
		if msg == "" {
			msg = sentence
		}
		t.records.Log(context.Background(), e.level, msg, e.attrs...)
		return
	}
	io.WriteString(t.words, t.time(e)+string(t.words.paint(e.mark, e.label))+string(t.words.colour(e.style, sentence))+"\n")
}

// The phases of a long-running command, which decide whether its messages look
// like a log.
const (
	logNone    = iota
	logWords   // its work begins; an error that ends it now is for the person who started it
	logServing // it serves
)

// time is the text in front of a line of a log for people.
func (t *terminal) time(e event) string {
	switch now, logs := time.Now(), t.logs.Load(); {
	case logs == logNone, logs == logWords && e.end:
		return ""
	case t.words.tty:
		return string(t.words.colour(styleFaint, now.Format("15:04:05"))) + " "
	default:
		return now.Format("2006-01-02T15:04:05.000Z07:00") + " "
	}
}

// programOutput receives the standard error of an operator's program, one line
// per Write.
type programOutput struct{ t *terminal }

func (o programOutput) Write(p []byte) (int, error) {
	switch {
	case o.t.records != nil:
		o.t.records.Info("program wrote to standard error", "line", strings.ToValidUTF8(strings.TrimRight(string(p), "\r\n"), "\uFFFD"))
	case o.t.words.tty:
		io.WriteString(o.t.words, plain.Text(string(p)))
	default:
		return o.t.words.Write(p)
	}
	return len(p), nil
}

// say prints a line for people.
func (t *terminal) say(format string, args ...any) {
	t.tell(event{level: slog.LevelInfo}, format, args...)
}

// note prints a less important line.
func (t *terminal) note(format string, args ...any) {
	t.tell(event{level: slog.LevelInfo, style: styleFaint}, format, args...)
}

// progress prints a note on a terminal, and nothing elsewhere.
func (t *terminal) progress(format string, args ...any) {
	if t.words.tty && t.records == nil {
		t.note(format, args...)
	}
}

// good prints that something worked.
func (t *terminal) good(format string, args ...any) {
	t.tell(event{level: slog.LevelInfo, style: styleGood}, format, args...)
}

// warn prints a warning.
func (t *terminal) warn(format string, args ...any) {
	t.tell(event{level: slog.LevelWarn, label: "warning: ", mark: styleWarn}, format, args...)
}

// notices prints problems of a document, as errors only if they stop the agent.
// Problems with the same text at several places share one line, and a common
// hint is printed once, except for the hint that the operator has accepted a
// field.
func (t *terminal) notices(about string, problems []aaif.Problem) {
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
			p.Pointer += fmt.Sprintf(" and %s", counted(len(same)-1, "place more", "places more"))
		}
		if hints[p.Hint] && p.Hint != aaif.HintAccepted {
			p.Hint = ""
		}
		hints[p.Hint] = true
		t.notice(about, p)
	}
}

// notice prints one of them.
func (t *terminal) notice(about string, p aaif.Problem) {
	e := event{level: slog.LevelWarn, label: "warning: ", mark: styleWarn, msg: "notice",
		attrs: []any{"entity", about, "pointer", p.Pointer, "why", p.Message, "hint", p.Hint}}
	switch p.Severity {
	case aaif.SeverityError:
		e.level, e.label, e.mark = slog.LevelError, "error: ", styleError
	case aaif.SeverityNote:
		e.level, e.label, e.mark = slog.LevelInfo, "note: ", styleFaint
	}
	p.Severity = aaif.SeverityError // the label is printed once
	t.tell(e, "%s", about+": "+p.String())
}

// hint prints the line under an error or a warning.
func (t *terminal) hint(hint string) {
	if hint != "" {
		t.tell(event{level: slog.LevelInfo, label: "hint: ", mark: styleFaint, msg: "hint", attrs: []any{"hint", hint}}, "%s", hint)
	}
}

// fail prints an error and its code, then one hint.
func (t *terminal) fail(text, code, hint string) {
	if t.records != nil {
		t.records.Error(plain.Text(text), "code", code, "hint", hint)
		return
	}
	t.tell(event{level: slog.LevelError, label: "error: ", mark: styleError, end: true}, "%s", text)
	if hint != "" {
		t.tell(event{level: slog.LevelInfo, label: "hint: ", mark: styleFaint, end: true}, "%s", hint)
	}
}

// steps prints commands that a user may run next.
func (t *terminal) steps(title string, commands ...string) {
	if t.records != nil {
		t.records.Info(plain.Line(strings.TrimSpace(title)), "commands", commands)
		return
	}
	var b strings.Builder
	b.WriteString(string(t.words.colour(styleStrong, plain.Text(title))) + "\n")
	for _, c := range commands {
		b.WriteString("  " + plain.Line(c) + "\n")
	}
	io.WriteString(t.words, b.String())
}

// heading begins a section of output for people.
func (t *terminal) heading(format string, args ...any) {
	if t.records != nil {
		t.say(format, args...)
		return
	}
	fmt.Fprintln(t.words, "\n"+string(t.words.colour(styleStrong, sprintf(format, args...))))
}

// counted formats a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// Words go to stderr. With --log-format json each is a record of the log, so that
// a program that collects logs meets nothing else; else they are lines for people,
// with the time in front where the command runs for long.

// An event is what is said of it: in a record a constant message with attributes,
// to people a sentence.
type event struct {
	level slog.Level
	style text.Colors // of the sentence
	label string      // in front of it, such as "warning: "
	mark  text.Colors // of the label
	msg   string      // of the record; "": the sentence
	attrs []any       // of the record
	end   bool        // it ends the command
}

// tell says what has happened.
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

// How far a command that runs for long has come: from which of its words on they
// are a log.
const (
	logNone    = iota
	logWords   // it begins its work; what ends it now is the answer to who started it
	logServing // it serves
)

// time is what stands in front of a line of a log for people.
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

// programOutput takes what an operator's program writes to standard error, a line
// a Write.
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

// beginLog is called where a command that runs for long begins its work: from
// here on its words are a log, and its first line says which process it is.
func (a *app) beginLog(cmd *cobra.Command) {
	outliveReaders()
	a.term.logs.Store(logWords)
	a.term.tell(event{level: slog.LevelInfo, style: styleFaint, msg: "starting",
		attrs: []any{"command", cmd.Name(), "version", version(), "host", hostname(), "pid", os.Getpid()}},
		"aeemesh %s %s on %s, process %d", version(), cmd.Name(), hostname(), os.Getpid())
}

// hostname is this machine's name.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// say prints a line for people.
func (t *terminal) say(format string, args ...any) {
	t.tell(event{level: slog.LevelInfo}, format, args...)
}

// note is say for what matters less.
func (t *terminal) note(format string, args ...any) {
	t.tell(event{level: slog.LevelInfo, style: styleFaint}, format, args...)
}

// progress is a note on a terminal and nothing elsewhere.
func (t *terminal) progress(format string, args ...any) {
	if t.words.tty && t.records == nil {
		t.note(format, args...)
	}
}

// good says that something worked.
func (t *terminal) good(format string, args ...any) {
	t.tell(event{level: slog.LevelInfo, style: styleGood}, format, args...)
}

// warn says what a person should know.
func (t *terminal) warn(format string, args ...any) {
	t.tell(event{level: slog.LevelWarn, label: "warning: ", mark: styleWarn}, format, args...)
}

// notices say what is done otherwise than a document says, and the like: as errors
// only what stops something. What is said of several places in the same words is
// one line, and a hint that several have stands once; that the operator has accepted
// it stands with each.
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
		if hints[p.Hint] && p.Hint != aaif.HintAccepted {
			p.Hint = ""
		}
		hints[p.Hint] = true
		t.notice(about, p)
	}
}

// notice is one of them.
func (t *terminal) notice(about string, p aaif.Problem) {
	e := event{level: slog.LevelWarn, label: "warning: ", mark: styleWarn, msg: "notice",
		attrs: []any{"entity", about, "pointer", p.Pointer, "why", p.Message, "hint", p.Hint}}
	switch p.Severity {
	case aaif.SeverityError:
		e.level, e.label, e.mark = slog.LevelError, "error: ", styleError
	case aaif.SeverityNote:
		e.level, e.label, e.mark = slog.LevelInfo, "note: ", styleFaint
	}
	p.Severity = aaif.SeverityError // the word is said once
	t.tell(e, "%s", about+": "+p.String())
}

// hint is the line under an error or a warning.
func (t *terminal) hint(hint string) {
	if hint != "" {
		t.tell(event{level: slog.LevelInfo, label: "hint: ", mark: styleFaint, msg: "hint", attrs: []any{"hint", hint}}, "%s", hint)
	}
}

// fail prints an error: what is wrong, then one hint.
func (t *terminal) fail(err error) {
	if errors.Is(err, errQuiet) {
		return
	}
	said, hint := errorText(err), hintFor(err)
	if t.records != nil {
		t.records.Error(plain.Text(said), "code", string(outcome.Of(err).Code), "hint", hint)
		return
	}
	t.tell(event{level: slog.LevelError, label: "error: ", mark: styleError, end: true}, "%s", said)
	if hint != "" {
		t.tell(event{level: slog.LevelInfo, label: "hint: ", mark: styleFaint, end: true}, "%s", hint)
	}
}

// errorText drops what Go's own wrapping repeats.
func errorText(err error) string {
	return strings.TrimRight(strings.ReplaceAll(err.Error(), "nats: ", ""), "\n")
}

// steps prints what a user may type next.
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

// heading begins a part of what a person reads.
func (t *terminal) heading(format string, args ...any) {
	if t.records != nil {
		t.say(format, args...)
		return
	}
	fmt.Fprintln(t.words, "\n"+string(t.words.colour(styleStrong, sprintf(format, args...))))
}

// status says what happens to the connection. A command that lives long says
// all of it; one that ends soon says only what goes wrong.
func (t *terminal) status(long bool) func(natsconn.Status) {
	var away seldom
	return func(s natsconn.Status) {
		why := ""
		attrs := []any{"url", s.URL}
		if s.Err != nil {
			why = ": " + errorText(s.Err)
			attrs = append(attrs, "err", errorText(s.Err))
		}
		good := event{level: slog.LevelInfo, style: styleGood, msg: s.State, attrs: attrs}
		bad := event{level: slog.LevelWarn, label: "warning: ", mark: styleWarn, msg: s.State, attrs: attrs}
		switch s.State {
		case "connected":
			away.over()
			if long {
				t.tell(good, "connected to %s", s.URL)
			}
		case "disconnected":
			t.tell(bad, "disconnected from %s%s; reconnecting", s.URL, why)
		case "reconnected":
			away.over()
			t.tell(good, "reconnected to %s", s.URL)
		case "error":
			if s.URL != "" && !away.now(s.URL+why) {
				return
			}
			bad.msg = "no connection"
			if s.URL != "" {
				t.tell(bad, "no connection to %s%s; trying again", s.URL, why)
			} else {
				bad.msg = "NATS"
				t.tell(bad, "NATS%s", why)
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

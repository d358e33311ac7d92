package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/traffic"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// onTerminal is a terminal that shows colours, for tests.
func onTerminal() (*term.Terminal, *bytes.Buffer, *bytes.Buffer) {
	var out, words bytes.Buffer
	t := term.New(&out, &words, func(string) string { return "" })
	t.Data.TTY, t.Data.Color, t.Words.TTY, t.Words.Color = true, true, true, true
	return t, &out, &words
}

func TestNoColourAndNoProgressOffATerminal(t *testing.T) {
	t.Parallel()
	var out, words bytes.Buffer
	screen := term.New(&out, &words, func(string) string { return "" })
	screen.Progress("connecting")
	screen.Good("done")
	screen.Warn("careful")
	screen.Table([]string{"a", "b"}, [][]string{{"1", "2"}})
	if s := out.String() + words.String(); strings.Contains(s, "\x1b") || strings.Contains(s, "connecting") {
		t.Errorf("%q", s)
	}
	shown, _, w := onTerminal()
	shown.Progress("connecting")
	if !strings.Contains(w.String(), "\x1b") {
		t.Errorf("no colour on a terminal: %q", w)
	}
}

// A server that is away is told of at once, then seldom, and again when it was back.
func TestAServerThatIsAwayIsNotSaidOverAndOver(t *testing.T) {
	t.Parallel()
	var out, words bytes.Buffer
	tell := session.ConnectionStatus(term.New(&out, &words, func(string) string { return "" }), true)
	lines := func() int { return strings.Count(words.String(), "trying again\n") }
	away := natsconn.Status{State: "error", URL: "nats://a", Err: nats.ErrNoServers}
	for n, want := range []int{1, 1, 1, 1, 1, 1, 1, 2, 2} {
		if tell(away); lines() != want {
			t.Errorf("after %d: %d lines, want %d", n+1, lines(), want)
		}
	}
	tell(natsconn.Status{State: "error", URL: "nats://a", Err: nats.ErrTimeout})
	if lines() != 3 {
		t.Error("another trouble is kept back")
	}
	tell(natsconn.Status{State: "connected", URL: "nats://a"})
	tell(natsconn.Status{State: "error", URL: "nats://a", Err: nats.ErrTimeout})
	if lines() != 4 {
		t.Error("what happens again after it was over is kept back")
	}
}

// A notice says once how bad it is; the same of several places is one line, and a
// hint stands once (fault 14 of the operator's tour).
func TestNoticesSayOnceWhatThereIsToSay(t *testing.T) {
	t.Parallel()
	var out, words bytes.Buffer
	screen := term.New(&out, &words, func(string) string { return "" })
	screen.Notices("agent.a", []aaif.Problem{
		{Pointer: "/agent/x", Message: "not done", Hint: "add y", Severity: aaif.SeverityWarning},
		{Pointer: "/agent/y", Message: "nor this", Hint: "add y", Severity: aaif.SeverityNote},
		{Pointer: "/agent/z", Message: "not done", Hint: "add y", Severity: aaif.SeverityWarning},
		{Pointer: "/agent/x", Message: "not done", Severity: aaif.SeverityError},
		{Pointer: "/agent/v", Message: "no log", Hint: aaif.HintAccepted, Severity: aaif.SeverityWarning},
		{Pointer: "/agent/w", Message: "no region", Hint: aaif.HintAccepted, Severity: aaif.SeverityWarning},
	})
	const want = "warning: agent.a: /agent/x and 1 place more: not done (add y)\nnote: agent.a: /agent/y: nor this\nerror: agent.a: /agent/x: not done\n" +
		"warning: agent.a: /agent/v: no log (accepted by the operator)\nwarning: agent.a: /agent/w: no region (accepted by the operator)\n"
	if words.String() != want {
		t.Errorf("got %q, want %q", words.String(), want)
	}
}

// A peer's words must not command the terminal that shows them.
func TestPeersCannotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	screen, out, words := onTerminal()
	screen.Data.Color, screen.Words.Color = false, false
	const evil = "\x1b]0;owned\x07\x1b[2J\u009b31m"
	e := envelope.New(envelope.TypeEvent, "agent.a"+evil, "bus.b"+evil, "in.tent"+evil, json.RawMessage(`{"text":"`+`\u001b[2J`+`"}`))
	traffic.PrintSighting(screen, traffic.Sighting{At: time.Now(), Env: e}, true)
	screen.Payload(e.Payload)
	screen.Table([]string{"x"}, [][]string{{evil + "\nsecond line"}})
	screen.Fail("peer says "+evil, "E_FAILED", "")
	if s := out.String() + words.String(); strings.ContainsAny(s, "\x1b\x07\u009b") {
		t.Errorf("%q", s)
	}
	if strings.Contains(out.String(), "\nsecond line") {
		t.Error("a cell broke its line")
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestWhatCannotBePrintedIsAFailure(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want int
	}{{syscall.ENOSPC, exitFailed}, {syscall.EPIPE, exitOK}} {
		for _, line := range []string{"version", "--version", "--help", "help send", "send --help", "worker --help-all", "envelope", "completion bash", "models list"} {
			var words bytes.Buffer
			code := run(t.Context(), strings.Fields(line), strings.NewReader(""), failing{tt.err}, &words, func(string) string { return "" })
			if code != tt.want || strings.Contains(words.String(), "--help") {
				t.Errorf("%s: %v: exit %d, want %d\n%s", line, tt.err, code, tt.want, &words)
			}
		}
	}
}

func TestTextOf(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"text":"a"}`:                        "a",
		`{"seq":1,"text":"a"}`:                "a",
		`{"text":"a","usage":{"input":1}}`:    "a",
		`{"text":"a","findings":[]}`:          "",
		`{"text":1}`:                          "",
		`{}`:                                  "",
		`{"text":"a","decision_evidence":{}}`: "",
	} {
		got, ok := term.TextOf(json.RawMessage(payload))
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v, want %q", payload, got, ok, want)
		}
	}
}

// A stream of several turns does not have its last turn printed again as the result
// (section 4 of the operators' review).
func TestTheLastTurnOfAStreamIsPrintedOnce(t *testing.T) {
	t.Parallel()
	say := func(text string) string { return `{"text":"` + text + `"}` }
	const call, back = `{"tool_call":{"name":"a","arguments":{}}}`, `{"tool_result":{"name":"a","ms":1}}`
	for _, tt := range []struct {
		stream []string
		result string
		said   bool
	}{
		{[]string{say("one "), say("two")}, "one two", true},
		{[]string{say("looking"), call, back, say("done "), say("q")}, "done q", true},
		{[]string{say("one"), call, back, say("two"), call, back, say("three")}, "three", true},
		{[]string{say("one"), call, back}, "one", true},
		{[]string{say("banana")}, "a", false},
		{[]string{say("one"), call, back}, "two", false},
		{[]string{say("one"), call, back, say("x")}, "one", false},
		{[]string{say("mine"), `{"handed_to":"agent.b"}`, say("its")}, "its", true},
		{[]string{say("Hel"), `{"restart":true,"text":"Good "}`, say("day")}, "Good day", true},
		{[]string{say("one "), call, back, say("tw"), `{"restart":true,"text":"2"}`}, "one 2", true},
		{nil, "all of it", false},
	} {
		screen, out, _ := onTerminal()
		v := traffic.StreamView{Term: screen, Out: screen.Data}
		for _, p := range tt.stream {
			if err := v.Show(&envelope.Envelope{Payload: json.RawMessage(p)}); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(out.String(), "restart") {
			t.Errorf("%q is shown as %q", tt.stream, out.String())
		}
		if got := v.Said(tt.result); got != tt.said {
			t.Errorf("%q then %q: said %t", tt.stream, tt.result, got)
		}
	}
}

// A row that is wider than the terminal is cut, not wrapped into the next; where
// the output is not a terminal nothing is cut (section 4 of the operators' review).
func TestATableFitsItsTerminal(t *testing.T) {
	t.Parallel()
	header, rows := []string{"agent", "cause"}, [][]string{{"agent.ä", "short"}, {"agent.b", strings.Repeat("long ", 20)}}
	for _, color := range []bool{false, true} {
		narrow := term.TableText(header, rows, 30, color)
		for line := range strings.Lines(narrow) {
			if n := utf8.RuneCountInString(text.StripEscape(strings.TrimSuffix(line, "\n"))); n > 30 {
				t.Errorf("%d columns: %q", n, line)
			}
		}
		if !strings.Contains(narrow, "agent.ä  short\n") || strings.Count(narrow, "\n") != 3 || !strings.HasSuffix(narrow, "…\n") {
			t.Errorf("%q", narrow)
		}
	}
	if wide := term.TableText(header, rows, 0, false); !strings.Contains(wide, strings.TrimSpace(rows[1][1])+"\n") {
		t.Errorf("%q", wide)
	}
	out, _, words := onTerminal()
	if w := out.Data.Width(); w != 0 {
		t.Errorf("what is no file has %d columns, %s", w, words)
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/traffic"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// hostile is what a terminal obeys (ESC, BEL, CR, DEL, C1) and what shows
// otherwise than it is (bidirectional controls, zero-width characters).
const hostile = "\x1b]0;owned\x07\x1b[2J\r\x7f\u009b31m\u202eevil\u202c\u2066x\u2069\u200b\u200d\u2060\ufeff"

// hostileIn lists what of it is in s.
func hostileIn(s string) (found []rune) {
	for _, r := range s {
		if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf) {
			found = append(found, r)
		}
	}
	return found
}

// onTTY runs the program as it does at a terminal.
func onTTY(ctx context.Context, env map[string]string, args ...string) (stdout, stderr string, err error) {
	var out, words natstest.Buffer
	look := func(name string) string { return env[name] }
	a := newApp(strings.NewReader(""), &out, &words, look)
	a.Term.Data.TTY, a.Term.Words.TTY = true, true
	root := a.root()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&words)
	if err = root.ExecuteContext(ctx); err != nil {
		a.Term.Fail(outcome.Text(err), string(outcome.Of(err).Code), outcome.Hint(err))
	}
	return out.String(), words.String(), err
}

// Finding 22 of the security review: every way to print lets nothing through that
// commands a terminal.
func TestNothingThatIsPrintedCommandsTheTerminal(t *testing.T) {
	t.Parallel()
	payload := json.RawMessage(`{"a` + "\u009b\x7f\u202e" + `":["` + "\u009b\x7f\u202e\u2066\u200b" + `"]}`)
	e := envelope.New(envelope.TypeEvent, "agent.a"+hostile, "bus.b"+hostile, "in.tent"+hostile, payload)
	problem := aaif.Problem{Pointer: "/a" + hostile, Message: hostile, Hint: hostile, Line: 1}
	for name, show := range map[string]func(*term.Terminal){
		"line": func(t *term.Terminal) { t.Line("%s %v %-12s %q", hostile, errors.New(hostile), hostile, hostile) },
		"types": func(t *term.Terminal) {
			t.Line("%s %v %v", envelope.Code(hostile), []string{hostile}, map[string]string{"a": hostile})
		},
		"say":      func(t *term.Terminal) { t.Say("%s", hostile) },
		"note":     func(t *term.Terminal) { t.Note("%s", hostile) },
		"progress": func(t *term.Terminal) { t.Progress("%s", hostile) },
		"good":     func(t *term.Terminal) { t.Good("%s", hostile) },
		"warn":     func(t *term.Terminal) { t.Warn("%s", hostile) },
		"hint":     func(t *term.Terminal) { t.Hint(hostile) },
		"heading":  func(t *term.Terminal) { t.Heading("%s", hostile) },
		"steps":    func(t *term.Terminal) { t.Steps(hostile, hostile) },
		"fail":     func(t *term.Terminal) { t.Fail(hostile, hostile, hostile) },
		"notice":   func(t *term.Terminal) { t.Notice(hostile, problem) },
		"problem":  func(t *term.Terminal) { t.Line("%s", t.Problem(problem)) },
		"object":   func(t *term.Terminal) { _ = t.Object(map[string]any{"k" + hostile: payload, "s": hostile}) },
		"raw":      func(t *term.Terminal) { t.Raw(payload) },
		"bytes":    func(t *term.Terminal) { _ = t.Bytes(payload); _ = t.Bytes([]byte(hostile)) },
		"payload": func(t *term.Terminal) {
			t.Payload(payload)
			t.Payload(json.RawMessage(`{"text":"\u001b[2J\u007f\u009b\u202e"}`))
		},
		"table":   func(t *term.Terminal) { t.Table([]string{"x"}, [][]string{{hostile}}) },
		"paint":   func(t *term.Terminal) { t.Line("%s", t.Data.Paint(term.StyleGood, hostile)) },
		"traffic": func(t *term.Terminal) { traffic.PrintSighting(t, traffic.Sighting{At: time.Now(), Env: e}, true) },
		"status": func(t *term.Terminal) {
			session.ConnectionStatus(t, true)(natsconn.Status{State: "error", URL: hostile, Err: errors.New(hostile)})
		},
		"stream": func(t *term.Terminal) {
			v := traffic.StreamView{Term: t, Out: t.Data}
			for _, p := range []string{`{"text":"\u001b[2J\u007f\u009b\u202e"}`, string(payload), `{"handed_to":"\u009b\u202e"}`,
				`{"tool_call":{"name":"\u009b","arguments":{"a":"` + "\u009b\u202e" + `"}}}`, `{"tool_result":{"name":"\u009b\u202e","error":"\u001b[2J"}}`} {
				_ = v.Show(&envelope.Envelope{Payload: json.RawMessage(p)})
			}
		},
	} {
		screen, out, words := onTerminal()
		screen.Data.Color, screen.Words.Color = false, false
		show(screen)
		if s := out.String() + words.String(); s == "" || hostileIn(s) != nil {
			t.Errorf("%s: %U in %q", name, hostileIn(s), s)
		}
	}
}

// Own colours stay where a peer's words stand beside them.
func TestColoursSurviveBesideAPeersWords(t *testing.T) {
	t.Parallel()
	screen, out, _ := onTerminal()
	screen.Line("%s %s", screen.Mark("ok"), "peer\x1b[2J")
	if got, want := out.String(), "\x1b[32mok  \x1b[0m peer\uFFFD[2J\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Off a terminal data is what it is, and JSON is JSON wherever it goes.
func TestDataStaysWhatItIsOffATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	screen := term.New(&out, &out, func(string) string { return "" })
	screen.Line("%s", hostile)
	if out.String() != hostile+"\n" {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	_ = screen.Bytes([]byte(hostile))
	if out.String() != hostile {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	if err := screen.Object(map[string]string{"s": hostile}); err != nil {
		t.Fatal(err)
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["s"] != hostile || hostileIn(out.String()) != nil {
		t.Errorf("%v: %q", err, out.String())
	}
}

// servesHostile answers every task on both lanes with what a terminal would obey.
func servesHostile(t *testing.T, srv *natsd.Server) {
	t.Helper()
	conn := natstest.Conn(t, srv)
	a := &app{App: &session.App{}}
	js, err := a.JetStream(conn)
	if err != nil {
		t.Fatal(err)
	}
	m, err := a.Subjects()
	if err != nil {
		t.Fatal(err)
	}
	lane := session.NewLane(js, m)
	lane.Create = true
	node, err := mesh.New(conn, mesh.Config{Durable: lane, Drain: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	said, err := json.Marshal(map[string]any{"text": hostile})
	if err != nil {
		t.Fatal(err)
	}
	more, err := json.Marshal(map[string]any{"k" + hostile: []string{hostile}})
	if err != nil {
		t.Fatal(err)
	}
	agent := func(entity string, do func(context.Context, *mesh.Task) (json.RawMessage, error)) *agents.Agent {
		return &agents.Agent{Agent: mesh.Agent{Entity: entity, Handler: mesh.HandlerFunc(do), Description: "about " + hostile}}
	}
	ctx, stop := context.WithCancel(context.Background())
	ready := make(chan struct{}, 3)
	served := []*agents.Agent{
		agent("agent.text", func(_ context.Context, t *mesh.Task) (json.RawMessage, error) { return said, t.Emit(said) }),
		agent("agent.json", func(_ context.Context, t *mesh.Task) (json.RawMessage, error) { return more, t.Emit(more) }),
		agent("agent.fails", func(context.Context, *mesh.Task) (json.RawMessage, error) {
			return nil, envelope.Errorf("E_EVIL", "%s", hostile)
		}),
	}
	for _, s := range served {
		s.Ready = func() { ready <- struct{}{} }
	}
	ended := make(chan error, len(served))
	for _, s := range served {
		go func() { ended <- s.Run(ctx, node) }()
	}
	for range served {
		<-ready
	}
	t.Cleanup(func() {
		stop()
		for range served {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// Finding 22 of the security review, with the commands and a server.
func TestNoCommandLetsAPeerCommandTheTerminal(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	if err := applyTopology(srv); err != nil {
		t.Fatal(err)
	}
	servesHostile(t, srv)
	env := map[string]string{"NATS_URL": srv.ClientURL(), "USER": "ada", "HOME": t.TempDir()}
	try := func(args ...string) string {
		t.Helper()
		out, words, _ := onTTY(t.Context(), env, args...)
		if found := hostileIn(out + words); found != nil {
			t.Errorf("%v: %U in\n%q\n%q", args, found, out, words)
		}
		if out+words == "" {
			t.Errorf("%v prints nothing", args)
		}
		return out
	}
	for _, entity := range []string{"agent.text", "agent.json", "agent.fails"} {
		try("ask", entity, "hi")
		try("ask", entity, "hi", "--json")
		try("send", entity, "hi")
		try("send", entity, "hi", "--stream")
		try("send", entity, "hi", "--stream", "--json")
		try("send", entity, "hi", "--durable", "--stream")
		id := strings.TrimSpace(try("send", entity, "hi", "--durable", "--detach"))
		try("result", id, entity, "--follow")
		try("result", id, entity, "--follow", "--json")
		try("runs", "show", id, "-e", entity)
		try("runs", "show", id, "-e", entity, "--json")
		try("runs", "show", id, "-e", entity, "--document")
		try("runs", "follow", id, "-e", entity)
		try("tree", id)
		try("tree", id, "--json")
		try("agents", "describe", entity)
		try("agents", "describe", entity, "--json")
	}
	for _, args := range [][]string{{"agents", "list"}, {"agents", "list", "--json"}, {"runs", "list"}, {"dead", "list"}, {"doctor"},
		{"watch", "--since", "1h", "--payload", "--count", "20"}, {"watch", "--since", "1h", "--payload", "--count", "20", "--json"}} {
		try(args...)
	}
}

// Finding 22 of the security review: a signature that was not verified is not
// called one.
func TestOnlyWhatIsVerifiedIsCalledSigned(t *testing.T) {
	t.Parallel()
	signer, key, err := sign.NewKey("ada", sign.Ed25519, "human.ada")
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := sign.NewKey("ada", sign.Ed25519, "human.ada")
	if err != nil {
		t.Fatal(err)
	}
	ring := &sign.Ring{}
	if err := ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	revoked := &sign.Ring{}
	gone := key
	gone.Revoked = true
	if err := revoked.Put(sign.Local, gone); err != nil {
		t.Fatal(err)
	}
	signed := func(from string, by *sign.Signer) *envelope.Envelope {
		e := envelope.New(envelope.TypeTask, from, "agent.a", "agent.ask", json.RawMessage(`{}`))
		if by != nil {
			if err := by.Sign(e); err != nil {
				t.Fatal(err)
			}
		}
		return e
	}
	changed := signed("human.ada", signer)
	changed.Payload = json.RawMessage(`{"amount":1}`)
	odd := signed("human.ada", nil)
	odd.Sig = json.RawMessage(`"a string"`)
	for _, tt := range []struct {
		ring *sign.Ring
		e    *envelope.Envelope
		want string
	}{
		{ring, signed("human.ada", nil), ""},
		{ring, signed("human.ada", signer), "signed ada"},
		{nil, signed("human.ada", signer), "says it is signed by ada (not verified)"},
		{&sign.Ring{}, signed("human.ada", signer), "says it is signed by ada (not verified)"},
		{ring, odd, "says it is signed by ? (not verified)"},
		{ring, changed, "says it is signed by ada (not so: E_SIG_INVALID)"},
		{ring, signed("human.ada", other), "says it is signed by ada (not so: E_SIG_INVALID)"},
		{ring, signed("human.eve", signer), "says it is signed by ada (not so: E_FROM_DENIED)"},
		{revoked, signed("human.ada", signer), "says it is signed by ada (not so: E_KEY_INVALID)"},
	} {
		v := traffic.Vouch(tt.ring, tt.e, time.Now())
		if got := v.Words(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		screen, out, _ := onTerminal()
		screen.Data.Color = false
		traffic.PrintSighting(screen, traffic.Sighting{At: time.Now(), Env: tt.e, By: v}, false)
		if good := strings.Contains(out.String(), " signed ada"); good != (tt.want == "signed ada") && !strings.Contains(tt.want, "is signed by") {
			t.Errorf("%q for %q", out.String(), tt.want)
		}
		out.Reset()
		screen.JSON = true
		traffic.PrintSighting(screen, traffic.Sighting{At: time.Now(), Env: tt.e, By: v}, false)
		if good := strings.Contains(out.String(), `"verified":true`); good != (tt.want == "signed ada") {
			t.Errorf("%s for %q", out.String(), tt.want)
		}
	}
}

package tasks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// command runs a command as the program does, with an environment that has nothing but a folder
// for keys, and returns what is printed.
func command(t *testing.T, make func(*session.App) *cobra.Command, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, words natstest.Buffer
	err = commandTo(t, &out, &words, make, args...)
	return out.String(), words.String(), err
}

// commandTo is command with the buffers that it prints to.
func commandTo(t *testing.T, out, words *natstest.Buffer, make func(*session.App) *cobra.Command, args ...string) error {
	t.Helper()
	return commandUntil(t.Context(), t, out, words, make, args...)
}

// commandUntil is commandTo with a context, whose end is an interrupt.
func commandUntil(ctx context.Context, t *testing.T, out, words *natstest.Buffer, make func(*session.App) *cobra.Command, args ...string) error {
	t.Helper()
	home := t.TempDir()
	env := func(name string) string {
		if strings.HasPrefix(name, "XDG_") || name == "HOME" {
			return filepath.Join(home, name)
		}
		return ""
	}
	a := &session.App{Env: env, Stdin: strings.NewReader(""), Term: term.New(out, words, env), ByEnv: map[string]bool{}}
	a.StartTelemetry = func(context.Context) (*session.Telemetry, error) {
		return &session.Telemetry{Stop: func() {}}, nil
	}
	root := &cobra.Command{Use: "aeemesh", SilenceErrors: true, SilenceUsage: true}
	a.AddConnectFlags(root.PersistentFlags())
	root.AddCommand(make(a))
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// --cbor holds for what gets no answer, too: an event, and a live task whose sender does not wait.
func TestWhatGetsNoAnswerIsSentInCBORToo(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	nc := natstest.Conn(t, srv)
	got := make(chan *nats.Msg, 4)
	for _, subject := range []string{"agent.w", "bus.ops", "human.ada"} {
		if _, err := nc.ChanSubscribe(subject, got); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"agent.w", `{"n":5}`, "--detach"},
		{"bus.ops", `{"n":5}`, "--intent", "ops.backup.done"},
		{"human.ada", `{"n":5}`, "--type", "task"},
	} {
		for _, cbor := range []bool{true, false} {
			line := append([]string{"send", "--nats", srv.ClientURL()}, args...)
			parse, kind := envelope.Parse, ""
			if cbor {
				line, parse, kind = append(line, "--cbor"), envelope.ParseCBOR, envelope.ContentCBOR
			}
			if _, words, err := command(t, SendCommand, line...); err != nil {
				t.Fatalf("%q: %v\n%s", line, err, words)
			}
			msg := natstest.Within(t, args[0], got)
			if e, err := parse(msg.Data); err != nil || e.To != args[0] || string(e.Payload) != `{"n":5}` || msg.Header.Get("Content-Type") != kind {
				t.Errorf("%q: Content-Type %q, %v, %v", line, msg.Header.Get("Content-Type"), e, err)
			}
		}
	}
}

// write writes envelopes into a file, one a line, and returns its name.
func write(t *testing.T, all ...*envelope.Envelope) string {
	t.Helper()
	var text []byte
	for _, e := range all {
		var err error
		if text, err = e.AppendJSON(text); err != nil {
			t.Fatal(err)
		}
		text = append(text, '\n')
	}
	file := filepath.Join(t.TempDir(), "envelopes.jsonl")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func newTask(to string) *envelope.Envelope {
	return envelope.New(envelope.TypeTask, "human.ada", to, "agent.ask", []byte(`{"text":"hi"}`))
}

// The hint of an uncertain submission promises that an envelope of one's own can be sent again.
func TestAnEnvelopeThatIsSentAgainIsStoredOnce(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	task := newTask("agent.later")
	file := write(t, task)
	for _, want := range []string{"stored for agent.later", "was stored already for agent.later"} {
		out, words, err := command(t, SendCommand, "send", "--nats", srv.ClientURL(), "--envelope", file, "--durable", "--detach")
		if err != nil || out != task.ID+"\n" || !strings.Contains(words, want) {
			t.Errorf("%v: printed %q and %q, want %q", err, out, words, want)
		}
	}
	stream, err := js.Stream(t.Context(), jetstream.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d tasks are stored", n)
	}
}

// While no stream takes a durable task, "send" says so once, and tries again.
func TestSendTriesAgainUntilAStreamAnswers(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "sender", Password: "s", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.STREAM.INFO.>"}}}},
		{Name: "operator", Password: "o"},
	}})
	js, err := natsjs.New(natstest.Conn(t, srv, nats.UserInfo("operator", "o")))
	if err != nil {
		t.Fatal(err)
	}
	task := newTask("agent.later")
	file := write(t, task)
	var out, words natstest.Buffer
	sent := make(chan error, 1)
	go func() {
		sent <- commandTo(t, &out, &words, SendCommand, "send", "--nats", srv.ClientURL(), "--user", "sender", "--password", "s", "--envelope", file, "--durable", "--detach")
	}()
	natstest.Eventually(t, "it says that it tries again", func() bool { return strings.Contains(words.String(), "no response from stream; trying again") })
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := natstest.Within(t, "the end of send", sent); err != nil || out.String() != task.ID+"\n" || strings.Count(words.String(), "trying again") != 1 {
		t.Errorf("%v: printed %q and %q", err, out.String(), words.String())
	}
}

// Command lines that contradict themselves are refused before anything is connected to.
func TestWhatCannotBeSentIsRefusedFirst(t *testing.T) {
	t.Parallel()
	signed := newTask("agent.x")
	signer, _, err := sign.NewKey("ada", sign.Ed25519, "human.ada")
	if err == nil {
		err = signer.Sign(signed)
	}
	if err != nil {
		t.Fatal(err)
	}
	both := write(t, newTask("agent.x"), newTask("agent.x"))
	for _, c := range []struct {
		line, want string
		exit       int
	}{
		{"", "ENTITY is missing: name the receiver, such as agent.echo", outcome.Usage},
		{"nowhere x", "nowhere", outcome.Usage},
		{"agent.x hi --at 2030-01-01T00:00:00Z --after 1h", "give --at or --after, not both", outcome.Usage},
		{"agent.x hi --after -1h", "it cannot be negative", outcome.Usage},
		{"agent.x hi --after 1h --retries 1", "--retries is for live tasks", outcome.Usage},
		{"bus.ops hi --durable --intent ops.done", "only a task to an agent or a service can be durable", outcome.Usage},
		{"human.ada hi --type task --durable", "only a task to an agent or a service can be durable", outcome.Usage},
		{"agent.x hi --type event --intent x.done --durable", "only a task to an agent or a service can be durable", outcome.Usage},
		{"--retries 1 --envelope " + write(t, signed), "--retries makes new envelopes, and this one is signed", outcome.Usage},
		{"agent.y --envelope " + write(t, signed), "the envelope is addressed to agent.x", outcome.Usage},
		{"--envelope " + both, "has 2 envelopes, and one can be sent", outcome.Failed},
	} {
		_, _, err := command(t, SendCommand, append([]string{"send", "--nats", "nats://127.0.0.1:1"}, strings.Fields(c.line)...)...)
		var usage *outcome.UsageError
		exit := outcome.Of(err).Exit
		if errors.As(err, &usage) {
			exit = outcome.Usage
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || exit != c.exit {
			t.Errorf("send %s: %v, status %d, want %q, %d", c.line, err, exit, c.want, c.exit)
		}
	}
}

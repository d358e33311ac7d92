package tasks

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// command runs a command as the program does, with an environment that has nothing but a folder
// for keys, and returns what is printed.
func command(t *testing.T, make func(*session.App) *cobra.Command, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, words natstest.Buffer
	home := t.TempDir()
	env := func(name string) string {
		if strings.HasPrefix(name, "XDG_") || name == "HOME" {
			return filepath.Join(home, name)
		}
		return ""
	}
	a := &session.App{Env: env, Stdin: strings.NewReader(""), Term: term.New(&out, &words, env), ByEnv: map[string]bool{}}
	a.StartTelemetry = func(context.Context) (*session.Telemetry, error) {
		return &session.Telemetry{Stop: func() {}}, nil
	}
	root := &cobra.Command{Use: "aeemesh", SilenceErrors: true, SilenceUsage: true}
	a.AddConnectFlags(root.PersistentFlags())
	root.AddCommand(make(a))
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), words.String(), err
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

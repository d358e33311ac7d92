package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/await"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/schemas"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

const trams = "agent.trams"

// nothing is a model that finds no key in a text.
type nothing struct{}

func (nothing) Complete(context.Context, template.Prompt) (json.RawMessage, error) {
	return json.RawMessage(`{"keys":{}}`), nil
}

// askWith is "aeemesh ask" with that model.
func askWith(a *session.App) *cobra.Command {
	return AskCommand(a, schemas.Operator{Filler: func(*cobra.Command, string, string) (template.Model, func(), error) {
		return nothing{}, func() {}, nil
	}})
}

// serveTrams serves an agent that publishes a template, until the test ends.
func serveTrams(t *testing.T, srv *natsd.Server, durable bool, handler mesh.HandlerFunc) {
	t.Helper()
	var templates []*template.Template
	for _, text := range []string{`{"schema_id":"tram_v1","scenario":"tram","keys":[]}`,
		`{"schema_id":"seat_v1","scenario":"seat","keys":[{"key_name":"row","key_type":"string","required":true,"semantic_description":"Which row."}]}`} {
		tpl, err := template.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, tpl)
	}
	desk, err := sdsi.NewDesk(sdsi.DeskConfig{Entity: trams, Templates: templates})
	if err != nil {
		t.Fatal(err)
	}
	conn, cfg := natstest.Conn(t, srv), mesh.Config{Entity: trams, Heartbeat: -1, Drain: time.Millisecond}
	if durable {
		js, err := natsjs.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Durable = session.NewLane(js, subject.Map{})
		cfg.Durable.Create = true
	}
	node, err := mesh.New(conn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	agent := mesh.Agent{Entity: trams, Handler: handler, Ready: func() { close(ready) }}
	if err := desk.Attach(&agent); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Serve(ctx, agent) }()
	t.Cleanup(func() { stop(); natstest.Within(t, "the end of the agent", done) })
	natstest.Within(t, "the agent", ready)
}

// withLane is a server with the streams of durable tasks.
func withLane(t *testing.T) *natsd.Server {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	return srv
}

// A durable question goes on when its asker stops waiting, who can ask for its result by its id.
func TestADurableQuestionGoesOnWithoutItsAsker(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]outcome.Outcome{
		"interrupted": {Code: outcome.CodeInterrupted, Exit: outcome.Failed},
		"too late":    {Code: envelope.CodeTimeout, Exit: outcome.Late},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if want.Exit == outcome.Late {
				natstest.Long(t)
			}
			srv := withLane(t)
			begun := make(chan string, 1)
			serveTrams(t, srv, true, func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				begun <- task.Envelope.ID
				<-ctx.Done()
				return nil, ctx.Err()
			})
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			line := []string{"ask", "--nats", srv.ClientURL(), trams, "hi", "--model", "a/model", "--scenario", "tram", "--durable"}
			if want.Exit == outcome.Late {
				line = append(line, "--timeout", "2s")
			}
			asked := make(chan error, 1)
			go func() {
				var out, words natstest.Buffer
				asked <- commandUntil(ctx, t, &out, &words, askWith, line...)
			}()
			id := natstest.Within(t, "the task", begun)
			if want.Exit != outcome.Late {
				interrupt()
			}
			err := natstest.Within(t, "the end of ask", asked)
			if want.Exit != outcome.Late && errors.Is(err, jetstream.ErrUncertain) {
				// The worker had the task before the asker was told that it is stored.
				if outcome.Of(err) != want || !strings.Contains(outcome.Hint(err), fmt.Sprintf("aeemesh result %s %s", id, trams)) {
					t.Errorf("task %s: %v, %+v, %q", id, err, outcome.Of(err), outcome.Hint(err))
				}
				return
			}
			if err == nil || err.Error() != "stopped waiting; the task goes on" || outcome.Of(err) != want || outcome.Hint(err) != fmt.Sprintf(await.Again, id, trams, id, trams) {
				t.Errorf("task %s: %v, %+v, %q", id, err, outcome.Of(err), outcome.Hint(err))
			}
		})
	}
}

// The templates of an agent that takes no durable tasks are there all the same: "ask" says that
// nothing takes the question.
func TestADurableQuestionThatNoWorkerTakesIsWarnedOf(t *testing.T) {
	t.Parallel()
	srv := withLane(t)
	serveTrams(t, srv, false, func(context.Context, *mesh.Task) (json.RawMessage, error) { return json.RawMessage(`{}`), nil })
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, words natstest.Buffer
	asked := make(chan error, 1)
	go func() {
		asked <- commandUntil(ctx, t, &out, &words, askWith, "ask", "--nats", srv.ClientURL(), trams, "hi", "--model", "a/model", "--scenario", "tram", "--durable")
	}()
	natstest.Eventually(t, "the warning", func() bool { return strings.Contains(words.String(), "warning: "+trams) })
	interrupt()
	if err := natstest.Within(t, "the end of ask", asked); outcome.Of(err).Code != outcome.CodeInterrupted {
		t.Errorf("%v: %s", err, words.String())
	}
}

// "ask" tries again with a model, too: its questions for the template while the only worker is
// being started, and then the task.
func TestAskTriesAgainWithAModel(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	var out, words natstest.Buffer
	asked := make(chan error, 1)
	go func() {
		asked <- commandTo(t, &out, &words, askWith, "ask", "--nats", srv.ClientURL(), trams, "hi", "--model", "a/model", "--scenario", "tram", "--retries", "20")
	}()
	natstest.Eventually(t, "the first attempt", func() bool { return strings.Contains(words.String(), "E_NO_RESPONDERS") })
	var tasks atomic.Int32
	serveTrams(t, srv, false, func(context.Context, *mesh.Task) (json.RawMessage, error) {
		if tasks.Add(1) == 1 {
			return nil, envelope.Errorf(envelope.CodeBusy, "one moment").WithBackoff(time.Millisecond)
		}
		return json.RawMessage(`{"text":"a ticket"}`), nil
	})
	if err := natstest.Within(t, "the end of ask", asked); err != nil || out.String() != "a ticket\n" || !strings.Contains(words.String(), "E_BUSY: one moment; try 1 of 20") {
		t.Errorf("%v: %q, %q", err, out.String(), words.String())
	}
}

// A question in plain text has no id that could be cancelled: an interrupted "ask" does not say
// that the agent stops.
func TestAnInterruptedPlainQuestionGoesOn(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	begun, stopped := make(chan bool), make(chan error, 1)
	release := make(chan bool)
	serveTrams(t, srv, false, func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
		close(begun)
		<-release
		stopped <- ctx.Err()
		return json.RawMessage(`{}`), nil
	})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, words natstest.Buffer
	asked := make(chan error, 1)
	go func() {
		asked <- commandUntil(ctx, t, &out, &words, askWith, "ask", "--nats", srv.ClientURL(), trams, "hi")
	}()
	natstest.Within(t, "the task", begun)
	interrupt()
	err := natstest.Within(t, "the end of ask", asked)
	close(release)
	if went := natstest.Within(t, "the end of the task", stopped); went != nil || err == nil || err.Error() != "interrupted; the agent goes on: plain text cannot be cancelled" || outcome.Of(err).Code != outcome.CodeInterrupted {
		t.Errorf("%v, %+v; the agent was told %v", err, outcome.Of(err), went)
	}
}

// A failure of "ask" names the agent (docs/cli.md), with a model too, beside what else it says.
func TestAFailedQuestionNamesItsAgent(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	serveTrams(t, srv, false, func(context.Context, *mesh.Task) (json.RawMessage, error) { return nil, errors.New("no") })
	for _, c := range []struct {
		line string
		want []string
	}{
		{trams + " hi", []string{"entity"}},
		{trams + " hi --model a/model --scenario tram", []string{"entity"}},
		{"--scenario tram hi --model a/model", []string{"entity"}},
		{"agent.none hi --model a/model --retries 0", []string{"entity"}},
		{trams + " hi --model a/model --scenario seat", []string{"entity", "missing"}},
	} {
		_, _, err := command(t, askWith, append([]string{"ask", "--nats", srv.ClientURL()}, strings.Fields(c.line)...)...)
		var more *outcome.Detailed
		if !errors.As(err, &more) || !slices.Equal(slices.Sorted(maps.Keys(more.Members)), c.want) {
			t.Errorf("ask %s: %v, %+v, want %q", c.line, err, more, c.want)
		}
	}
}

// Between two tries no agent has the question: an interrupted command says neither that the agent
// goes on nor that it was asked to stop.
func TestACommandThatIsInterruptedBetweenTriesSaysNothingOfTheAgent(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	serveTrams(t, srv, false, func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return nil, envelope.Errorf(envelope.CodeBusy, "later").WithBackoff(time.Hour)
	})
	for name, command := range map[string]func(*session.App) *cobra.Command{"ask": askWith, "send": SendCommand} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var out, words natstest.Buffer
			asked := make(chan error, 1)
			go func() {
				asked <- commandUntil(ctx, t, &out, &words, command, name, "--nats", srv.ClientURL(), trams, "hi", "--retries", "1")
			}()
			natstest.Eventually(t, "the pause", func() bool { return strings.Contains(words.String(), "E_BUSY: later; try 1 of 1") })
			interrupt()
			if err := natstest.Within(t, "the end of the command", asked); err == nil || err.Error() != "interrupted" || outcome.Of(err).Code != outcome.CodeInterrupted {
				t.Errorf("%v, %+v", err, outcome.Of(err))
			}
		})
	}
}

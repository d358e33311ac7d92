package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// world is a NATS server with a node on it.
type world struct {
	t    *testing.T
	node *mesh.Node
	conn *nats.Conn
}

func newWorld(t *testing.T) *world {
	t.Helper()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	node, err := mesh.New(conn, mesh.Config{Entity: "human.ada"})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, node, conn}
}

// host serves an agent until stop is called, or the test ends; stop returns
// what Run returned.
func (w *world) host(a *agents.Agent) (stop func() error) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, w.node) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	w.t.Cleanup(func() {
		if err := stop(); err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
	until(w.t, "the agent answers", func() bool {
		select {
		case err := <-ended:
			ended <- err
			w.t.Fatalf("run: %v", err)
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := w.node.Ping(ctx, a.Entity)
		return err == nil
	})
	return stop
}

// until polls for what must become true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

// sent is what came back for a task.
type sent struct {
	payload string
	err     *envelope.Error
	stream  []string // payloads without seq
}

type sending struct {
	intent   string
	requires string
	stream   bool
	ctx      context.Context
}

func (w *world) send(to, payload string, how sending) sent {
	if how.intent == "" {
		how.intent = "test.run"
	}
	if how.ctx == nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		how.ctx = ctx
	}
	task := envelope.New(envelope.TypeTask, "human.ada", to, how.intent, json.RawMessage(payload))
	if how.requires != "" {
		task.Requires = json.RawMessage(how.requires)
	}
	var out sent
	opts := mesh.SendOptions{}
	if how.stream {
		opts.OnStream = func(e *envelope.Envelope) error {
			var members map[string]json.RawMessage
			if err := json.Unmarshal(e.Payload, &members); err != nil {
				return err
			}
			delete(members, "seq")
			raw, err := json.Marshal(members)
			out.stream = append(out.stream, string(raw))
			return err
		}
	}
	reply, err := w.node.Send(how.ctx, task, opts)
	if err != nil {
		errors.As(err, &out.err)
		if out.err == nil {
			out.err = envelope.AsError(err)
		}
		return out
	}
	out.payload = string(reply.Payload)
	return out
}

// definition parses an AAIF document.
func definition(t testing.TB, text string) *aaif.Document {
	t.Helper()
	doc, err := aaif.Parse([]byte(text), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// program is the test binary as an agent program.
func newProgram(t testing.TB, mode string, change func(*program.Config)) *program.Program {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := program.Config{
		Command: []string{exe}, Env: append(os.Environ(), programEnv+"="+mode),
		RestartMin: time.Millisecond, RestartMax: 5 * time.Millisecond,
		MaxLine: 64 << 10,
	}
	if change != nil {
		change(&cfg)
	}
	p, err := program.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// dies is a program that ends without an answer at its first start, as one that crashes does, and
// answers the tasks of its second start.
const dies = `read -r task
[ -e "$0.began" ] || { : >"$0.began"; exit 7; }
while :; do
	id=${task#*'"id":"'}
	printf '{"type":"result","reply_to":"%s","payload":{"ok":true}}\n' "${id%%'"'*}"
	read -r task || exit 0
done
`

// A durable task of an agent without a document is tried again when its program dies or its handler
// fails with a transient error, as one of an agent with a document is.
func TestDurableTasksOfAgentsWithoutADocumentAreRetried(t *testing.T) {
	t.Parallel()
	sh := filepath.Join(t.TempDir(), "agent.sh")
	if err := os.WriteFile(sh, []byte(dies), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := program.New(program.Config{Command: []string{"/bin/sh", sh}, RestartMin: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	fails := mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		if calls.Add(1) == 1 {
			return nil, envelope.Errorf(envelope.CodeUnavailable, "gone")
		}
		return json.RawMessage(`{"ok":true}`), nil
	})
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := jsOf(t, srv)
	apply(t, js)
	cfg := config(srv)
	cfg.Durable = worker.On
	cfg.Agents = []worker.Agent{{As: "agent.program", Program: p}, {As: "agent.handler", Handler: fails}}
	_, stop := start(t, cfg)
	defer stop()
	var lane mesh.Durable
	lane.SetStores(jetstream.Open(js, subject.Map{}))
	sender, err := mesh.New(natstest.Conn(t, srv), mesh.Config{Entity: "human.ada", Durable: &lane})
	if err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, a := range cfg.Agents {
		task := envelope.New(envelope.TypeTask, "human.ada", a.As, "agent.ask", json.RawMessage(`{"text":"hi"}`))
		if _, err := sender.Submit(within, task, mesh.SubmitOptions{}); err != nil {
			t.Fatal(err)
		}
		if reply, err := sender.Result(within, task.To, task.ID, mesh.ResultOptions{Follow: true}); err != nil || reply.Type != envelope.TypeResult {
			t.Errorf("%s: %v, %v", a.As, reply, err)
		}
	}
}

// tells is a program that answers each task with the error whose text is its argument.
const tells = `while read -r task; do
	id=${task#*'"id":"'}
	printf '{"type":"error","reply_to":"%s","payload":{"code":"E_TOOL","message":"%s"}}\n' "${id%%'"'*}" "$1"
done
`

// What New of package agents adds to a program or a handler, an agent without a document has, too: no
// error has a known secret in it, requires.min_confidence is enforced, and Metadata is published.
func TestAgentsWithoutADocumentKeepSecretsAndConfidence(t *testing.T) {
	t.Parallel()
	const known = "hunter2-correct-horse"
	sh := filepath.Join(t.TempDir(), "agent.sh")
	if err := os.WriteFile(sh, []byte(tells), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := program.New(program.Config{Command: []string{"/bin/sh", sh, known}})
	if err != nil {
		t.Fatal(err)
	}
	set, err := adapters.New(adapters.Config{}, adapters.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	set.Redactor().Add(secret.New(known))
	srv := natstest.Run(t, natsd.Config{})
	cfg := config(srv, "agent.silent")
	cfg.Adapters, cfg.Options.Metadata = set, map[string]string{"team": "blue"}
	cfg.Agents = append(cfg.Agents, worker.Agent{As: "agent.program", Program: p}, worker.Agent{As: "agent.handler", Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return nil, envelope.Errorf(envelope.CodeTool, "%s", known)
	})})
	_, stop := start(t, cfg)
	defer stop()
	sender := client(t, srv)
	for _, entity := range []string{"agent.program", "agent.handler"} {
		task := envelope.New(envelope.TypeTask, "human.ada", entity, "agent.ask", json.RawMessage(`{"text":"hi"}`))
		if _, err := sender.Send(t.Context(), task, mesh.SendOptions{}); err == nil || envelope.AsError(err).Code != envelope.CodeTool || strings.Contains(err.Error(), known) {
			t.Errorf("%s: %v", entity, err)
		}
	}
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.silent", "agent.ask", json.RawMessage(`{"text":"hi"}`))
	task.Requires = json.RawMessage(`{"min_confidence":0.5}`)
	if reply, err := sender.Send(t.Context(), task, mesh.SendOptions{}); err == nil || envelope.AsError(err).Code != envelope.CodeRequires {
		t.Errorf("a confidence is required, and got %v, %v", reply, err)
	}
	found, err := sender.Discover(t.Context(), "agent.silent", time.Minute)
	if err != nil || len(found) != 1 || found[0].Info.Metadata["team"] != "blue" {
		t.Errorf("found %+v, %v", found, err)
	}
}

// The checkpoints of an agent without a document are sealed with Options.StateKeys.
func TestCheckpointsOfAgentsWithoutADocumentAreSealed(t *testing.T) {
	t.Parallel()
	ring, err := state.NewKeyring(state.Key{Secret: []byte(strings.Repeat("k", 32))})
	if err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := jsOf(t, srv)
	apply(t, js)
	cfg := config(srv, "agent.one")
	cfg.Durable, cfg.Options = worker.On, agents.Options{StateKeys: ring}
	cfg.Node.Durable = &mesh.Durable{Create: true, KeepTasks: true}
	_, stop := start(t, cfg)
	defer stop()
	var lane mesh.Durable
	lane.SetStores(jetstream.Open(js, subject.Map{}))
	sender, err := mesh.New(natstest.Conn(t, srv), mesh.Config{Entity: "human.ada", Durable: &lane})
	if err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.one", "agent.ask", json.RawMessage(`{"text":"in confidence"}`))
	if _, err := sender.Submit(within, task, mesh.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := sender.Result(within, task.To, task.ID, mesh.ResultOptions{Follow: true}); err != nil {
		t.Fatal(err)
	}
	rec, err := jetstream.NewStates(js, subject.Map{}).Get(within, state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (state.Codec{}).Decode(rec.Data); !errors.Is(err, state.ErrSealed) {
		t.Errorf("without the key the checkpoint is read: %v", err)
	}
	if _, err := (state.Codec{Seal: ring}).Decode(rec.Data); err != nil {
		t.Error(err)
	}
}

// An agent whose state must be encrypted is hosted if the node alone has the keys.
func TestKeysOfTheNodeEncryptWhatADocumentSays(t *testing.T) {
	t.Parallel()
	ring, err := state.NewKeyring(state.Key{Secret: []byte(strings.Repeat("k", 32))})
	if err != nil {
		t.Fatal(err)
	}
	strict := strings.TrimSuffix(strings.TrimSpace(echo), "}") + ", compliance: {pii_handling: encrypt, safety_level: strict}}\n"
	for name, c := range map[string]struct {
		durable *mesh.Durable
		hosted  bool
	}{
		"no template":    {nil, false},
		"no keys":        {&mesh.Durable{Create: true}, false},
		"the node's own": {&mesh.Durable{Create: true, Codec: state.Codec{Seal: ring}}, true},
	} {
		_, err := worker.New(worker.Config{Agents: []worker.Agent{{File: write(t, "echo.yaml", strict)}}, Node: mesh.Config{Durable: c.durable}})
		if (err == nil) != c.hosted || err != nil && !strings.Contains(err.Error(), "pii_handling") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

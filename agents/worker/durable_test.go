package worker_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
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

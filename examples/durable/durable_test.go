//go:build unix

package durable_test

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

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/program"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/examples/durable"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// The agent's first worker is cut off when it has begun the second step. Another
// one ends the task, and each step was done once.
func TestTheAgentSurvivesItsWorker(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t, natsd.Config{JetStream: true})
	dir := t.TempDir()
	node := func(observe func(mesh.Point, state.ID)) (*mesh.Node, func()) {
		conn := natstest.Conn(t, server)
		raw, err := natsjs.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jetstream.Apply(t.Context(), raw, jetstream.Options{}); err != nil {
			t.Fatal(err)
		}
		s := jetstream.Open(jetstream.Gather(raw), subject.Map{})
		n, err := mesh.New(conn, mesh.Config{Entity: "human.ada", Heartbeat: -1, Drain: 100 * time.Millisecond, Durable: &mesh.Durable{
			Queue: s.Queue, Replies: s.Replies, Dead: s.Dead, Inbox: s.Inbox, States: s.States, Clock: s.Clock,
			Lease: 500 * time.Millisecond, Create: true, Sweep: -1, Observe: observe,
		}})
		if err != nil {
			t.Fatal(err)
		}
		return n, conn.Close
	}
	host := func(n *mesh.Node) context.CancelFunc {
		a := agent(t, dir)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx, n) }()
		t.Cleanup(func() { cancel(); <-ended })
		return cancel
	}

	over, dead := make(chan struct{}), make(chan struct{})
	defer close(over)
	var commits atomic.Int32
	var cutOff atomic.Pointer[func()]
	first, closed := node(func(p mesh.Point, _ state.ID) {
		if p == mesh.PointAfterCommit && commits.Add(1) == 5 { // a turn, the first step's two, a turn, and that the second is to begin
			(*cutOff.Load())()
			close(dead)
			<-over
		}
	})
	stop := host(first)
	kill := func() { closed(); stop() }
	cutOff.Store(&kill)

	client, _ := node(nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.slow_publisher", "agent.slow_publisher.run", json.RawMessage(`{"text":"the report"}`))
	if _, err := client.Submit(ctx, task, mesh.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-dead:
	case <-ctx.Done():
		reply, err := client.Result(t.Context(), task.To, task.ID, mesh.ResultOptions{})
		t.Fatalf("the second step never began: %v, %v", reply, err)
	}
	second, _ := node(nil)
	host(second)
	reply, err := client.Result(ctx, task.To, task.ID, mesh.ResultOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Published string
		Steps     []struct{ Step string }
	}
	if err := json.Unmarshal(reply.Payload, &result); err != nil || result.Published != "the report" || len(result.Steps) != 3 {
		t.Errorf("result %s, %v", reply.Payload, err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "steps.log"))
	if err != nil {
		t.Fatal(err)
	}
	run := state.RunID(task.To, task.ID)
	if want := "fetch " + run + ".1.1\nconvert " + run + ".2.1\npublish " + run + ".3.1\n"; string(log) != want {
		t.Errorf("steps.log has\n%swant\n%s", log, want)
	}
}

// agent is the example, with its tools in a folder of the test and without delays.
func agent(t *testing.T, dir string) *agents.Agent {
	t.Helper()
	script, err := filepath.Abs("step.sh")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := aaif.Parse(durable.Document(), aaif.Options{Name: "agent.yaml", Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	var tools tool.Registry
	for _, name := range []string{"fetch", "convert", "publish"} {
		step, err := program.New(program.Config{
			Definition: tool.Definition{Name: name, Description: name}, Command: []string{"/bin/sh", script, name}, Dir: dir,
			Env: []string{"PATH=" + os.Getenv("PATH"), "STEP_SECONDS=0"}, RepeatSafe: true,
		})
		if err := errors.Join(err, tools.Add(step)); err != nil {
			t.Fatal(err)
		}
	}
	a, err := agents.New(doc, agents.Options{Tools: &tools})
	if err != nil {
		t.Fatal(err)
	}
	if problems := a.Notices; len(problems) > 0 {
		t.Errorf("notices: %s", strings.TrimSpace(problems[0].String()))
	}
	return a
}

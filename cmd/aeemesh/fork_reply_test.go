package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// A run that left its reply alone has no task that a fork could do: the command says so,
// and what keeps the tasks of later runs.
func TestARunThatLeftItsReplyAloneCannotBeForked(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	if err := applyTopology(srv); err != nil {
		t.Fatal(err)
	}
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	const task, body = "01JD3YZ8M400000000000TASK0", `{"v":"1","id":"01JD3YZ8M4000000000REPLY00","ts":"2026-01-02T03:04:05.678Z","type":"result","from":"agent.x","to":"human.ada","intent":"a.b","corr":"workflow-1","reply_to":"01JD3YZ8M400000000000TASK0","trace":null,"priority":"normal","requires":null,"payload":{},"sig":null}`
	_, err = jetstream.NewStates(js, subject.Map{}).Reply(t.Context(), state.ID{Entity: "agent.x", Run: state.RunID("agent.x", task)}, 0,
		jetstream.Reply{Entity: "agent.x", TaskID: task, MsgID: "01JD3YZ8M4000000000REPLY00", Data: []byte(body)}, jetstream.Note{Status: aaif.RunCompleted, Work: 7},
		&state.End{TaskID: task, Agent: "6f24d1b9-35c8-4a02-b75d-e3880f61c217", Epoch: 1, StoredAt: time.Unix(1, 0).UTC(), StartedAt: time.Unix(2, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"NATS_URL": srv.ClientURL(), "HOME": t.TempDir(), "USER": "ada"}
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"runs", "fork", task, "-e", "agent.x"}, strings.NewReader(""), &stdout, &stderr, func(name string) string { return env[name] })
	if said := stderr.String(); code != 4 || !strings.Contains(said, "has left its reply alone") || !strings.Contains(said, "--keep-tasks") {
		t.Errorf("exit %d: %s%s", code, stdout.String(), said)
	}
}

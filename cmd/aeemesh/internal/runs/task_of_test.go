package runs

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// The id of a task may have the form of a run's whole id. Then the runs of its agent are not listed:
// the list would have no other run.
func TestTaskOfAWholeIDListsNoRuns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	nc := natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true}))
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(ctx, js, jetstream.Options{Only: []string{jetstream.BucketState, jetstream.BucketLanes}}); err != nil {
		t.Fatal(err)
	}
	m, err := subject.New("")
	if err != nil {
		t.Fatal(err)
	}
	run := state.New("agent.x", "task-0001", "")
	data, err := state.Codec{}.Encode(run)
	if err == nil {
		_, err = jetstream.NewStates(js, m).Put(ctx, run.ID(), 0, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{run.Doc.RunID, strings.ToUpper(run.Doc.RunID)} {
		if task, _, err := NewStore(js, m, nil).TaskOf(ctx, nil, name, "agent.x"); err != nil || task != "task-0001" {
			t.Errorf("%s is task %s, %v", name, task, err)
		}
	}
	asked, err := nc.SubscribeSync("$JS.API.STREAM.INFO.KV_aee_state")
	if err != nil {
		t.Fatal(err)
	}
	id := "0d3c8a52-4c6b-4f0e-9a43-3a0f1f6f7a10"
	task, agent, err := NewStore(js, m, nil).TaskOf(ctx, nil, id, "agent.x")
	if err != nil || task != id || agent != "agent.x" {
		t.Errorf("%s of %s, %v", task, agent, err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	n, _, err := asked.Pending()
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if msg, err := asked.NextMsg(time.Minute); err != nil {
			t.Fatal(err)
		} else if bytes.Contains(msg.Data, []byte("subjects_filter")) {
			t.Errorf("a list was asked for: %s", msg.Data)
		}
	}
}

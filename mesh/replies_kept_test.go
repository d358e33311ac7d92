package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// A reply is kept as long as the record of its run, whatever others store: AEE_REPLY, which
// drops the oldest message when it is full, has none of it. Finding D8 of the reliability
// review: replies were gone after minutes, and a completed run had "no result yet".
func TestRepliesAreNotDroppedBySize(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	stream, err := r.js(r.nc).Stream(ctxFor(t), jetstream.StreamReply)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = 1 << 10
	if _, err := r.js(r.nc).UpdateStream(ctxFor(t), cfg); err != nil {
		t.Fatal(err)
	}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Concurrency: 8, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if strings.Contains(string(task.Envelope.Payload), "in steps") {
			if err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil); err != nil {
				return nil, err
			}
		}
		return task.Envelope.Payload, nil
	})})
	client := r.client()
	var tasks []*envelope.Envelope
	for i := range 20 {
		how := []string{"at once", "in steps"}[i%2]
		tasks = append(tasks, newTask(reviewer, "code.review", fmt.Sprintf(`{"n":%d,"done":%q,"pad":%q}`, i, how, strings.Repeat("x", 300))))
		r.submit(client, tasks[i])
	}
	for range 2 { // as they come, and when all are stored
		for _, task := range tasks {
			if reply, err := r.result(client, task); err != nil || string(reply.Payload) != string(task.Payload) {
				t.Fatalf("%v, %v", reply, err)
			}
		}
	}
}

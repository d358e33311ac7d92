package mesh_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// All that is stored of a run names the run's message in a header: an ended run is removed when
// that message is gone, and a run that left its reply alone is known by it.
func TestAllThatIsStoredOfARunNamesItsMessage(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"documents and a reply": true, "the reply alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.KeepTasks = keep }), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				if keep {
					if err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil); err != nil {
						return nil, err
					}
				}
				return json.RawMessage(`{}`), nil
			})})
			r.aged()
			client, task := r.client(), newTask(reviewer, "code.review", `{}`)
			seq := r.submit(client, task).Seq
			if _, err := r.result(client, task); err != nil {
				t.Fatal(err)
			}
			r.drainedQueue()
			stream, err := r.js(r.nc).Stream(ctxFor(t), "KV_"+jetstream.BucketState)
			if err != nil {
				t.Fatal(err)
			}
			info, err := stream.Info(ctxFor(t))
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for at := info.State.FirstSeq; at <= info.State.LastSeq; at++ {
				msg, err := stream.GetMsg(ctxFor(t), at)
				if err != nil || !strings.HasSuffix(msg.Subject, runOf(task).Run) {
					continue
				}
				found++
				if work := msg.Header.Get(jetstream.HeaderWork); work != strconv.FormatUint(seq, 10) {
					t.Errorf("a message on %s names the message %q, not %d", msg.Subject, work, seq)
				}
			}
			if found == 0 || keep && found < 3 {
				t.Errorf("%d messages of the run", found)
			}
		})
	}
}

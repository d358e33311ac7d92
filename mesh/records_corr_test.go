package mesh_test

import (
	"fmt"
	"slices"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// Each document that a worker writes of its run names the corr in a header, the claim too:
// so that `tree` finds the runs of a corr without reading all documents.
func TestDocumentsNameTheirCorr(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client := r.client()
	r.serve(r.lane(mesh.Config{}, func(d *mesh.Durable) { d.KeepTasks = true }), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	task.Corr = "a corr\nof \"any\" text"
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	r.drainedQueue()
	stream, err := r.js(r.nc).Stream(t.Context(), "KV_"+jetstream.BucketState)
	if err != nil {
		t.Fatal(err)
	}
	info := stream.CachedInfo()
	var got []string
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq, natsjs.WithGetMsgSubject("$KV.aee_state.>"))
		if err != nil {
			break // the rest are replies
		}
		seq = msg.Sequence
		got = append(got, fmt.Sprint(msg.Header.Get(jetstream.HeaderStatus), " ", msg.Header.Get(jetstream.HeaderCorr)))
	}
	digest := jetstream.CorrDigest(task.Corr)
	if !slices.Equal(slices.Compact(got), []string{"running " + digest, "completed " + digest}) {
		t.Errorf("the headers of the documents: %q, want %s in all", got, digest)
	}
}

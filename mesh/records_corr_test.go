package mesh_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/intents"
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
	got := slices.Compact(r.documentHeaders())
	digest := jetstream.CorrDigest(task.Corr)
	if !slices.Equal(got, []string{"running " + digest, "completed " + digest}) {
		t.Errorf("the headers of the documents: %q, want %s in all", got, digest)
	}
}

// So does a document that a worker writes of a run that no worker owns.
func TestDocumentsOfStoredRunsNameTheirCorr(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s})
	client, task := r.client(), newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", s.entered)
	r.command(client, intents.PauseTask{Target: target(task)})
	s.next <- struct{}{}
	r.drainedQueue()
	r.command(client, intents.ResumeTask{Target: target(task)})
	within(t, "the task again", s.entered)
	for _, header := range r.documentHeaders() {
		if !strings.HasSuffix(header, " "+jetstream.CorrDigest(task.Corr)) {
			t.Errorf("the headers of a document: %q", header)
		}
	}
	s.next <- struct{}{}
}

// documentHeaders are the status and the corr in the headers of all documents that are stored.
func (r *durableRig) documentHeaders() (got []string) {
	r.t.Helper()
	stream, err := r.js(r.nc).Stream(r.t.Context(), "KV_"+jetstream.BucketState)
	if err != nil {
		r.t.Fatal(err)
	}
	info := stream.CachedInfo()
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		msg, err := stream.GetMsg(r.t.Context(), seq, natsjs.WithGetMsgSubject("$KV.aee_state.>"))
		if err != nil {
			break // the rest are replies
		}
		seq = msg.Sequence
		got = append(got, fmt.Sprint(msg.Header.Get(jetstream.HeaderStatus), " ", msg.Header.Get(jetstream.HeaderCorr)))
	}
	return got
}

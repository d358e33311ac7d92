package jetstream_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// A user who may only read cannot ask the leader of a replicated bucket. The server's
// many refusals at the same time are all heard, and none is caused twice.
func TestAViewerReadsManyRunsOfAReplicatedMesh(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "viewer", Password: "p", Permissions: &natsd.Permissions{ // without STREAM.INFO the bucket counts as replicated
			Publish:   natsd.Subjects{Allow: []string{"$JS.API.DIRECT.GET.KV_aee_state", "$JS.API.DIRECT.GET.KV_aee_state.>"}},
			Subscribe: natsd.Subjects{Allow: []string{"_INBOX.>"}},
		}},
	}})
	js := connect(t, srv, nats.UserInfo("all", "p"))
	apply(t, js, jetstream.Options{Only: states})
	all := jetstream.NewStates(js, subject.Map{})
	var ids []state.ID
	for i := range 64 {
		id := state.ID{Entity: fmt.Sprintf("agent.x%d", i/2), Run: fmt.Sprintf("r%d", i)}
		if _, err := all.Put(testContext(t), id, 0, []byte("x")); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	var refusals atomic.Int32
	own := connect(t, srv, nats.UserInfo("viewer", "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { refusals.Add(1) }))
	viewer := jetstream.NewStates(own, subject.Map{})
	if n := jetstream.ReadAll(testContext(t), viewer, ids); n != len(ids) {
		t.Errorf("%d runs are listed, not %d", n, len(ids))
	}
	if n := refusals.Load(); n > 64 { // 32 of STREAM.INFO, and one for each entity
		t.Errorf("a list of 64 runs of 32 entities causes %d refusals", n)
	}
	viewer = jetstream.NewStates(own, subject.Map{})
	read := func() {
		t.Helper()
		var wait sync.WaitGroup
		for _, id := range ids {
			wait.Go(func() {
				if r, err := viewer.Get(testContext(t), id); err != nil || string(r.Data) != "x" {
					t.Errorf("%s: %q, %v", id.Run, r.Data, err)
				}
			})
		}
		wait.Wait()
		if err := own.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	refusals.Store(0)
	read()
	before := refusals.Load()
	if read(); before == 0 || refusals.Load() != before {
		t.Errorf("%d refusals, and %d later", before, refusals.Load()-before)
	}
}

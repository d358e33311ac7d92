package mesh_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh"
)

// The worker of an asynchronous agent moves live tasks to the work queue. A signed live task
// that was captured, and that another user puts there, is refused: the mesh's replay window
// has no worker that moved it.
func TestACapturedLiveTaskIsNotDoneFromTheQueueOfAnAsynchronousAgent(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	adas := k.signer("ada", sign.Ed25519, ada)
	r := newDurableRig(t)
	v := k.verifier()
	v.Mode = sign.Required
	var runs atomic.Int32
	node := r.lane(mesh.Config{Verifier: v, Seen: seen.New(r.js(r.nc), r.m, 10*time.Minute)})
	r.serve(node, mesh.Agent{Async: true, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		runs.Add(1)
		return json.RawMessage(`{}`), nil
	})})
	captured := signed(t, adas, newTask(reviewer, "code.review", `{"n":1}`))
	r.queue("normal", captured)
	_, err := r.result(r.client(), captured)
	if codeOf(err) != envelope.CodeRequires || !strings.Contains(err.Error(), "requires.lane") {
		t.Errorf("a captured task: %v", err)
	}
	r.drainedQueue()
	equal(t, "runs of the captured task", int(runs.Load()), 0)
	equal(t, "dead letters", len(r.letters()), 1)

	// An operator's permit lets one in.
	permitted := signed(t, adas, newTask(reviewer, "code.review", `{"n":3}`))
	seq, err := r.dead().Put(ctxFor(t), jetstream.DeadLetter{
		Entity: reviewer, TaskID: permitted.ID, Code: "E_INTERNAL", Subject: "aee.work.normal." + reviewer, Data: encode(t, permitted),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.dead().Retry(ctxFor(t), seq); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is done by the permit", func() bool { return runs.Load() == 1 })
	r.drainedQueue()

	// A task that the worker moved is done once, though it comes again.
	moved := signed(t, adas, newTask(reviewer, "code.review", `{"n":2}`))
	if reply := parse(t, r.requestRaw(reviewer, encode(t, moved), nil).Data); reply.Type != envelope.TypeResult {
		t.Fatalf("the live task: %s", reply.Payload)
	}
	if _, err := r.result(r.client(), moved); err != nil {
		t.Error(err)
	}
	r.again(moved, nil)
	equal(t, "runs", int(runs.Load()), 2)
	equal(t, "dead letters after that", len(r.letters()), 1)
}

// forgetful is a replay window that keeps nothing: that of a worker in a mesh without one.
type forgetful struct{}

func (forgetful) Claim(_ context.Context, _, _, by string) (string, error) { return by, nil }

// A task that a worker has moved is done also where the replay window cannot tell so: it has
// forgotten the task, or keeps nothing.
func TestAJobIsDoneWhereTheReplayWindowCannotTellOfIt(t *testing.T) {
	t.Parallel()
	for name, window := range map[string]time.Duration{"forgotten": time.Nanosecond, "none": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeys(t)
			r := newDurableRig(t)
			v := k.verifier()
			v.Mode = sign.Required
			cfg := mesh.Config{Verifier: v, ReplayWindow: window, Seen: seen.New(r.js(r.nc), r.m, 10*time.Minute)}
			if name == "none" {
				cfg.Seen = forgetful{}
			}
			r.serve(r.lane(cfg), mesh.Agent{Async: true, Handler: echo})
			job := signed(t, k.signer("ada", sign.Ed25519, ada), newTask(reviewer, "code.review", `{"n":1}`))
			r.queue("normal", job)
			if reply, err := r.result(r.client(), job); err != nil || string(reply.Payload) != `{"n":1}` {
				t.Errorf("%v, %v", reply, err)
			}
		})
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh"
)

// required serves an agent that takes signed tasks only, on both lanes and with the
// mesh's replay window, and counts what it does.
func (r *durableRig) required(k *keys) (runs *atomic.Int32) {
	runs = new(atomic.Int32)
	v := k.verifier()
	v.Mode = sign.Required
	node := r.lane(mesh.Config{Verifier: v, Seen: seen.New(r.js(r.nc), r.m, 10*time.Minute)})
	r.serve(node, mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		runs.Add(1)
		return json.RawMessage(`{"secret":true}`), nil
	})})
	return runs
}

// Finding 2 of the security review: a header that any user may write must not turn off the age
// check. An old signed task runs again only with an operator's permit.
func TestAnOldTaskIsTriedAgainByPermitOnly(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	adas := k.signer("ada", sign.Ed25519, ada)
	r := newDurableRig(t)
	runs := r.required(k)
	aged := func() *envelope.Envelope {
		e := newTask(reviewer, "code.review", `{}`)
		e.TS = time.Now().Add(-72 * time.Hour).UTC().Format(time.RFC3339)
		return signed(t, adas, durably(t, e))
	}
	for _, header := range []nats.Header{nil, {jetstream.HeaderRetry: {"1"}}} {
		old := aged()
		if err := r.nc.PublishMsg(&nats.Msg{Subject: "aee.work.normal." + reviewer, Header: header, Data: encode(t, old)}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.result(r.client(), old); codeOf(err) != envelope.CodeStale {
			t.Errorf("with %v: %v", header, err)
		}
		r.drainedQueue()
	}
	equal(t, "runs", int(runs.Load()), 0)

	lost := aged()
	seq, err := r.dead().Put(ctxFor(t), jetstream.DeadLetter{
		Entity: reviewer, TaskID: lost.ID, Code: "E_INTERNAL", Subject: "aee.work.normal." + reviewer, Data: encode(t, lost),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.dead().Retry(ctxFor(t), seq); err != nil {
		t.Fatal(err)
	}
	if _, err := r.result(r.client(), lost); err != nil {
		t.Errorf("with a permit: %v", err)
	}
	equal(t, "runs", int(runs.Load()), 1)
}

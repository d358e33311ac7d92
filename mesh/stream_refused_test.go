package mesh_test

import (
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// Who asked for a stream gets the empty message at its end, whatever the task is
// refused for: "nats req --wait-for-empty" waits for it.
func TestARefusedStreamEndsWithTheEmptyMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(streamFive), RefuseUnknown: true, Intents: reviewIntents(t)})
	stale := requiring(newTask(reviewer, "code.review", `{"path":"a"}`), `{"stream":true,"timeout_ms":0}`)
	stale.TS = "2020-01-01T00:00:00Z"
	foreign := requiring(newTask(reviewer, "code.review", `{"path":"a"}`), `{"stream":true}`)
	foreign.To = "agent.other"
	for name, task := range map[string]*envelope.Envelope{
		"human approval": requiring(newTask(reviewer, "code.review", `{"path":"a"}`), `{"stream":true,"human_approval":true}`),
		"illegible":      requiring(newTask(reviewer, "code.review", `{"path":"a"}`), `{"timeout_ms":0,"stream":true}`),
		"handoff":        requiring(newTask(reviewer, "code.review", `{"path":"a"}`), `{"stream":true,"handoff":5}`),
		"not before":     requiring(newTask(reviewer, "code.review", `{"path":"a"}`), `{"stream":true,"not_before":"2999-01-01T00:00:00Z"}`),
		"tree":           requiring(newTask(reviewer, "code.review", `{"path":"a"}`), `{"stream":true,"tree":5}`),
		"unknown intent": requiring(newTask(reviewer, "code.other", `{}`), `{"stream":true}`),
		"schema":         requiring(newTask(reviewer, "code.review", `{"path":5}`), `{"stream":true}`),
		"stale":          stale,
		"foreign":        foreign,
	} {
		inbox := r.nc.NewInbox()
		replies := r.listen(inbox)
		raw, err := task.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.nc.PublishRequest(reviewer, inbox, raw); err != nil {
			t.Fatal(err)
		}
		first := within(t, name, replies)
		if e := parse(t, first.Data); e.Type != envelope.TypeError || first.Header.Get("Aee-Stream-Count") != "0" {
			t.Errorf("%s: %s, header %v", name, first.Data, first.Header)
		}
		select {
		case last := <-replies:
			if len(last.Data) > 0 || len(last.Header) > 0 {
				t.Errorf("%s: last %q, header %v", name, last.Data, last.Header)
			}
		case <-time.After(patience):
			t.Errorf("%s: no empty message at the end", name)
		}
	}
}

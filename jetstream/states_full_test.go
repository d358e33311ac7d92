package jetstream_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// The leader of a replicated stream refuses every message if the account or the server is full, also
// the questions for its last sequence. Runs are read, and a sweep makes room, all the same.
func TestRunsAreReadAndSweptInAFullAccount(t *testing.T) {
	t.Parallel()
	for code, description := range map[int]string{10002: "resource limits exceeded for account", 10023: "insufficient resources"} {
		srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
			{Name: "admin", Password: "a"},
			{Name: "worker", Password: "w", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.STREAM.MSG.GET.>"}}}},
		}})
		js := connect(t, srv, nats.UserInfo("admin", "a"))
		apply(t, js, jetstream.Options{Only: states})
		s, id := jetstream.NewStates(js, subject.Map{}), state.ID{Entity: "agent.x", Run: "r"}
		worker := jetstream.NewStates(connect(t, srv, nats.UserInfo("worker", "w")), subject.Map{})
		for _, run := range []string{"r", "gone"} {
			putRun(t, s, state.ID{Entity: "agent.x", Run: run}, 0, make([]byte, jetstream.MaxInline+1), jetstream.Note{})
		}
		stream, err := js.Stream(testContext(t), "KV_aee_state")
		if err == nil {
			err = stream.Purge(testContext(t), natsjs.WithPurgeSubject("$KV.aee_state."+jetstream.StateKey(state.ID{Entity: "agent.x", Run: "gone"})))
		}
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		cfg.Subjects = []string{"elsewhere"} // the answers below are those of the leader
		if _, err := js.UpdateStream(testContext(t), cfg); err != nil {
			t.Fatal(err)
		}
		for _, subj := range []string{"$KV.aee_state.>", "$KV.aee_reply.>"} {
			if _, err := js.Conn().Subscribe(subj, func(m *nats.Msg) {
				_ = m.Respond(fmt.Appendf(nil, `{"stream":"KV_aee_state","seq":0,"error":{"code":503,"err_code":%d,"description":%q}}`, code, description))
			}); err != nil {
				t.Fatal(err)
			}
		}
		jetstream.Replicated(s)
		jetstream.Replicated(worker)
		for who, s := range map[string]*jetstream.States{"an operator": s, "a worker": worker} {
			if r, err := s.Get(testContext(t), id); err != nil || len(r.Data) != jetstream.MaxInline+1 {
				t.Errorf("%d, %s: %d bytes, %v", code, who, len(r.Data), err)
			}
		}
		if swept, err := worker.Sweep(testContext(t), atOnce); err == nil || swept.Objects != 0 { // a replica that lags behind may have answered
			t.Errorf("%d, a worker: swept %+v, %v", code, swept, err)
		}
		if swept, err := s.Sweep(testContext(t), atOnce); err != nil || swept.Objects != 1 {
			t.Errorf("%d: swept %+v, %v", code, swept, err)
		}
		if names := objectNames(t, js); len(names) != 1 {
			t.Errorf("%d: left are %q", code, names)
		}
	}
}

package jetstream_test

import (
	"errors"
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

// Whether a dead letter may be retried is found out in a full account, too, unless a replica that lags
// behind might have answered. What an agent has learned is read by all.
func TestPermitsAndPoolsAreReadInAFullAccount(t *testing.T) {
	t.Parallel()
	ctx, srv := testContext(t), natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "admin", Password: "a"},
		{Name: "worker", Password: "w", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.STREAM.MSG.GET.>"}}}},
	}})
	js := connect(t, srv, nats.UserInfo("admin", "a"))
	workers := connect(t, srv, nats.UserInfo("worker", "w"))
	apply(t, js, jetstream.Options{})
	d, worker := jetstream.NewDead(js, subject.Map{}), jetstream.NewDead(workers, subject.Map{})
	seq := bury(t, d, jetstream.DeadLetter{Entity: "agent.x", TaskID: "t1", Code: "exhausted", Subject: "aee.work.high.agent.x", Work: 1, Data: []byte("{}")})
	if _, err := d.Retry(ctx, seq); err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.NewPools(js, subject.Map{}).Swap(ctx, "agent.x", "travel", []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
	for name, subjects := range map[string]string{"AEE_DEAD": "aee.dead.>", "KV_aee_sdsi": "$KV.aee_sdsi.>"} {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		cfg.Subjects = []string{"elsewhere." + name} // the answers below are those of the leader
		if _, err := js.UpdateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Conn().Subscribe(subjects, func(m *nats.Msg) {
			_ = m.Respond(fmt.Appendf(nil, `{"stream":%q,"seq":0,"error":{"code":503,"err_code":10002,"description":"resource limits exceeded for account"}}`, name))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if yes, err := d.Retrying(ctx, "agent.x", fmt.Sprint(seq), []byte("{}")); err != nil || !yes {
		t.Errorf("an operator: %t, %v", yes, err)
	}
	if yes, err := worker.Retrying(ctx, "agent.x", fmt.Sprint(seq), []byte("{}")); !errors.Is(err, jetstream.ErrAccountFull) || yes {
		t.Errorf("a worker that may not ask: %t, %v", yes, err)
	}
	for who, js := range map[string]natsjs.JetStream{"an operator": js, "a worker": workers} {
		if pool, _, err := jetstream.NewPools(js, subject.Map{}).Get(ctx, "agent.x", "travel"); err != nil || string(pool) != "{}" {
			t.Errorf("%s reads the pool %s, %v", who, pool, err)
		}
	}
}

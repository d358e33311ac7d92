package jetstream_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// A marker of a deletion expires after an hour. A run whose revisions cannot be deleted has none:
// it would be gone for an hour, and then it would be back.
func TestADeletionThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "some", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.STREAM.PURGE.>"}}}},
	}})
	js := connect(t, srv, nats.UserInfo("all", "p"))
	apply(t, js, jetstream.Options{Only: states})
	ctx, id := testContext(t), state.ID{Entity: "agent.x", Run: "r"}
	s := jetstream.NewStates(connect(t, srv, nats.UserInfo("some", "p")), subject.Map{})
	rev := putRun(t, s, id, 0, []byte("x"), jetstream.Note{})
	if err := s.Delete(ctx, id); !errors.Is(err, jetstream.ErrDenied) {
		t.Errorf("delete: %v", err)
	}
	if r, err := s.Get(ctx, id); err != nil || r.Revision != rev {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}

// The message of a deletion may wait in a connection until the run is there again.
func TestALateDeletionDeletesNoLaterRun(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, id := testContext(t), state.ID{Entity: "agent.x", Run: "r"}
	putRun(t, s, id, 0, []byte("x"), jetstream.Note{})
	var late *nats.Msg
	if err := jetstream.NewStates(keeps{js, &late}, subject.Map{}).Delete(ctx, id); !errors.Is(err, state.ErrUncertain) {
		t.Errorf("delete: %v", err)
	}
	if err := s.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	rev := putRun(t, s, id, 0, []byte("y"), jetstream.Note{})
	if _, err := js.PublishMsg(ctx, late); err == nil {
		t.Error("the late deletion is stored")
	}
	if r, err := s.Get(ctx, id); err != nil || r.Revision != rev {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}

// keeps keeps the last message that is published, and does not send it.
type keeps struct {
	natsjs.JetStream
	last **nats.Msg
}

func (k keeps) PublishMsg(_ context.Context, m *nats.Msg, _ ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	*k.last = m
	return nil, context.DeadlineExceeded
}

// Any worker may write a record of its own entity that refers to another entity's object. The
// deletion of that record leaves the object.
func TestADeletionSparesObjectsOfOtherRuns(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	ctx, id, liar := testContext(t), state.ID{Entity: "agent.x", Run: "r"}, state.ID{Entity: "agent.y", Run: "r"}
	data := make([]byte, 300<<10)
	rev := putRun(t, s, id, 0, data, jetstream.Note{Status: "running"})
	msg, err := jetstream.LastOn(ctx, js, "KV_aee_state", "$KV.aee_state.agent.x.r")
	if err != nil {
		t.Fatal(err)
	}
	for name, remove := range map[string]func(at uint64) error{
		"deleted": func(uint64) error { return s.Delete(ctx, liar) },
		"swept":   func(at uint64) error { return jetstream.PurgeRun(ctx, s, liar, at) },
	} {
		at := putRun(t, s, liar, 0, data, jetstream.Note{Status: "failed", Work: 1})
		header := nats.Header{jetstream.HeaderObject: msg.Header[jetstream.HeaderObject], jetstream.HeaderStatus: {"failed"}}
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "$KV.aee_state.agent.y.r", Data: []byte("{}"), Header: header}); err != nil {
			t.Fatal(err)
		}
		if err := remove(at + 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r, err := s.Get(ctx, id); err != nil || r.Revision != rev || len(r.Data) != len(data) {
			t.Fatalf("%s: %d bytes, %v", name, len(r.Data), err)
		}
		if names := objectNames(t, js); len(names) != 1 {
			t.Errorf("%s: left are %q", name, names)
		}
	}
}

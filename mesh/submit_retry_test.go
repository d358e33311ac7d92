package mesh_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// noStreams is a mesh without streams: a node of a sender who may not ask whether they are missing,
// one of an operator, and the operator's connection.
func noStreams(t *testing.T) (sender, operator *mesh.Node, nc *nats.Conn) {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "sender", Password: "s", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.STREAM.INFO.>"}}}},
		{Name: "operator", Password: "o"},
	}})
	node := func(user string) (*mesh.Node, *nats.Conn) {
		r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo(user, user[:1]))}}
		return r.nodeOn(r.nc, mesh.Config{Durable: r.durableOver(r.js(r.nc))}), r.nc
	}
	sender, _ = node("sender")
	operator, nc = node("operator")
	return sender, operator, nc
}

// No stream answers for a while, as in a cluster that elects a leader: the task is stored
// when one does, once.
func TestASubmissionWaitsUntilAStreamAnswers(t *testing.T) {
	t.Parallel()
	sender, _, nc := noStreams(t)
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	task := newTask(reviewer, "code.review", `{}`)
	retries := 0
	receipt, err := sender.Submit(ctxFor(t), task, mesh.SubmitOptions{OnRetry: func(_ time.Duration, why error) {
		if !errors.Is(why, jetstream.ErrUnavailable) {
			t.Errorf("retry after %v", why)
		}
		if retries++; retries == 2 {
			if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
				t.Fatal(err)
			}
		}
	}})
	if err != nil || receipt.TaskID != task.ID || receipt.Duplicate || retries != 2 {
		t.Fatalf("%+v, %v, %d retries", receipt, err, retries)
	}
	stream, err := js.Stream(ctxFor(t), jetstream.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "stored tasks", stream.CachedInfo().State.Msgs, uint64(1))
}

// A submission is not retried if the server says that the stream is missing, or when the task's
// time or that of the caller is over.
func TestASubmissionIsNotRetriedInVain(t *testing.T) {
	t.Parallel()
	sender, operator, _ := noStreams(t)
	vain := mesh.SubmitOptions{OnRetry: func(time.Duration, error) { t.Error("it is retried") }}
	if _, err := operator.Submit(ctxFor(t), newTask(reviewer, "code.review", `{}`), vain); !errors.Is(err, jetstream.ErrUnavailable) {
		t.Errorf("without a stream: %v", err)
	}
	short := newTask(reviewer, "code.review", `{}`)
	short.Requires = []byte(`{"timeout_ms":1}`)
	if _, err := sender.Submit(ctxFor(t), short, vain); !errors.Is(err, jetstream.ErrUnavailable) {
		t.Errorf("a task whose time is over: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	retries := 0
	_, err := sender.Submit(ctx, newTask(reviewer, "code.review", `{}`), mesh.SubmitOptions{OnRetry: func(time.Duration, error) {
		retries++
		cancel()
	}})
	if !errors.Is(err, jetstream.ErrUnavailable) || retries != 1 {
		t.Errorf("a caller that has gone: %v, %d retries", err, retries)
	}
}

// The task, or its acknowledgement, is lost, as where servers are restarted: the sender does not
// wait for it until its own time is over.
func TestASubmissionThatIsLostIsSentAgain(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv)}}
	js := r.js(r.nc)
	durable := r.durableOver(js)
	durable.Queue = jetstream.NewQueue(js, r.m) // as a command opens it, without Gather, which bounds each try
	operator, nc := r.nodeOn(r.nc, mesh.Config{Durable: durable}), r.nc
	applied := make(chan error, 1)
	lost, err := nc.Subscribe("aee.work.>", func(*nats.Msg) { // takes the first try in the place of a stream
		_, err := jetstream.Apply(t.Context(), js, jetstream.Options{})
		applied <- err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := lost.AutoUnsubscribe(1); err != nil {
		t.Fatal(err)
	}
	task := newTask(reviewer, "code.review", `{}`)
	if receipt, err := operator.Submit(ctxFor(t), task, mesh.SubmitOptions{}); err != nil || receipt.TaskID != task.ID {
		t.Errorf("%+v, %v", receipt, err)
	}
	if err := natstest.Within(t, "the first try", applied); err != nil {
		t.Fatal(err)
	}
}

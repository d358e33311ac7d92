package await

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

const (
	entity   = "agent.only"
	patience = 30 * time.Second
)

// watched is a server, a sender, and the checks that the sender makes.
type watched struct {
	t      *testing.T
	url    string
	app    *session.App
	sender *mesh.Node
	looks  chan *nats.Msg
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{})
	w := &watched{t: t, url: srv.ClientURL(), looks: make(chan *nats.Msg, 1000)}
	var out natstest.Buffer
	w.app = &session.App{Term: term.New(&out, &out, func(string) string { return "" })}
	nc := natstest.Conn(t, srv)
	if _, err := nc.ChanSubscribe("$SRV.INFO."+subject.ServiceName(entity), w.looks); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	w.sender = w.node("human.ada")
	return w
}

func (w *watched) node(as string) *mesh.Node {
	w.t.Helper()
	nc, err := nats.Connect(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	node, err := mesh.New(nc, mesh.Config{Entity: as, Drain: time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	return node
}

// serve starts a worker, and returns what stops it.
func (w *watched) serve(as string, handle mesh.HandlerFunc) (stop func()) {
	w.t.Helper()
	node := w.node(as)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Serve(ctx, mesh.Agent{Entity: as, Handler: handle}) }()
	stop = func() {
		cancel()
		<-done
		done <- nil
	}
	w.t.Cleanup(stop)
	for deadline := time.Now().Add(patience); ; {
		if _, err := w.sender.Ping(w.t.Context(), as); err == nil {
			return stop
		} else if time.Now().After(deadline) {
			w.t.Fatal(err)
		}
	}
}

// looked waits for n checks of a watch.
func (w *watched) looked(ctx context.Context, n int) {
	w.t.Helper()
	for range n {
		select {
		case <-w.looks:
		case <-ctx.Done():
			w.t.Fatal(context.Cause(ctx))
		case <-time.After(patience):
			w.t.Fatal("no check")
		}
	}
}

// checked waits for a check. There is none if the worker has named itself before, which it does after
// as long a time.
func (w *watched) checked() {
	select {
	case <-w.looks:
	case <-time.After(time.Second):
	}
}

// sends sends a task as "send" does, and returns the error.
func (w *watched) sends(opts mesh.SendOptions, look time.Duration) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	ctx, stop := watch(ctx, w.app, w.sender, entity, &opts, look)
	defer stop()
	_, err := w.sender.Send(ctx, envelope.New(envelope.TypeTask, "human.ada", entity, "test.work", json.RawMessage(`{}`)), opts)
	return err
}

// slow is a task that takes many checks.
func slow(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
	select {
	case <-time.After(time.Second):
		return json.RawMessage(`{}`), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A task that is sent again goes on at its new worker, which was not there when it was sent
// first; that the first worker is gone does not end it.
func TestATaskThatWasSentAgainOutlivesItsFirstWorker(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	stop := w.serve(entity, func(context.Context, *mesh.Task) (json.RawMessage, error) {
		w.checked()
		return nil, &envelope.Error{Code: envelope.CodeBusy, Message: "full", BackoffMS: 1000}
	})
	err := w.sends(mesh.SendOptions{Retries: 1, OnRetry: func(int, time.Duration, *envelope.Error) {
		stop()
		w.serve(entity, slow)
	}}, 50*time.Millisecond)
	if err != nil {
		t.Error(err)
	}
}

// A task that was delegated goes on at its receiver, whatever becomes of the workers of the
// first agent.
func TestADelegatedTaskOutlivesTheWorkersOfTheFirstAgent(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	replaced := make(chan struct{})
	w.serve("agent.second", func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		<-replaced
		return slow(ctx, task)
	})
	stop := w.serve(entity, func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		w.checked()
		w.checked() // so that the first check has found this worker
		defer func() { go close(replaced) }()
		return task.Delegate(ctx, mesh.Delegation{To: "agent.second"})
	})
	done := make(chan error, 1)
	go func() { done <- w.sends(mesh.SendOptions{}, 50*time.Millisecond) }()
	<-replaced
	stop()
	w.serve(entity, slow)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Each attempt is watched by itself: the workers that run when it is sent are those that may
// have it, and when all of them are gone, the wait ends.
func TestEachAttemptIsWatchedByItself(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	w := newWatched(t)
	stop := w.serve(entity, slow)
	told := 0
	opts := mesh.SendOptions{OnRetry: func(int, time.Duration, *envelope.Error) { told++ }}
	ctx, end := watch(t.Context(), w.app, w.sender, entity, &opts, 200*time.Millisecond)
	defer end()
	w.looked(ctx, 2)
	stop()
	stop = w.serve(entity, slow)
	opts.OnRetry(1, 0, nil)
	w.looked(ctx, 6)
	if ctx.Err() != nil || told != 1 {
		t.Fatalf("%v while the new worker is there; %d retries told", context.Cause(ctx), told)
	}
	stop()
	w.serve(entity, slow) // later than the attempt
	select {
	case <-ctx.Done():
	case <-time.After(patience):
	}
	if err := context.Cause(ctx); !errors.Is(err, &envelope.Error{Code: envelope.CodeUnavailable}) {
		t.Error(err)
	}
}

// A worker that has named itself is watched by the node, so the checks end.
func TestATaskWithAHolderIsNotWatchedTwice(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	stop := w.serve(entity, slow)
	opts := mesh.SendOptions{}
	ctx, end := watch(t.Context(), w.app, w.sender, entity, &opts, 50*time.Millisecond)
	defer end()
	w.looked(ctx, 2)
	opts.OnHolder()
	stop()
	for len(w.looks) > 0 {
		<-w.looks
	}
	select {
	case <-w.looks:
		t.Error("a check after the holder named itself")
	case <-ctx.Done():
		t.Error(context.Cause(ctx))
	case <-time.After(500 * time.Millisecond):
	}
}

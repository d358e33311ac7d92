package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
)

func both(t *testing.T, a mesh.Permissions, errA error, b mesh.Permissions, errB error) mesh.Permissions {
	t.Helper()
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	a.Publish, a.Subscribe = append(a.Publish, b.Publish...), append(a.Subscribe, b.Subscribe...)
	return a
}

// laneWorks exercises the durable lane between a worker and a client that have
// permissions of their own, and says what failed first.
func laneWorks(t *testing.T, worker, client mesh.Permissions, m subject.Map) error {
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "worker", Password: "w", Permissions: serverPermissions(worker)},
		{Name: "client", Password: "c", Permissions: serverPermissions(client)},
		{Name: "admin", Password: "a"},
	}})
	r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("admin", "a"))}, m: m}
	if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{Map: m}); err != nil {
		t.Fatal(err)
	}
	violations := make(chan error, 100)
	user := func(name, inbox string) *nats.Conn {
		return natstest.Conn(t, srv, nats.UserInfo(name, name[:1]), nats.CustomInboxPrefix(inbox), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case violations <- fmt.Errorf("%s: %w", name, err):
			default:
			}
		}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	ready := make(chan struct{})
	s := newStepper(t, 1)
	node := r.laneOn(user("worker", "_INBOX_worker"), mesh.Config{Prefix: m.Prefix(), Drain: time.Second}, func(d *mesh.Durable) { d.Sweep = 50 * time.Millisecond })
	go func() {
		done <- node.Serve(serving, mesh.Agent{Entity: reviewer, Concurrency: 2, MeshConcurrency: 2, Ready: func() { close(ready) },
			Retry: mesh.RetryPolicy{Max: 1, Base: time.Millisecond},
			Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				switch string(task.Envelope.Payload) {
				case `{"do":"fail"}`:
					return nil, envelope.Errorf(envelope.CodeUnavailable, "no luck")
				case `{"do":"step"}`:
					return s.Handle(ctx, task)
				case `{"do":"large"}`:
					if err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error {
						c.Mesh.Loop = json.RawMessage(`"` + strings.Repeat("x", 300<<10) + `"`)
						return nil
					}); err != nil {
						return nil, err
					}
				}
				return streamFive(ctx, task)
			})})
	}()
	n := r.laneOn(user("client", "_INBOX_client"), mesh.Config{Prefix: m.Prefix(), Entity: ada})
	perform := func(do string) (*envelope.Envelope, error) {
		task := requiring(newTask(reviewer, "code.review", fmt.Sprintf(`{"do":%q}`, do)), `{"stream":true}`)
		_, reply, err := n.Perform(ctx, task, mesh.SubmitOptions{}, mesh.ResultOptions{})
		if err != nil {
			return reply, err
		}
		return n.Result(ctx, task.To, task.ID, mesh.ResultOptions{})
	}
	work := func() error {
		select {
		case <-ready:
		case err := <-done:
			done <- err
			return fmt.Errorf("Serve: %w", err)
		}
		if _, err := perform("echo"); err != nil {
			return fmt.Errorf("a task with a stream: %w", err)
		}
		if _, err := perform("large"); err != nil {
			return fmt.Errorf("a large checkpoint: %w", err)
		}
		if _, err := perform("fail"); codeOf(err) != envelope.CodeUnavailable {
			return fmt.Errorf("a task that fails: %w", err)
		}
		task := newTask(reviewer, "code.review", `{"do":"step"}`)
		if _, err := n.Submit(ctx, task, mesh.SubmitOptions{After: time.Second}); err != nil {
			return fmt.Errorf("schedule: %w", err)
		}
		select {
		case <-s.entered:
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, cmd := range []intents.Command{intents.PauseTask{Target: target(task)}, intents.ResumeTask{Target: target(task)}} {
			if _, err := n.Command(ctx, reviewer, cmd); err != nil {
				return fmt.Errorf("%T: %w", cmd, err)
			}
			if _, pause := cmd.(intents.PauseTask); pause {
				s.next <- struct{}{}
				<-s.outcome
				for r.queued2(jetstream.StreamWork+m.Suffix()) != 0 && ctx.Err() == nil {
				}
			}
		}
		_, err := n.Result(ctx, reviewer, task.ID, mesh.ResultOptions{Follow: true})
		return err
	}
	result := make(chan error, 1)
	go func() { result <- work() }()
	var err error
	select {
	case err = <-result:
	case err = <-violations:
		cancel()
		<-result
	}
	stop()
	within(t, "Serve", done)
	if err == nil {
		select {
		case err = <-violations:
		default:
		}
	}
	return err
}

func (r *durableRig) queued2(stream string) uint64 {
	s, err := r.js(r.nc).Stream(r.t.Context(), stream)
	if err != nil {
		return 0
	}
	return s.CachedInfo().State.Msgs
}

func TestPermissionsForTheDurableLaneSuffice(t *testing.T) {
	t.Parallel()
	m, err := subject.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	live, errA := mesh.WorkerPermissions(m, reviewer, time.Hour)
	lane, errB := mesh.DurableWorkerPermissions(m, reviewer, "_INBOX_worker", true)
	worker := both(t, live, errA, lane, errB)
	sender, errA := mesh.ClientPermissions(m, "_INBOX_client", reviewer)
	submitter, errB := mesh.DurableClientPermissions(m, reviewer)
	client := both(t, sender, errA, submitter, errB)
	if err := laneWorks(t, worker, client, m); err != nil {
		t.Fatal(err)
	}
}

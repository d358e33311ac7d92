package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

func serverPermissions(p perms.Permissions) *natsd.Permissions {
	return &natsd.Permissions{
		Publish:   natsd.Subjects{Allow: append([]string{}, p.Publish...)},
		Subscribe: natsd.Subjects{Allow: append([]string{}, p.Subscribe...)},
	}
}

// workerWorks exercises everything that a worker does under permissions of
// its own, from a client that may do everything, and says what failed first.
func workerWorks(t *testing.T, p perms.Permissions) error {
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{
		{Name: "worker", Password: "w", Permissions: serverPermissions(p)}, {Name: "admin", Password: "a"},
	}})
	admin := natstest.Conn(t, srv, nats.UserInfo("admin", "a"))
	var violations = make(chan error, 100)
	nc := natstest.Conn(t, srv, nats.UserInfo("worker", "w"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case violations <- err:
		default:
		}
	}))
	r := &rig{t, srv, admin}
	events := r.listen("acme.bus.>")
	inbox := r.listen("acme.human.ada")
	g := newGate(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	node := r.nodeOn(nc, mesh.Config{Prefix: "acme", Heartbeat: -1, Drain: time.Second})
	go func() {
		done <- node.Serve(ctx, mesh.Agent{Entity: reviewer, Concurrency: 2, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			if string(task.Envelope.Payload) == `{"wait":true}` {
				g.entered <- task
				<-ctx.Done()
				return nil, ctx.Err()
			}
			task.PublishStep(intents.RunRouted, intents.StepEvent{Alias: "a"})
			return streamFive(ctx, task)
		})})
	}()
	defer func() {
		cancel()
		within(t, "Serve", done)
	}()
	heard := func(ctx context.Context, subject, intent string) error {
		for {
			select {
			case msg := <-events:
				if e := parse(t, msg.Data); msg.Subject == subject && e.Intent == intent {
					return nil
				}
			case err := <-violations:
				return err
			case err := <-done:
				done <- err
				return fmt.Errorf("Serve: %v", err)
			case <-ctx.Done():
				return fmt.Errorf("no %s", intent)
			}
		}
	}
	if err := heard(t.Context(), "acme.bus.mesh.agent", intents.AgentJoined); err != nil {
		return err
	}
	client := r.nodeOn(admin, mesh.Config{Prefix: "acme"})
	step := func(what string, f func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		result := make(chan error, 1)
		go func() { result <- f(ctx) }()
		select {
		case err := <-result:
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		case err := <-violations:
			cancel()
			<-result
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	request := func(ctx context.Context, subject string) error {
		_, err := admin.RequestWithContext(ctx, subject, nil)
		return err
	}
	id := ""
	steps := []struct {
		what string
		do   func(ctx context.Context) error
	}{
		{"task with a stream of 5", func(ctx context.Context) error {
			n := 0
			_, err := client.Send(ctx, newTask(reviewer, "code.review", `{}`), mesh.SendOptions{OnStream: func(*envelope.Envelope) error { n++; return nil }})
			if err == nil && n != 5 {
				err = fmt.Errorf("%d chunks", n)
			}
			return err
		}},
		{"ask", func(ctx context.Context) error { _, err := client.Ask(ctx, reviewer, "hi"); return err }},
		{"step of a team", func(ctx context.Context) error {
			if _, err := client.Send(ctx, newTask(reviewer, "code.review", `{}`), mesh.SendOptions{}); err != nil {
				return err
			}
			return heard(ctx, "acme.bus.mesh.run", intents.RunRouted)
		}},
		{"alert", func(ctx context.Context) error {
			bad := newTask(reviewer, "code.review", `{}`)
			bad.Sig = json.RawMessage(`"x"`)
			if _, err := client.Send(ctx, bad, mesh.SendOptions{}); codeOf(err) != envelope.CodeSigUncheckable {
				return fmt.Errorf("%v, want %s", err, envelope.CodeSigUncheckable)
			}
			return heard(ctx, "acme.bus.mesh.alert", intents.AlertRaised)
		}},
		{"cancel", func(ctx context.Context) error {
			sending, stop := context.WithCancel(ctx)
			sent := make(chan error, 1)
			go func() {
				_, err := client.Send(sending, newTask(reviewer, "code.review", `{"wait":true}`), mesh.SendOptions{})
				sent <- err
			}()
			within(t, "the task", g.entered)
			stop()
			<-sent
			return heard(ctx, "acme.bus.mesh.task", intents.TaskFailed)
		}},
		{"inbox of a person", func(ctx context.Context) error {
			admin.Publish("acme."+reviewer, encode(t, newTask(reviewer, "code.review", `{}`)))
			select {
			case <-inbox:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}},
		{"micro ping all", func(ctx context.Context) error {
			msg, err := admin.RequestWithContext(ctx, "$SRV.PING", nil)
			if err == nil {
				var v struct{ ID string }
				err = json.Unmarshal(msg.Data, &v)
				id = v.ID
			}
			return err
		}},
		{"micro info all", func(ctx context.Context) error { return request(ctx, "$SRV.INFO") }},
		{"micro stats all", func(ctx context.Context) error { return request(ctx, "$SRV.STATS") }},
		{"micro ping name", func(ctx context.Context) error { return request(ctx, "$SRV.PING.agent-reviewer") }},
		{"micro info name", func(ctx context.Context) error { return request(ctx, "$SRV.INFO.agent-reviewer") }},
		{"micro stats name", func(ctx context.Context) error { return request(ctx, "$SRV.STATS.agent-reviewer") }},
		{"micro ping id", func(ctx context.Context) error { return request(ctx, "$SRV.PING.agent-reviewer."+id) }},
		{"micro info id", func(ctx context.Context) error { return request(ctx, "$SRV.INFO.agent-reviewer."+id) }},
		{"micro stats id", func(ctx context.Context) error { return request(ctx, "$SRV.STATS.agent-reviewer."+id) }},
	}
	for _, s := range steps {
		if err := step(s.what, s.do); err != nil {
			return err
		}
	}
	// What was refused on the side the connection knows by now.
	settle(t, nc)
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	cancel()
	err := within(t, "Serve", done)
	done <- err
	if err != nil {
		return err
	}
	settle(t, admin)
	for _, msg := range drained(events) {
		if parse(t, msg.Data).Intent == intents.AgentLeft {
			return nil
		}
	}
	return errors.New("nobody heard that the agent left")
}

func TestWorkerPermissionsSufficeAndNoneIsTooMany(t *testing.T) {
	t.Parallel()
	m, err := subject.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	p, err := perms.Worker(m, reviewer)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "permissions", p, perms.Permissions{
		Publish: []string{"_INBOX.>", "_R_.>", "acme.bus.mesh.*", "acme.human.>"},
		Subscribe: []string{"acme.agent.reviewer q", "acme.aee.ask.agent.reviewer q", "acme.aee.ctl.agent.reviewer",
			"$SRV.*", "$SRV.*.agent-reviewer", "$SRV.*.agent-reviewer.*"},
	})
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		if err := workerWorks(t, p); err != nil {
			t.Error(err)
		}
	})
	fails := func(name string, p perms.Permissions) {
		t.Run("without "+name, func(t *testing.T) {
			t.Parallel()
			err := workerWorks(t, p)
			if err == nil {
				t.Error("everything works")
			} else if !errors.Is(err, nats.ErrPermissionViolation) && !strings.Contains(strings.ToLower(err.Error()), "permission") {
				t.Errorf("failed for another reason: %v", err)
			}
		})
	}
	for i, s := range p.Publish {
		if s == "_R_.>" { // for requests from other accounts: testdata/script/tenants.txtar
			continue
		}
		less := p
		less.Publish = slices.Delete(slices.Clone(p.Publish), i, i+1)
		fails("publish "+s, less)
	}
	for i, s := range p.Subscribe {
		less := p
		less.Subscribe = slices.Delete(slices.Clone(p.Subscribe), i, i+1)
		fails("subscribe "+s, less)
	}
}

func clientWorks(t *testing.T, p perms.Permissions) error {
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{
		{Name: "client", Password: "c", Permissions: serverPermissions(p)}, {Name: "admin", Password: "a"},
	}})
	r := &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("admin", "a"))}
	g := newGate(t)
	r.serve(r.node2(mesh.Config{}), mesh.Agent{Concurrency: 2, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if string(task.Envelope.Payload) == `{"wait":true}` {
			g.entered <- task
			select {
			case <-ctx.Done():
			case <-t.Context().Done(): // no user here may cancel the task: the worker must not wait for it
			}
			return nil, ctx.Err()
		}
		return streamFive(ctx, task)
	})})
	violations := make(chan error, 100)
	nc := natstest.Conn(t, srv, nats.UserInfo("client", "c"), nats.CustomInboxPrefix("_INBOX_ada"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err }))
	client := r.nodeOn(nc, mesh.Config{Entity: ada})
	pings := r.listen("$SRV.PING.agent-reviewer.*")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		result <- func() error {
			if _, err := client.Send(ctx, newTask(reviewer, "code.review", `{}`), mesh.SendOptions{}); err != nil {
				return err
			}
			if _, err := client.Send(ctx, newTask(reviewer, "code.review", `{}`), mesh.SendOptions{OnStream: func(*envelope.Envelope) error { return nil }}); err != nil {
				return err
			}
			if _, err := client.Ask(ctx, reviewer, "hi"); err != nil {
				return err
			}
			ctx, stop := context.WithCancel(ctx)
			go func() {
				<-g.entered
				select {
				case <-pings: // the worker that has the task is watched
				case <-ctx.Done():
				}
				stop()
			}()
			if _, err := client.Send(ctx, requiring(newTask(reviewer, "code.review", `{"wait":true}`), `{"timeout_ms":60000}`), mesh.SendOptions{}); codeOf(err) != envelope.CodeCancelled {
				return fmt.Errorf("%v, want %s", err, envelope.CodeCancelled)
			}
			return nc.FlushTimeout(patience)
		}()
	}()
	select {
	case err := <-violations:
		cancel()
		<-result
		return err
	case err := <-result:
		// The connection knows what was refused before it tells of it.
		if refused := nc.LastError(); errors.Is(refused, nats.ErrPermissionViolation) {
			return refused
		}
		return err
	}
}

func TestClientPermissionsSufficeAndNoneIsTooMany(t *testing.T) {
	t.Parallel()
	p, err := perms.Client(subject.Map{}, "_INBOX_ada", reviewer)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "permissions", p, perms.Permissions{
		Publish:   []string{"agent.reviewer", "aee.ask.agent.reviewer", "aee.ctl.agent.reviewer", "$SRV.PING.agent-reviewer.*"},
		Subscribe: []string{"_INBOX_ada.>"},
	})
	if err := clientWorks(t, p); err != nil {
		t.Errorf("with all: %v", err)
	}
	for i, s := range append(slices.Clone(p.Publish), p.Subscribe...) {
		t.Run("without "+s, func(t *testing.T) {
			t.Parallel()
			less := p
			if i < len(p.Publish) {
				less.Publish = slices.Delete(slices.Clone(p.Publish), i, i+1)
			} else {
				less.Subscribe = []string{"nothing"}
			}
			if err := clientWorks(t, less); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("got %v", err)
			}
		})
	}
}

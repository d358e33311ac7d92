package directory_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/orchestrate/directory"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// serve serves an agent on a connection of its own until stop ends it, or kill
// cuts it off.
func serve(t *testing.T, srv *natsd.Server, a mesh.Agent) (stop, kill func()) {
	t.Helper()
	nc := natstest.Conn(t, srv, nats.UserInfo("admin", "a"))
	node, err := mesh.New(nc, mesh.Config{Heartbeat: -1, Drain: patience})
	if err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	a.Ready = func() { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		_ = node.Serve(ctx, a) // fails for a connection that was cut
	}()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatalf("%s is not ready", a.Entity)
	}
	return cancel, nc.Close
}

// A team's directory on a real server, with the permissions that "auth perms" prints: an agent with
// the skill is killed, and the remaining one drains.
func TestADirectoryOfARealMesh(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	m := subject.Map{}
	own := perms.Registry(m, "_INBOX_team", false)
	client, err := perms.Client(m, "_INBOX_team", "agent.a", "agent.b")
	if err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "admin", Password: "a"},
		{Name: "team", Password: "t", Permissions: &natsd.Permissions{
			Publish:   natsd.Subjects{Allow: append(own.Publish, client.Publish...)},
			Subscribe: natsd.Subjects{Allow: append(own.Subscribe, client.Subscribe...)},
		}},
	}})
	admin, err := natsjs.New(natstest.Conn(t, srv, nats.UserInfo("admin", "a")))
	if err == nil {
		_, err = jetstream.Apply(t.Context(), admin, jetstream.Options{Only: []string{jetstream.BucketAgents}})
	}
	if err != nil {
		t.Fatal(err)
	}
	reg := jetstream.NewAgents(admin, m)
	register(t, reg, document(t, id, "Registered", ""), registry.Options{}, 0)

	began, release := make(chan struct{}), make(chan struct{})
	busy := mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
		close(began)
		select {
		case <-release:
		case <-ctx.Done():
		}
		return json.RawMessage(`{}`), nil
	})
	skills := map[string]string{"skills": "Go review"}
	_, killA := serve(t, srv, mesh.Agent{Entity: "agent.a", Handler: busy, Metadata: skills})
	stopB, _ := serve(t, srv, mesh.Agent{Entity: "agent.b", AgentID: other, Handler: busy, Metadata: skills})

	violations := make(chan error, 16)
	nc := natstest.Conn(t, srv, nats.UserInfo("team", "t"), nats.CustomInboxPrefix("_INBOX_team"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case violations <- err:
		default:
		}
	}))
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	node, err := mesh.New(nc, mesh.Config{Entity: "agent.team"})
	if err != nil {
		t.Fatal(err)
	}
	dir := directory.New(directory.Config{})
	dir.Use(node, jetstream.NewAgents(js, m))
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { dir.Run(ctx) })
	defer wait.Wait()
	defer cancel()
	v := dir.For(directory.Asker{Entity: "agent.team"})

	if got := find(t, v, id); got != "agent.registered "+id+" defined" {
		t.Error(got)
	}
	register(t, reg, document(t, "", "Later", ""), registry.Options{Aliases: []string{"soon"}}, 0)
	until(t, "a registration is seen", func() bool { return find(t, v, "nats://registry/soon") == "agent.later defined" })
	if got := find(t, v, other); got != "agent.b "+other {
		t.Error(got)
	}
	if one, two := find(t, v, "skill:go_review"), find(t, v, "skill:go_review"); one != "agent.a" || two != "agent.b "+other {
		t.Errorf("%s, then %s", one, two)
	}
	killA()
	until(t, "only the other one is meant", func() bool {
		return find(t, v, "skill:go_review") == "agent.b "+other && find(t, v, "skill:go_review") == "agent.b "+other
	})

	task := envelope.New(envelope.TypeTask, "human.ada", "agent.b", "test.run", json.RawMessage(`{}`))
	adminNode, err := mesh.New(admin.Conn(), mesh.Config{})
	if err != nil {
		t.Fatal(err)
	}
	wait.Go(func() {
		if _, err := adminNode.Send(t.Context(), task, mesh.SendOptions{}); err != nil {
			t.Errorf("the task of who drains: %v", err)
		}
	})
	<-began
	stopB()
	until(t, "who drains is not meant", func() bool { return strings.HasPrefix(find(t, v, "skill:go_review"), "nobody: ") })
	close(release)
	select {
	case err := <-violations:
		t.Error(err)
	default:
	}
}

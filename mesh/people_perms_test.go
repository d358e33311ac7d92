package mesh_test

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// A worker asks a person, who looks and answers, and neither may do more than
// they must.
func TestPermissionsForPeopleSuffice(t *testing.T) {
	t.Parallel()
	m, err := subject.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	live, errA := perms.Worker(m, reviewer)
	lane, errB := perms.DurableWorker(m, reviewer, "_INBOX_worker")
	asks, errC := perms.PeopleCall(m)
	worker := both(t, both(t, live, errA, lane, errB), nil, asks, errC)
	person, err := perms.Person(m, bob, "_INBOX_bob")
	if err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "worker", Password: "w", Permissions: serverPermissions(worker)},
		{Name: "bob", Password: "b", Permissions: serverPermissions(person)},
		{Name: "admin", Password: "a"},
	}})
	r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("admin", "a"))}, m: m}
	if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{Map: m, Entities: []string{reviewer}}); err != nil {
		t.Fatal(err)
	}
	user := func(name string) *nats.Conn {
		return natstest.Conn(t, srv, nats.UserInfo(name, name[:1]), nats.CustomInboxPrefix("_INBOX_"+name), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			t.Errorf("%s: %v", name, err)
		}))
	}
	r.serve(r.laneOn(user("worker"), mesh.Config{Prefix: "acme"}, fenced), mesh.Agent{Handler: asking{people: []string{bob}}})
	client := r.laneOn(natstest.Conn(t, srv, nats.UserInfo("admin", "a")), mesh.Config{Prefix: "acme", Entity: ada})
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	r.waits(task)
	node := r.laneOn(user("bob"), mesh.Config{Prefix: "acme", Entity: bob}, fenced)
	seen := make(chan string, 1)
	go func() {
		_ = node.FollowInbox(ctxFor(t), bob, func(a *mesh.PersonTask) error {
			select {
			case seen <- a.Task.ID:
			default:
			}
			return nil
		})
	}()
	ask := r.asked(node, bob)
	equal(t, "followed", within(t, "the ask", seen), ask.Task.ID)
	if err := node.AnswerPersonTask(ctxFor(t), ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"ok":true}`))); err != nil {
		t.Fatal(err)
	}
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"human.bob":"{\"ok\":true}"}` {
		t.Fatalf("result %v, %v", reply, err)
	}
}

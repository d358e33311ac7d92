package jetstream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
	"github.com/aeemesh/aeemesh/state"
)

// A worker on a leaf node uses the hub's JetStream with what is printed for that domain, and with
// nothing else. The leaf node checks the subjects as the worker names them.
func TestAWorkersPermissionsInAnotherDomainSuffice(t *testing.T) {
	t.Parallel()
	const entity, inbox = "agent.x", "_INBOX_x"
	m := subject.Map{}
	durable, err := perms.DurableWorker(m, entity, inbox)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := perms.Seen(m, entity)
	if err != nil {
		t.Fatal(err)
	}
	p := perms.Permissions{Publish: append(durable.Publish, ids.Publish...), Subscribe: durable.Subscribe}
	user := func(name string, p perms.Permissions) natsd.User {
		return natsd.User{Name: name, Password: name, Permissions: &natsd.Permissions{
			Publish: natsd.Subjects{Allow: p.Publish}, Subscribe: natsd.Subjects{Allow: p.Subscribe}}}
	}
	hub, leaf := natstest.Leaf(t, 4<<30, user("worker", p.InDomain("hub")), user("other", p))
	in := func(srv *natsd.Server, opts ...nats.Option) natsjs.JetStream {
		js, err := natsjs.NewWithDomain(natstest.Conn(t, srv, opts...), "hub")
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	admin := in(hub)
	apply(t, admin, jetstream.Options{Map: m, Entities: []string{entity}})
	js := in(leaf, nats.UserInfo("worker", "worker"), nats.CustomInboxPrefix(inbox),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// A lane that is slow to get a task asks what is in the stream, if it may.
			if !strings.Contains(err.Error(), `"$JS.hub.API.DIRECT.GET.AEE_WORK"`) {
				t.Error(err)
			}
		}))
	waitFor(t, "the link", func() bool {
		_, err := js.Conn().Request("$JS.hub.API.STREAM.INFO.KV_aee_state", nil, time.Second)
		return err == nil
	})
	s, id := jetstream.NewStates(js, m), state.ID{Entity: entity, Run: "r"}
	jetstream.Replicated(s)
	rev := putRun(t, s, id, 0, []byte("{}"), jetstream.Note{})
	rev = putRun(t, s, id, rev, []byte(`"`+strings.Repeat("x", jetstream.MaxInline)+`"`), jetstream.Note{})
	if r, err := s.Get(testContext(t), id); err != nil || r.Revision != rev {
		t.Errorf("revision %d of %d, %v", r.Revision, rev, err)
	}
	if _, err := seen.New(js, m, time.Minute).Claim(testContext(t), entity, "01JFB2R1JZKQ9V3K8W8Y9W1F2A", "by"); err != nil {
		t.Errorf("the replay window: %v", err)
	}
	held, err := slot.NewStore(js, m, time.Minute).Acquire(testContext(t), entity, 1, "by", nil)
	if err == nil {
		err = held.Release(testContext(t))
	}
	if err != nil {
		t.Errorf("a slot: %v", err)
	}
	w := startLane(t, js, m, entity, 1, jetstream.LaneOptions{})
	if _, err := jetstream.NewQueue(admin, m).Submit(testContext(t), jetstream.Submission{Entity: entity, Priority: "normal", ID: "1", Data: []byte("task")}); err != nil {
		t.Fatal(err)
	}
	if err := w.next(t).DoubleAck(testContext(t)); err != nil {
		t.Errorf("a task: %v", err)
	}
	refused := jetstream.NewStates(in(leaf, nats.UserInfo("other", "other"), nats.CustomInboxPrefix(inbox)), m)
	if _, err := refused.Put(brief(t), state.ID{Entity: entity, Run: "s"}, 0, []byte("{}")); !errors.Is(err, jetstream.ErrDenied) {
		t.Errorf("with the permissions for another domain: %v", err)
	}
}

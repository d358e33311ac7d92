package sdsi_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// A search without permission fails at once, with another error than for an agent that does not
// answer. A sender may search for the agents to which it sends.
func TestFindTellsWhatIsNotPermitted(t *testing.T) {
	t.Parallel()
	const inbox = "_INBOX.them"
	m := subject.Map{}
	sender, err := perms.Client(m, inbox, trams)
	if err != nil {
		t.Fatal(err)
	}
	look, err := perms.Look(m, false, trams)
	if err != nil {
		t.Fatal(err)
	}
	sender.Publish = append(sender.Publish, look.Publish...)
	sender.Subscribe = append(sender.Subscribe, look.Subscribe...)
	viewer := perms.Viewer(m, inbox)
	user := func(name string, p perms.Permissions) natsd.User {
		return natsd.User{Name: name, Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Allow: p.Publish}, Subscribe: natsd.Subjects{Allow: append(p.Subscribe, inbox+".>")}}}
	}
	r := &rig{TB: t, srv: natstest.Run(t, natsd.Config{Users: []natsd.User{
		user("sender", sender), user("viewer", viewer), {Name: "admin", Password: "p"},
	}})}
	node := func(name, entity string) *mesh.Node {
		n, err := mesh.New(natstest.Conn(t, r.srv, nats.UserInfo(name, "p"), nats.CustomInboxPrefix(inbox)), mesh.Config{Entity: entity, Heartbeat: -1})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	r.serveOn(func(entity string) *mesh.Node { return node("admin", entity) }, r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), sells, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	c := sdsi.NewClient(node("sender", "human.ada"))
	if offers, err := c.Find(ctx, trams, "", 10*time.Second); err != nil || len(offers) != 1 {
		t.Errorf("a sender looks for its agent: %v, %v", offers, err)
	}
	for _, scenario := range []string{"", "tram_ticket"} {
		if offers, err := c.Find(ctx, "", scenario, 100*time.Millisecond); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("a sender looks for all agents with %q: %v, %v", scenario, offers, err)
		}
	}
	c = sdsi.NewClient(node("viewer", "human.eve"))
	denied := func(what string, err error) {
		t.Helper()
		var e *envelope.Error
		if !errors.As(err, &e) || e.Code != envelope.CodeDenied || e.FromPeer() {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = c.Find(ctx, "", "", 10*time.Second)
	denied("a viewer looks for agents", err)
	_, err = c.Template(ctx, trams, "", "")
	denied("a viewer asks for a template", err)
}

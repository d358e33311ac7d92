package mesh_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// Every permission is written down, for each role: one that is wider than before is a decision,
// and does not come by chance.
func TestThePermissionsOfEachRole(t *testing.T) {
	t.Parallel()
	m, err := subject.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	const worker, other, inbox = "agent.x", "agent.y", "_INBOX.mine"
	var got bytes.Buffer
	show := func(name string, p perms.Permissions, err error) {
		fmt.Fprintf(&got, "# %s\n", name)
		for _, s := range p.Publish {
			fmt.Fprintln(&got, "publish  ", s)
		}
		for _, s := range p.Subscribe {
			fmt.Fprintln(&got, "subscribe", s)
		}
		if err != nil {
			fmt.Fprintln(&got, "error    ", err)
		}
		fmt.Fprintln(&got)
	}
	one := func(name string, p perms.Permissions) { show(name, p, nil) }
	of := func(name string) func(perms.Permissions, error) {
		return func(p perms.Permissions, err error) { show(name, p, err) }
	}
	of("worker")(perms.Worker(m, worker, inbox, "acme.inbox"))
	of("worker, durable tasks")(perms.DurableWorker(m, worker, inbox))
	of("worker that makes its consumers")(perms.Consumer(m, worker))
	of("worker, replay window")(perms.Seen(m, worker))
	of("worker, journal")(perms.Journal(m, worker))
	of("worker, templates")(perms.Templates(m, worker))
	of("worker that calls agents")(perms.Call(m, false, other))
	of("worker that calls agents, durable")(perms.Call(m, true, other))
	of("worker that calls people")(perms.PeopleCall(m))
	of("worker that is handed tasks")(perms.Takeover(m, other))
	one("registry, reading", perms.Registry(m, inbox, false))
	one("registry, writing", perms.Registry(m, inbox, true))
	one("shared keys", perms.SharedKeys(m))
	of("sender")(perms.Client(m, inbox, worker))
	of("sender of durable tasks")(perms.DurableClient(m, worker))
	of("sender of delayed tasks")(perms.Delay(m, worker))
	of("sender that looks who serves")(perms.Look(m, false, worker))
	of("sender that looks who serves, durable")(perms.Look(m, true, worker))
	of("sender with templates")(perms.TemplateEvents(m, worker))
	one("sender that replays", perms.Replay(m))
	of("person")(perms.Person(m, "human.ada", inbox))
	of("person that is an agent")(perms.Person(m, worker, inbox))
	one("viewer", perms.Viewer(m, inbox))
	one("operator", perms.Operator(m, inbox))

	const golden = "testdata/perms.txt"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, golden+" (if it is on purpose: go test ./mesh -run TestThePermissionsOfEachRole -update)", got.String(), string(want))
}

package mesh_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A member of requires that the mesh reads and cannot read is refused over both
// lanes, as its typed members are: handed_by keeps a task from going in a circle.
func TestMembersOfRequiresThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(streamFive)})
	client := r.client()
	for requires, want := range map[string]envelope.Code{
		`{"handed_by":"agent.a"}`:                               envelope.CodeRequires,
		`{"handed_by":{"agent.a":1}}`:                           envelope.CodeRequires,
		`{"handed_by":[1]}`:                                     envelope.CodeRequires,
		`{"handed_by":["a"` + strings.Repeat(`,"a"`, 64) + `]}`: envelope.CodeRequires,
		`{"handed_by":["agent.a","agent.b"]}`:                   "",
		`{"handed_by":null}`:                                    "",
		`{"context":"agent.a"}`:                                 envelope.CodeRequires,
		`{"context":{"entity":5}}`:                              envelope.CodeRequires,
		`{"context":{"entity":"a","user":"` + strings.Repeat("u", 5000) + `"}}`: envelope.CodeRequires,
		`{"context":null}`: "",
	} {
		live := requiring(newTask(reviewer, "test.live", `{}`), requires)
		if _, err := client.Send(ctxFor(t), live, mesh.SendOptions{}); codeOf(err) != want {
			t.Errorf("live, %.60s: %v, want %s", requires, err, want)
		}
		durable := requiring(newTask(reviewer, "test.durable", `{}`), requires)
		r.submit(client, durable)
		if _, err := r.result(client, durable); codeOf(err) != want {
			t.Errorf("durable, %.60s: %v, want %s", requires, err, want)
		}
	}
}

// What a stranger wrote into requires of a task for a person is read member by
// member: one that is none takes nothing from the others.
func TestAPersonIsShownWhatCanBeReadOfRequires(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	client := r.client()
	for _, c := range []struct {
		person, requires string
		want             mesh.PersonTask
	}{
		{bob, `{"answer_by":"soon","escalate_to":"human.boss","result_schema":{"required":["ok"]}}`, mesh.PersonTask{Schema: json.RawMessage(`{"required":["ok"]}`), EscalateTo: boss}},
		{cleo, `{"answer_by":5,"escalate_to":7,"result_schema":null}`, mesh.PersonTask{}},
	} {
		if err := client.Post(ctxFor(t), requiring(newTask(c.person, "test.ask", `{}`), c.requires)); err != nil {
			t.Fatal(err)
		}
		a := r.asked(client, c.person)
		equal(t, c.requires, mesh.PersonTask{Schema: a.Schema, EscalateTo: a.EscalateTo, Until: a.Until}, c.want)
	}
}

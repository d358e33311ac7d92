package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// AEE, "Privacy of Payload Contents": requires MUST NOT carry secrets. Those that are
// plain to see are not sent, in whatever way a task is.
func TestSecretsInRequiresAreNotSent(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newDurableRig(t)
	all := r.listen(">")
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		var call struct{ Requires map[string]json.RawMessage }
		if err := json.Unmarshal(task.Envelope.Payload, &call); err != nil {
			return nil, err
		}
		_, err := task.Call(ctx, mesh.Call{To: "agent.other", Key: "k", Requires: call.Requires})
		return json.RawMessage(`{}`), err
	})})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.other", Handler: echo})
	client := r.client()
	key := "ghp_" + strings.Repeat("x1Y2z3", 6) // made up
	for requires, held := range map[string]bool{
		`{"x-auth":"Bearer ` + key + `"}`:                                      true,
		`{"x-auth": {"deep":["` + key + `"]}}`:                                 true,
		`{"password":"tr0ub4dor!"}`:                                            true,
		`{"x-where":"https://ada:s3cretpw1@host/"}`:                            true,
		`{"format":"json","x-note":"the key is in the vault, under reviewer"}`: false,
		`{"timeout_ms":60000,"x-ids":["01JFB2R1JZKQ9V3K8W8Y9W1F2A","9b2f6c1e-51d0-4a6c-9d53-7f1f0a3c1b22"]}`: false,
		`{"x-hash":"sha256:45ca558e9f506ef6d7a06c08e359f56095fa96760338e6cecc9fb4e88491b2d5"}`:               false,
	} {
		payload := json.RawMessage(`{"text":"go","requires":` + requires + `}`)
		send := func() *envelope.Envelope {
			return requiring(newTask(reviewer, "code.review", string(payload)), requires)
		}
		_, live := client.Send(ctxFor(t), send(), mesh.SendOptions{})
		_, durable := client.Submit(ctxFor(t), send(), mesh.SubmitOptions{})
		person := requiring(newTask(bob, "human.ask", `{}`), requires)
		posted := client.Post(ctxFor(t), person)
		_, called := client.Send(ctxFor(t), newTask(reviewer, "code.review", string(payload)), mesh.SendOptions{})
		hop := send()
		hop.ReplyTo = envelope.NewID() // that a task belongs to another says nothing of who wrote its requires
		_, below := client.Send(ctxFor(t), hop, mesh.SendOptions{})
		for how, err := range map[string]error{"sent": live, "submitted": durable, "posted": posted, "called": called, "sent as a hop": below} {
			var problem *envelope.Error
			if got := errors.As(err, &problem) && problem.Code == envelope.CodeRequires && strings.Contains(problem.Message, "must carry no secret"); got != held {
				t.Errorf("%s with %s: %v", how, requires, err)
			} else if got && strings.Contains(problem.Message, key) {
				t.Errorf("%s: the error tells the secret: %v", how, err)
			}
		}
	}
	settle(t, r.nc)
	for _, msg := range drained(all) {
		e, err := envelope.Parse(msg.Data)
		if err == nil && strings.Contains(string(e.Requires), key) {
			t.Errorf("%s has the secret in requires", msg.Subject)
		}
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// Gap 9 of the traceability review: references are held to the specification, on both
// lanes (AEE, "The payload.references Array").
func TestReferencesThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	registry := intents.NewRegistry()
	if err := registry.Register(intents.Definition{Intent: "code.closed", Task: json.RawMessage(`{"properties":{"n":{}},"additionalProperties":false}`)}); err != nil {
		t.Fatal(err)
	}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo, Intents: registry})
	client := r.client()
	for payload, want := range map[string]envelope.Code{
		`{"references":[{"id":"01REFERENCE","type":"aee.envelope"}]}`: "",
		`{"references":[]}`:                                  "",
		`{"references":null}`:                                "",
		`{"nested":{"references":"of its own"}}`:             "",
		`{"references":"01REFERENCE"}`:                       envelope.CodeInputSchema,
		`{"references":[{"id":"01REFERENCE"}]}`:              envelope.CodeInputSchema,
		`{"references":[{"type":"aee.envelope"}]}`:           envelope.CodeInputSchema,
		`{"references":[{"id":"01REFERENCE","type":"url"}]}`: envelope.CodeInputSchema,
		`{"references":[{"id":"01REFERENCE","type":"aee.envelope"},{"id":"01REFERENCE"}]}`:       envelope.CodeInputSchema,
		`{"referenc\u0065s":[{"id":"01REFERENCE","type":"url"}]}`:                                envelope.CodeInputSchema,
		`{"references":[{"id":"01REFERENCE","type":"aee.envelope","hash":["sha256:00"]}],"n":1}`: envelope.CodeInputSchema,
	} {
		for _, intent := range []string{"code.review", "code.closed"} {
			if intent == "code.closed" && (want != "" || strings.Contains(payload, "nested")) {
				continue
			}
			live := newTask(reviewer, intent, payload)
			_, err := client.Send(ctxFor(t), live, mesh.SendOptions{})
			equal(t, "live, "+intent+" "+payload, codeOf(err), want)
			durable := newTask(reviewer, intent, payload)
			r.submit(client, durable)
			_, err = r.result(client, durable)
			equal(t, "durable, "+intent+" "+payload, codeOf(err), want)
		}
	}
}

// fetching is a handler that fetches what its task refers to, and tells.
var fetching = mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	refs, err := task.Envelope.References()
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, ref := range refs {
		got, err := task.Fetch(ctx, ref)
		if err != nil {
			out["error"] = string(codeOf(err))
			continue
		}
		out["payload"] = got.Envelope.Payload
		for _, r := range got.Refutations {
			out["refuted"] = r.By + ": " + r.Reason
		}
	}
	return json.Marshal(out)
})

// An agent gets what its task refers to from itself, from the entity that the locator
// names, or from the task's sender.
func TestATaskFetchesWhatItRefersTo(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable %t", durable), func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: fetching})
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.archive", Handler: echo})
			client := r.client()
			there, here := newTask("agent.archive", "code.review", `{"where":"there"}`), newTask(reviewer, "code.review", `{"where":"here"}`)
			r.request(there)
			r.request(here)
			reply, err := client.Send(ctxFor(t), newTask("agent.archive", "code.review", `{"what":"a result"}`), mesh.SendOptions{})
			if err != nil {
				t.Fatal(err)
			}
			refute := newTask("agent.archive", intents.ContextRefute, fmt.Sprintf(`{"id":%q,"reason":"it is from last year"}`, reply.ID))
			refute.From = "human.bob"
			equal(t, "refuted", r.request(refute).Type, envelope.TypeResult)
			full, err := reply.Refer("agent.archive")
			if err != nil {
				t.Fatal(err)
			}
			hash, err := there.Hash() // an entity that is no party to an envelope has to know its hash
			if err != nil {
				t.Fatal(err)
			}
			other := full
			other.Hash = "sha256:00"
			foreign := full
			foreign.Corr = "another-workflow"
			for _, c := range []struct {
				name, from string
				ref        envelope.Reference
				want       string
			}{
				{"its own", ada, envelope.Reference{ID: here.ID}, `{"payload":{"where":"here"}}`},
				{"of the locator", ada, envelope.Reference{ID: there.ID, Locator: "agent.archive", Hash: hash}, `{"payload":{"where":"there"}}`},
				{"of the sender", "agent.archive", envelope.Reference{ID: there.ID, Hash: hash}, `{"payload":{"where":"there"}}`},
				{"a locator that is none", "agent.archive", envelope.Reference{ID: there.ID, Locator: "store://shelf/3", Hash: hash}, `{"payload":{"where":"there"}}`},
				{"in full, refuted", ada, full, `{"payload":{"what":"a result"},"refuted":"human.bob: it is from last year"}`},
				{"without its hash", ada, envelope.Reference{ID: there.ID, Locator: "agent.archive"}, `{"error":"E_NOT_FOUND"}`},
				{"another hash", ada, other, `{"error":"E_NOT_FOUND"}`},
				{"another corr", ada, foreign, `{"error":"E_NOT_FOUND"}`},
				{"unknown", ada, envelope.Reference{ID: "01NOBODYKNOWS", Locator: "agent.archive"}, `{"error":"E_NOT_FOUND"}`},
				{"of a person", ada, envelope.Reference{ID: there.ID}, `{"error":"E_NOT_FOUND"}`},
				{"of a person by name", ada, envelope.Reference{ID: there.ID, Locator: "human.bob"}, `{"error":"E_NOT_FOUND"}`},
				{"of an entity without a worker", ada, envelope.Reference{ID: there.ID, Locator: "agent.gone"}, `{"error":"E_UNAVAILABLE"}`},
			} {
				c.ref.Type = envelope.ReferenceType
				payload, err := envelope.WithReferences(json.RawMessage(`{}`), c.ref)
				if err != nil {
					t.Fatal(err)
				}
				task := newTask(reviewer, "code.review", string(payload))
				task.From = c.from
				var got *envelope.Envelope
				if durable {
					r.submit(client, task)
					if got, err = r.result(client, task); err != nil {
						t.Fatal(err)
					}
				} else {
					got = r.request(task)
				}
				equal(t, c.name, string(got.Payload), c.want)
			}
		})
	}
}

// What is fetched is verified like everything that comes from others.
func TestForgedEnvelopesAreNotFetched(t *testing.T) {
	t.Parallel()
	for _, f := range forgeries(t, "agent.archive", reviewer, ada) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.serve(r.node(mesh.Config{Verifier: f.verifier, Signer: f.own}), mesh.Agent{Handler: fetching})
			kept := envelope.New(envelope.TypeResult, "agent.archive", ada, "code.review", json.RawMessage(`{"n":1}`))
			kept.ReplyTo = "01SOMETASK"
			f.make(t, kept)
			if _, err := r.nc.Subscribe("agent.archive", func(msg *nats.Msg) {
				task := parse(t, msg.Data)
				reply := task.Reply(envelope.TypeResult, mustMarshal(t, intents.FetchResult{Found: true, Envelope: encode(t, kept)}))
				msg.Respond(encode(t, signed(t, f.own, reply)))
			}); err != nil {
				t.Fatal(err)
			}
			settle(t, r.nc)
			task := newTask(reviewer, "code.review", fmt.Sprintf(`{"references":[{"id":%q,"type":"aee.envelope","locator":"agent.archive"}]}`, kept.ID))
			want := `{"payload":{"n":1}}`
			if f.want != "" {
				want = fmt.Sprintf(`{"error":%q}`, f.want)
			}
			equal(t, "fetched", string(r.request(signed(t, f.own, task)).Payload), want)
		})
	}
}

// Where signatures are required, a reference opens nothing to a sender who could not
// fetch it: an agent is no way round.
func TestAReferenceOpensNothingToStrangers(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	own, adas, eves := k.signer("agents", sign.Ed25519, "agent.*"), k.signer("ada", sign.Ed25519, ada), k.signer("eve", sign.Ed25519, "human.eve")
	v := k.verifier()
	v.Mode = sign.Required
	r := newRig(t)
	r.serve(r.node(mesh.Config{Verifier: v, Signer: own}), mesh.Agent{Handler: fetching})
	r.serve(r.node(mesh.Config{Verifier: v, Signer: own}), mesh.Agent{Entity: "agent.archive", Handler: echo})
	secret := signed(t, adas, newTask(reviewer, "code.review", `{"secret":1}`))
	r.request(secret)
	between := newTask("agent.archive", "code.review", `{"secret":2}`)
	between.From = reviewer // so that the archive would tell it to the reviewer
	r.request(signed(t, own, between))
	for _, kept := range []*envelope.Envelope{secret, between} {
		hash, err := kept.Hash()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			from string
			by   *sign.Signer
			hash string
			want string
		}{
			{"human.eve", eves, "", `{"error":"E_DENIED"}`},
			{"human.eve", eves, hash, fmt.Sprintf(`{"payload":%s}`, kept.Payload)},
			{kept.From, map[string]*sign.Signer{ada: adas, reviewer: own}[kept.From], "", fmt.Sprintf(`{"payload":%s}`, kept.Payload)},
		} {
			ref := envelope.Reference{ID: kept.ID, Type: envelope.ReferenceType, Locator: "agent.archive", Hash: c.hash}
			payload, err := envelope.WithReferences(json.RawMessage(`{}`), ref)
			if err != nil {
				t.Fatal(err)
			}
			task := newTask(reviewer, "code.review", string(payload))
			task.From = c.from
			equal(t, c.from+" "+c.hash, string(r.request(signed(t, c.by, task)).Payload), c.want)
		}
	}
}

// Finding 15 of the security review, by a reference: where signatures are checked and not
// required, what was signed opens to no from that is a mere claim.
func TestAReferenceOpensNothingSignedToAClaim(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	adas := k.signer("ada", sign.Ed25519, ada)
	r := newRig(t)
	r.serve(r.node(mesh.Config{Verifier: k.verifier()}), mesh.Agent{Handler: fetching})
	secret := signed(t, adas, newTask(reviewer, "code.review", `{"secret":1}`))
	r.request(secret)
	ask := func(from string) *envelope.Envelope {
		task := newTask(reviewer, "code.review", fmt.Sprintf(`{"references":[{"id":%q,"type":"aee.envelope"}]}`, secret.ID))
		task.From = from
		return task
	}
	for _, from := range []string{"human.eve", ada, reviewer} {
		equal(t, from, string(r.request(ask(from)).Payload), `{"error":"E_DENIED"}`)
	}
	equal(t, "ada herself", string(r.request(signed(t, adas, ask(ada))).Payload), `{"payload":{"secret":1}}`)
}

func mustMarshal(t testing.TB, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// What a hop works on has no references to its own workflow: what the mesh makes of
// the results of others is as it would be without.
func TestTheInputOfAHopIsWithoutItsOwnWorkflow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		return task.Input(), nil
	})})
	for _, c := range []struct {
		replyTo, corr string
		kept          bool
	}{{"", "workflow-1", true}, {"01PARENTTASK", "workflow-1", false}, {"01PARENTTASK", "workflow-2", true}, {"01PARENTTASK", "", true}} {
		task := newTask(reviewer, "code.review", "")
		payload, err := envelope.WithReferences(json.RawMessage(`{"z":1.50,"a":2}`), envelope.Reference{ID: "01REFERENCE", Type: envelope.ReferenceType, Corr: c.corr})
		if err != nil {
			t.Fatal(err)
		}
		task.Payload, task.Corr, task.ReplyTo = payload, "workflow-1", c.replyTo
		want := `{"z":1.50,"a":2}`
		if c.kept {
			want = string(payload)
		}
		equal(t, fmt.Sprintf("%+v", c), string(r.request(task).Payload), want)
	}
}

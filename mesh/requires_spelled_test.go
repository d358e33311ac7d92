package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// respelled is a signed task as a hop may pass it on: requires in another spelling,
// under the signature that it came with.
func respelled(t *testing.T, k *keys, task *envelope.Envelope) *envelope.Envelope {
	t.Helper()
	out := task.Clone()
	out.Requires = json.RawMessage(mesh.Respell(string(task.Requires)))
	if _, err := (sign.Verifier{Ring: k.ring, Mode: sign.Required}).Verify(out, time.Now()); err != nil {
		t.Fatalf("the signature does not cover another spelling: %v", err)
	}
	return out
}

// confessing tells what of its task's constraints it was told. With the intent
// code.pass it hands the task on.
type confessing struct{}

func (confessing) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	if task.Envelope.Intent == "code.pass" {
		return task.Delegate(ctx, mesh.Delegation{To: helper})
	}
	r := task.Requires
	r.Timeout = r.Timeout.Round(time.Second)
	tokens, _ := task.TreeBudget()
	state := ""
	if _, err := task.HandedState(ctx); err != nil {
		state = string(codeOf(err))
	}
	return json.Marshal(map[string]any{"requires": r.String(), "tokens": tokens, "chain": task.Chain(), "user": task.User(), "state": state})
}

// Finding 7 of the security review: a constraint holds however its name is spelled,
// on both lanes.
func TestAConstraintHoldsHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	signer := k.signer("ada-1", sign.Ed25519, ada)
	r := newDurableRig(t)
	required := mesh.Config{Verifier: sign.Verifier{Ring: k.ring, Mode: sign.Required}}
	r.serve(r.lane(mesh.Config{Verifier: k.verifier()}), mesh.Agent{Entity: helper, Handler: echo, Signer: k.signer("helper-1", sign.Ed25519, helper)})
	r.serve(r.lane(required), mesh.Agent{Handler: confessing{}, Signer: k.signer("reviewer-1", sign.Ed25519, reviewer)})
	r.hears(helper)
	client := r.lane(mesh.Config{Entity: ada, Verifier: k.verifier()})

	later := time.Now().Add(10 * 24 * time.Hour).UTC().Format(time.RFC3339)
	live := func(task *envelope.Envelope, _ string) string { return outcome(t, r.request(task)) }
	states := jetstream.NewStates(r.js(r.nc), r.m)
	end := func(task *envelope.Envelope) string {
		reply, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: true})
		if reply == nil {
			t.Fatal(err)
		}
		return strings.Replace(outcome(t, reply), `\"lane\":\"durable\",`, "", 1)
	}
	durable := func(task *envelope.Envelope, want string) string {
		r.submit(client, task)
		if want != "waits" {
			return end(task)
		}
		next := signed(t, signer, durably(t, newTask(reviewer, "code.review", `{}`)))
		r.submit(client, next)
		end(next) // the other one was drawn before
		if _, err := states.Get(ctxFor(t), state.ID{Entity: task.To, Run: state.RunID(task.To, task.ID)}); !errors.Is(err, state.ErrNotFound) {
			return end(task)
		}
		return "waits"
	}
	nothing := `{"chain":null,"requires":"{\"timeout_ms\":60000}","state":"","tokens":0,"user":"human.ada"}`
	told := func(plain, instead string) string {
		return reviewer + " " + strings.Replace(nothing, plain, instead, 1)
	}
	for _, c := range []struct {
		requires string // without timeout_ms
		intent   string
		live     string
		durable  string // "" where it is the same
	}{
		{`"evidence":false`, "", reviewer + " " + nothing, ""},
		{`"format":"json","decision_evidence":"none"`, "", told(`{\"timeout_ms\"`, `{\"decision_evidence\":\"none\",\"format\":\"json\",\"timeout_ms\"`), ""},
		{`"evidence":true`, "", "E_OUTPUT_SCHEMA the result lacks the evidence that the task requires: evidence_refs, a list of strings that name the sources of the result", ""},
		{`"min_confidence":0.5`, "", told(`{\"timeout_ms\"`, `{\"min_confidence\":0.5,\"timeout_ms\"`), ""},
		{`"decision_evidence":"full"`, "", "E_OUTPUT_SCHEMA the result lacks the decision evidence that the task requires (full): document does not fit its schema: (root): lacks the property \"decision_evidence\" (required)", ""},
		{`"stream":true`, "", told(`{\"timeout_ms\"`, `{\"stream\":true,\"timeout_ms\"`), ""},
		{`"human_approval":true`, "", "E_REQUIRES requires.human_approval: tasks cannot be approved on this worker", ""},
		{`"not_before":"` + later + `"`, "", "E_REQUIRES requires.not_before: a live task cannot be scheduled; send it over the durable lane", "waits"},
		{`"not_before":"soon"`, "", "E_REQUIRES requires.not_before must be a time as in RFC 3339", ""},
		{`"tree":{"depth":99,"max_depth":3}`, "", "E_TREE_LIMIT the task would be 99 hops away from the root task of its tree, and 3 are allowed", ""},
		{`"tree":{"tokens":7}`, "", told(`"tokens":0`, `"tokens":7`), ""},
		{`"tree":"none"`, "", "E_REQUIRES requires.tree is not valid: it must be an object", ""},
		{`"handoff":true`, "code.pass", helper + " {}", ""},
		{`"handoff":false`, "code.pass", reviewer + " {}", ""},
		{`"handoff":7`, "", "E_REQUIRES requires.handoff: must be true, false, or an object as docs/nats-binding.md describes it", ""},
		{`"handed_by":["agent.z"]`, "", told(`null`, `["agent.z"]`), ""},
		{`"handed_by":["` + helper + `"]`, "code.pass", "E_TREE_LIMIT the task would come back to " + helper + ", which has delegated it already (" + helper + " → " + reviewer + ")", ""},
		{`"handed_by":0`, "", "E_REQUIRES requires.handed_by must be a list of at most 64 entities", ""},
		{`"context":{"entity":"agent.z","user":"bob"}`, "", told(`"state":"","tokens":0,"user":"human.ada"`, `"state":"E_DENIED","tokens":0,"user":"bob of human.ada"`), ""},
		{`"context":0`, "", "E_REQUIRES requires.context must be a reference to an Agent State document", ""},
	} {
		if c.intent == "" {
			c.intent = "code.review"
		}
		if c.durable == "" {
			c.durable = c.live
		}
		for _, lane := range []struct {
			name string
			send func(task *envelope.Envelope, want string) string
			want string
		}{{"live", live, c.live}, {"durable", durable, c.durable}} {
			fresh := func() *envelope.Envelope {
				task := requiring(newTask(reviewer, c.intent, `{}`), `{`+c.requires+`,"timeout_ms":60000}`)
				if lane.name == "durable" {
					durably(t, task)
				}
				return signed(t, signer, task)
			}
			equal(t, lane.name+", "+c.requires, lane.send(fresh(), lane.want), lane.want)
			equal(t, lane.name+", respelled "+c.requires, lane.send(respelled(t, k, fresh()), lane.want), lane.want)
		}
	}
}

func outcome(t *testing.T, reply *envelope.Envelope) string {
	if reply.Type == envelope.TypeError {
		problem := errorOf(t, reply)
		return string(problem.Code) + " " + problem.Message
	}
	return reply.From + " " + string(reply.Payload)
}

// A name that stands twice, in whatever spellings, is refused before anything is read.
func TestAConstraintThatStandsTwiceIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"handoff":true,"@":false}`)
	body := strings.Replace(string(encode(t, task)), "@", `handof\u0066`, 1)
	problem := errorOf(t, parse(t, r.requestRaw(reviewer, []byte(body), nil).Data))
	equal(t, "code", problem.Code, envelope.CodeInvalidEnvelope)
	if !strings.Contains(problem.Message, `duplicate name "handoff"`) {
		t.Errorf("message %s", problem.Message)
	}
}

// What a person is asked has the same limits in every spelling.
func TestAnAskIsReadHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	signer := k.signer("ada-1", sign.Ed25519, ada)
	r := newDurableRig(t)
	client := r.lane(mesh.Config{Entity: ada, Verifier: k.verifier()})
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	plain := signed(t, signer, requiring(newTask(bob, "human.ask", `{"question":"?"}`),
		`{"answer_by":"`+until.Format(time.RFC3339)+`","escalate_to":"human.eve","result_schema":{"type":"object","required":["ok"]}}`))
	other := signed(t, signer, requiring(newTask(bob, "human.ask", `{"question":"?"}`), string(plain.Requires)))
	for _, task := range []*envelope.Envelope{plain, respelled(t, k, other)} {
		if err := r.nc.PublishMsg(&nats.Msg{Subject: bob, Data: encode(t, task)}); err != nil {
			t.Fatal(err)
		}
		var ask *mesh.PersonTask
		eventually(t, "bob is asked", func() bool {
			ask, _ = client.FindAsk(ctxFor(t), bob, "", task.ID)
			return ask != nil
		})
		equal(t, "answer_by", ask.Until.UTC(), until)
		equal(t, "escalate_to", ask.EscalateTo, "human.eve")
		err := client.AnswerPersonTask(ctxFor(t), ask, task.Reply(envelope.TypeResult, json.RawMessage(`{"no":1}`)))
		if !errors.Is(err, mesh.ErrMisfit) {
			t.Errorf("an answer that does not fit result_schema: %v", err)
		}
	}
}

// The header with the number of stream envelopes follows the constraint, too.
func TestTheCountOfAStreamFollowsARespelledConstraint(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	client := r.client()
	for requires, want := range map[string]string{`{"stream":true}`: "0", mesh.Respell(`{"stream":true}`): "0", `{"x-stream":true}`: "", `{"stream":false}`: ""} {
		task := requiring(newTask(reviewer, "code.review", `{"stream":true}`), requires)
		r.submit(client, task)
		if _, err := r.result(client, task); err != nil {
			t.Fatal(err)
		}
		for msg, err := range jetstream.NewReplies(r.js(r.nc), r.m).Read(ctxFor(t), reviewer, task.ID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "header for "+requires, msg.Header.Get(headers.HeaderStreamCount), want)
		}
	}
}

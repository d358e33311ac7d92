package mesh_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

func TestAnswersOfStrangersAreRefused(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	p := party{k}
	r := newRig(t)
	a, m := k.signer("a", sign.Ed25519, "agent.a"), k.signer("m", sign.Ed25519, "agent.m")
	client := r.node(p.config(t, ada))
	link := func(signer *sign.Signer, from, to, task, caller, corr string) *envelope.Envelope {
		e := envelope.New(envelope.TypeEvent, from, to, intents.TaskHanded, json.RawMessage(fmt.Sprintf(`{"task":%q,"caller":%q}`, task, caller)))
		e.Corr, e.ReplyTo = corr, task
		if signer != nil {
			if err := signer.Sign(e); err != nil {
				t.Fatal(err)
			}
		}
		return e
	}
	for _, c := range []struct {
		name  string
		chain func(task *envelope.Envelope) string
		good  bool
	}{
		{"no chain", func(*envelope.Envelope) string { return "" }, false},
		{"a good chain", func(e *envelope.Envelope) string { return chainOf(t, link(a, "agent.a", "agent.m", e.ID, ada, e.Corr)) }, true},
		{"not signed", func(e *envelope.Envelope) string {
			return chainOf(t, link(nil, "agent.a", "agent.m", e.ID, ada, e.Corr))
		}, false},
		{"signed by the stranger", func(e *envelope.Envelope) string { return chainOf(t, link(m, "agent.a", "agent.m", e.ID, ada, e.Corr)) }, false},
		{"from the stranger", func(e *envelope.Envelope) string { return chainOf(t, link(m, "agent.m", "agent.x", e.ID, ada, e.Corr)) }, false},
		{"to somebody else", func(e *envelope.Envelope) string { return chainOf(t, link(a, "agent.a", "agent.x", e.ID, ada, e.Corr)) }, false},
		{"of another task", func(e *envelope.Envelope) string {
			return chainOf(t, link(a, "agent.a", "agent.m", envelope.NewID(), ada, e.Corr))
		}, false},
		{"of another corr", func(e *envelope.Envelope) string {
			return chainOf(t, link(a, "agent.a", "agent.m", e.ID, ada, envelope.NewID()))
		}, false},
		{"of another caller", func(e *envelope.Envelope) string {
			return chainOf(t, link(a, "agent.a", "agent.m", e.ID, "human.eve", e.Corr))
		}, false},
		{"a gap", func(e *envelope.Envelope) string {
			return chainOf(t, link(a, "agent.a", "agent.b", e.ID, ada, e.Corr), link(m, "agent.m", "agent.m", e.ID, ada, e.Corr))
		}, false},
		{"no base64", func(*envelope.Envelope) string { return "{}" }, false},
		{"too many", func(e *envelope.Envelope) string { return strings.Repeat("e30 ", 100) }, false},
		{"changed", func(e *envelope.Envelope) string {
			l := link(a, "agent.a", "agent.x", e.ID, ada, e.Corr)
			l.To = "agent.m"
			return chainOf(t, l)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tasks := r.listen("agent.a")
			done := make(chan error, 1)
			go func() {
				_, err := client.Send(ctxFor(t), newTask("agent.a", "x.y.z", `{}`), mesh.SendOptions{})
				done <- err
			}()
			msg := within(t, "the task", tasks)
			task := parse(t, msg.Data)
			reply := task.Reply(envelope.TypeResult, json.RawMessage(`{}`))
			reply.From = "agent.m"
			if err := m.Sign(reply); err != nil {
				t.Fatal(err)
			}
			answer := newMsg(msg.Reply, encode(t, reply))
			if chain := c.chain(task); chain != "" {
				answer.Header.Set(headers.HeaderHandoff, chain)
			}
			if err := r.nc.PublishMsg(answer); err != nil {
				t.Fatal(err)
			}
			err := within(t, "Send", done)
			if c.good != (err == nil) {
				t.Errorf("got %v", err)
			}
			var problem *envelope.Error
			if err != nil && (!errors.As(err, &problem) || problem.FromPeer()) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What came along is believed only as its reference says.
func TestAStateThatIsNotWhatItsReferenceSaysIsRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	node := r.lane(mesh.Config{})
	r.serve(node, mesh.Agent{Entity: "agent.b", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if _, err := task.HandedState(ctx); err != nil {
			return nil, err
		}
		return json.RawMessage(`{}`), nil
	})})
	// A run of agent.a that no other may read, and what agent.a really passed on.
	states := jetstream.NewStates(r.js(r.nc), r.m)
	put := func(entity string, kind state.StepKind) (ref map[string]string) {
		c := state.New(entity, envelope.NewID(), "")
		c.Doc.Status, c.Mesh.Step = aaif.RunCompleted, state.Step{Kind: kind}
		data, err := state.Codec{}.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := states.Put(ctxFor(t), c.ID(), 0, data); err != nil {
			t.Fatal(err)
		}
		return map[string]string{"entity": entity, "run": c.Doc.RunID, "state_id": c.Doc.StateID, "hash": fmt.Sprintf("sha256:%x", sha256.Sum256(data))}
	}
	good := put("agent.a", state.StepHandoff)
	change := func(name, value string) map[string]string {
		m := maps.Clone(good)
		m[name] = value
		return m
	}
	for name, c := range map[string]struct {
		ref  map[string]string
		want envelope.Code
	}{
		"good": {good, ""}, "another hash": {change("hash", "sha256:00"), envelope.CodeHashMismatch}, "not there": {change("run", "x"), envelope.CodeNotFound},
		"a stranger's": {put("agent.x", state.StepHandoff), envelope.CodeDenied}, "a run, not what was passed on": {put("agent.a", state.StepTerminal), envelope.CodeDenied},
		"a document that is not the one that is named": {change("document", "{}"), envelope.CodeHashMismatch},
	} {
		task := envelope.New(envelope.TypeTask, "agent.a", "agent.b", "x.y.z", nil)
		original := newTask("agent.a", "x.y.z", `{}`)
		link := envelope.New(envelope.TypeEvent, "agent.a", "agent.b", intents.TaskHanded, json.RawMessage(fmt.Sprintf(`{"task":%q,"caller":%q}`, original.ID, ada)))
		link.Corr, link.ReplyTo, task.Corr = original.Corr, original.ID, original.Corr
		requires, err := json.Marshal(map[string]any{"handoff": map[string]any{"task": original.ID, "caller": ada, "intent": "x.y.z", "chain": []string{chainOf(t, link)}, "state": c.ref}})
		if err != nil {
			t.Fatal(err)
		}
		task.Requires = requires
		got := r.request(task)
		if c.want == "" {
			equal(t, name, [2]string{string(got.Type), got.To}, [2]string{"result", ada})
			continue
		}
		equal(t, name, errorOf(t, got).Code, c.want)
	}
}

func newMsg(to string, data []byte) *nats.Msg {
	return &nats.Msg{Subject: to, Data: data, Header: nats.Header{}}
}

func chainOf(t *testing.T, links ...*envelope.Envelope) string {
	t.Helper()
	var out []string
	for _, l := range links {
		out = append(out, base64.RawURLEncoding.EncodeToString(encode(t, l)))
	}
	return strings.Join(out, " ")
}

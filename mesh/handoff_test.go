package mesh_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// handsTo is a handler that tells one chunk and hands its task on.
func handsTo(to string) mesh.Handler {
	return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if err := task.EmitText("from " + task.Envelope.To); err != nil {
			return nil, err
		}
		return task.HandOff(ctx, mesh.HandOff{To: to, Reason: "it is theirs"})
	})
}

// answersFor answers with what it knows of the task that it got.
var answersFor = mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
	if err := task.EmitText("from " + task.Envelope.To); err != nil {
		return nil, err
	}
	out, err := json.Marshal(map[string]any{
		"input": task.Envelope.Payload, "by": task.Envelope.To, "from": task.Envelope.From, "caller": task.Caller(), "chain": task.Chain(),
		"intent": task.Envelope.Intent, "priority": task.Envelope.Priority,
	})
	return out, err
})

// party is how one side of a test speaks: signed or not.
type party struct {
	keys *keys
}

func (p party) config(t *testing.T, entity string) mesh.Config {
	t.Helper()
	cfg := mesh.Config{Entity: entity, Heartbeat: -1}
	if p.keys != nil {
		cfg.Signer = p.keys.signer(entity, sign.Ed25519, entity)
		cfg.Verifier = sign.Verifier{Ring: p.keys.ring, Mode: sign.Required}
	}
	return cfg
}

func newParty(t *testing.T, signed bool) (p party) {
	if signed {
		p.keys = newKeys(t)
	}
	return p
}

func TestATaskIsHandedOnAlongAChain(t *testing.T) {
	t.Parallel()
	for _, signed := range []bool{false, true} {
		for _, lane := range []string{"live", "durable"} {
			for _, cbor := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s signed=%v cbor=%v", lane, signed, cbor), func(t *testing.T) {
					t.Parallel()
					p := newParty(t, signed)
					r := newDurableRig(t)
					durable := lane == "durable"
					node := func(entity string) *mesh.Node {
						if durable {
							return r.lane(p.config(t, entity))
						}
						return r.node(p.config(t, entity))
					}
					r.serve(node("agent.a"), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
					r.serve(node("agent.b"), mesh.Agent{Entity: "agent.b", Handler: handsTo("agent.c")})
					r.serve(node("agent.c"), mesh.Agent{Entity: "agent.c", Handler: answersFor})
					client := node(ada)

					task := newTask("agent.a", "agent.a.run", `{"text":"hi"}`)
					task.Priority = envelope.PriorityHigh
					var told []string
					onStream := func(e *envelope.Envelope) error {
						var p struct {
							Seq  int
							Text string
							To   string `json:"handed_to"`
						}
						if err := json.Unmarshal(e.Payload, &p); err != nil {
							return err
						}
						told = append(told, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", p.Seq, e.From, p.Text, p.To)))
						return nil
					}
					var reply *envelope.Envelope
					var err error
					if durable {
						task.Requires = json.RawMessage(`{"stream":true}`)
						_, reply, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{CBOR: cbor}, mesh.ResultOptions{OnStream: onStream})
					} else {
						reply, err = client.Send(ctxFor(t), task, mesh.SendOptions{CBOR: cbor, OnStream: onStream})
					}
					if err != nil {
						t.Fatal(err)
					}
					equal(t, "reply", [5]string{reply.From, reply.To, reply.ReplyTo, reply.Corr, reply.Intent}, [5]string{"agent.c", ada, task.ID, task.Corr, "agent.a.run"})
					equal(t, "result", canonical(t, reply.Payload), canonical(t, []byte(`{"input":{"text":"hi"},"by":"agent.c","from":"agent.b","caller":"human.ada","chain":["agent.a","agent.b"],"intent":"agent.c.run","priority":"high"}`)))
					equal(t, "told", strings.Join(told, ", "), "1 agent.a from agent.a, 2 agent.a  agent.b, 3 agent.b from agent.b, 4 agent.b  agent.c, 5 agent.c from agent.c")
					if !durable {
						return
					}
					again, err := client.Result(ctxFor(t), "agent.a", task.ID, mesh.ResultOptions{})
					if err != nil || again.ID != reply.ID {
						t.Errorf("result again: %v, %v", again, err)
					}
					r.drainedQueue()
					c := r.record(task)
					equal(t, "status", c.Doc.Status, aaif.RunCompleted)
					if c.Mesh.Handed == nil || c.Mesh.Reply != nil || c.Mesh.Step.Kind != state.StepHandoff {
						t.Fatalf("record: %+v", c.Mesh)
					}
					equal(t, "handed to", c.Mesh.Handed.To, "agent.b")
				})
			}
		}
	}
}

func TestAHandedOverStreamHasOneCount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: answersFor})
	answers := r.send(requiring(newTask("agent.a", "x.y.z", `{}`), `{"stream":true}`))
	for i := range 3 {
		equal(t, "seq", string(parse(t, within(t, "a chunk", answers).Data).Payload[:8]), `{"seq":`+strconv.Itoa(i+1))
	}
	last := within(t, "the result", answers)
	equal(t, "count", last.Header.Get(mesh.HeaderStreamCount), "3")
	equal(t, "chain", strings.Count(last.Header.Get(mesh.HeaderHandoff), " "), 0)
	equal(t, "intent", parse(t, last.Data).Intent, "x.y.z")
	equal(t, "end", len(within(t, "the end", answers).Data), 0)
	settle(t, r.nc)
	empty(t, "more", answers)
}

func TestPingPongIsRefused(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"live", "durable"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			for _, pair := range [][2]string{{"agent.a", "agent.b"}, {"agent.b", "agent.a"}} {
				r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: pair[0], Handler: handsTo(pair[1])})
			}
			client, task := r.client(), newTask("agent.a", "x.y.z", `{}`)
			var err error
			if lane == "live" {
				_, err = client.Send(ctxFor(t), task, mesh.SendOptions{})
			} else {
				_, _, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
			}
			var problem *envelope.Error
			if !errors.As(err, &problem) || problem.Code != envelope.CodeTreeLimit || problem.Message != "the task would come back to agent.a, which has handed it on already (agent.a → agent.b)" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAChainHasALimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 4 {
		r.serve(r.node(mesh.Config{MaxHandoffs: 2}), mesh.Agent{Entity: fmt.Sprintf("agent.n%d", i), Handler: handsTo(fmt.Sprintf("agent.n%d", i+1))})
	}
	_, err := r.node(mesh.Config{}).Send(ctxFor(t), newTask("agent.n0", "x.y.z", `{}`), mesh.SendOptions{})
	equal(t, "code", codeOf(err), envelope.CodeTreeLimit)
	if err == nil || !strings.Contains(err.Error(), "handed on 2 times") {
		t.Error(err)
	}
}

func TestAWorkerHoldsToItsOwnLimitOfAChain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: handsTo("agent.c")})
	r.serve(r.node(mesh.Config{MaxHandoffs: 1}), mesh.Agent{Entity: "agent.c", Handler: answersFor})
	_, err := r.node(mesh.Config{Entity: ada}).Send(ctxFor(t), newTask("agent.a", "x.y.z", `{}`), mesh.SendOptions{})
	equal(t, "code", codeOf(err), envelope.CodeTreeLimit)
}

func TestNothingIsSaidToHaveNotBegunAfterAHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: g, Queue: -1})
	r.send(newTask("agent.b", "x.y.z", `{}`))
	within(t, "agent.b is busy", g.entered)
	_, err := r.node(mesh.Config{Entity: ada}).Send(ctxFor(t), newTask("agent.a", "x.y.z", `{}`), mesh.SendOptions{})
	equal(t, "code", codeOf(err), envelope.CodeUnavailable)
}

func TestAReceiverThatIsNotThereIsToldToTheCaller(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.nobody")})
	_, err := r.client().Send(ctxFor(t), newTask("agent.a", "x.y.z", `{}`), mesh.SendOptions{})
	equal(t, "code", codeOf(err), envelope.CodeUnavailable)
}

func TestCancelFollowsAHandOver(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"live", "durable"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			g := newGate(t)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: handsTo("agent.c")})
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.c", Handler: willing{g}})
			client, task := r.client(), newTask("agent.a", "x.y.z", `{}`)
			done := make(chan error, 1)
			ctx, cancel := context.WithCancel(ctxFor(t))
			defer cancel()
			go func() {
				var err error
				if lane == "live" {
					_, err = client.Send(ctx, task, mesh.SendOptions{})
				} else {
					_, _, err = client.Perform(ctx, task, mesh.SubmitOptions{}, mesh.ResultOptions{})
				}
				done <- err
			}()
			within(t, "the last one has it", g.entered)
			if lane == "live" {
				// Whoever gives up cancels the task where it was sent.
				events := r.events()
				cancel()
				within(t, "the sender", done)
				for {
					if e := r.event(events, intents.TaskFailed); e.From == "agent.c" {
						break
					}
				}
				return
			}
			result, err := client.Command(ctxFor(t), "agent.a", intents.CancelTask{ID: task.ID, Reason: "enough"})
			if err != nil || !result.Cancelled {
				t.Errorf("cancel: %+v, %v", result, err)
			}
			if err := within(t, "the sender", done); codeOf(err) != envelope.CodeCancelled {
				t.Errorf("got %v", err)
			}
		})
	}
}

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
				answer.Header.Set(mesh.HeaderHandoff, chain)
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

func TestTheSenderMayForbidAHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: answersFor})
	got := r.request(requiring(newTask("agent.a", "x.y.z", `{}`), `{"handoff":false}`))
	equal(t, "from", [2]string{got.From, string(got.Type)}, [2]string{"agent.a", "result"})
	got = r.request(newTask("agent.a", "x.y.z", `{}`))
	equal(t, "from", [2]string{got.From, string(got.Type)}, [2]string{"agent.b", "result"})
}

func TestAStateGoesAlongByReference(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"live", "durable", "without JetStream"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			node := func(entity string) *mesh.Node {
				if lane == "without JetStream" {
					return r.node(mesh.Config{Entity: entity})
				}
				return r.lane(mesh.Config{Entity: entity})
			}
			r.serve(node("agent.a"), mesh.Agent{Entity: "agent.a", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				c := state.New("agent.a", task.Envelope.ID, "")
				c.Doc.Conversation = []aaif.Message{{Role: aaif.MessageUser, Content: "remember me"}}
				return task.HandOff(ctx, mesh.HandOff{To: "agent.b", State: c})
			})})
			var seen *envelope.Envelope
			r.serve(node("agent.b"), mesh.Agent{Entity: "agent.b", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				seen = task.Envelope
				c, err := task.HandedState(ctx)
				if err != nil || c == nil {
					return nil, fmt.Errorf("state: %v, %w", c, err)
				}
				return json.Marshal(map[string]any{"said": c.Doc.Conversation[0].Content, "by": c.Mesh.Entity})
			})})
			client, task := node(ada), newTask("agent.a", "x.y.z", `{}`)
			var reply *envelope.Envelope
			var err error
			if lane == "durable" {
				_, reply, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
			} else {
				reply, err = client.Send(ctxFor(t), task, mesh.SendOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "result", string(reply.Payload), `{"by":"agent.a","said":"remember me"}`)
			if inline := strings.Contains(string(seen.Requires), "remember me"); inline != (lane == "without JetStream") {
				t.Errorf("the document goes along itself: %v", inline)
			}
		})
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

// foreign is an agent in another language: plain NATS, results under its own
// name, and no word of hand-overs.
func (r *rig) foreign(entity string) {
	r.t.Helper()
	_, err := r.nc.QueueSubscribe(entity, mesh.QueueGroup, func(msg *nats.Msg) {
		task := parse(r.t, msg.Data)
		reply := task.ReplyError(envelope.Errorf(envelope.CodeIntentUnknown, "what?"))
		if !intents.Reserved(task.Intent) {
			reply = task.Reply(envelope.TypeResult, task.Payload)
		}
		if err := msg.Respond(encode(r.t, reply)); err != nil {
			r.t.Error(err)
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	settle(r.t, r.nc)
}

func TestAReceiverThatCannotTakeOverIsCalled(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.foreign("agent.node")
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.node")})
	client := r.client()
	reply, err := client.Send(ctxFor(t), newTask("agent.a", "x.y.z", `{"n":1}`), mesh.SendOptions{})
	if err != nil || reply.From != "agent.a" || string(reply.Payload) != `{"n":1}` {
		t.Errorf("live: %v, %v", reply, err)
	}
	task := newTask("agent.a", "x.y.z", `{"n":2}`)
	_, reply, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
	if err != nil || reply.From != "agent.a" || string(reply.Payload) != `{"n":2}` {
		t.Errorf("durable: %v, %v", reply, err)
	}
	if text, err := client.Ask(ctxFor(t), "agent.a", "plain words"); err != nil || text != "plain words" {
		t.Errorf("ask: %q, %v", text, err)
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
	// A run of agent.a that is nobody's to read, and what agent.a really passed on.
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

// A receiver that is called although it could take over has what goes along, too.
func TestAStateGoesAlongWithACall(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		c := state.New("agent.a", task.Envelope.ID, "")
		c.Doc.Conversation = []aaif.Message{{Role: aaif.MessageUser, Content: "remember me"}}
		return task.HandOff(ctx, mesh.HandOff{To: "agent.b", State: c})
	})})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", LiveOnly: true, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		c, err := task.HandedState(ctx)
		if err != nil || c == nil {
			return nil, fmt.Errorf("state: %v, %w", c, err)
		}
		return json.Marshal(map[string]any{"text": c.Doc.Conversation[0].Content, "chain": task.Chain()})
	})})
	client := r.client()
	for name, ask := range map[string]func() (*envelope.Envelope, error){
		"a durable task, and a receiver on the live lane": func() (*envelope.Envelope, error) {
			_, reply, err := client.Perform(ctxFor(t), newTask("agent.a", "x.y.z", `{}`), mesh.SubmitOptions{}, mesh.ResultOptions{})
			return reply, err
		},
		"forbidden by the sender": func() (*envelope.Envelope, error) {
			return client.Send(ctxFor(t), requiring(newTask("agent.a", "x.y.z", `{}`), `{"handoff":false}`), mesh.SendOptions{})
		},
	} {
		reply, err := ask()
		if err != nil || reply.From != "agent.a" || string(reply.Payload) != `{"chain":null,"text":"remember me"}` {
			t.Errorf("%s: %v, %v", name, reply, err)
		}
	}
}

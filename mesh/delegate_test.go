package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// handsTo is a handler that tells one chunk and hands its task on.
func handsTo(to string) mesh.Handler {
	return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if err := task.EmitText("from " + task.Envelope.To); err != nil {
			return nil, err
		}
		return task.Delegate(ctx, mesh.Delegation{To: to, Reason: "it is theirs"})
	})
}

// answersFor answers with what it knows of the task that it got.
var answersFor = mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
	if err := task.EmitText("from " + task.Envelope.To); err != nil {
		return nil, err
	}
	out, err := json.Marshal(map[string]any{
		"input": task.Input(), "by": task.Envelope.To, "from": task.Envelope.From, "caller": task.Caller(), "chain": task.Chain(),
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
					if durable {
						r.hears("agent.b", "agent.c")
					}
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
					r.drainedQueue() // the reply was heard, and is stored now
					again, err := client.Result(ctxFor(t), "agent.a", task.ID, mesh.ResultOptions{})
					if err != nil || again.ID != reply.ID {
						t.Errorf("result again: %v, %v", again, err)
					}
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
	equal(t, "count", last.Header.Get(headers.HeaderStreamCount), "3")
	equal(t, "chain", strings.Count(last.Header.Get(headers.HeaderHandoff), " "), 0)
	equal(t, "intent", parse(t, last.Data).Intent, "x.y.z")
	equal(t, "end", len(within(t, "the end", answers).Data), 0)
	settle(t, r.nc)
	empty(t, "more", answers)
}

// The receiver of a delegated run goes on with the numbers of the stream envelopes.
func TestTheStreamOfADelegatedRunHasOneCount(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: answersFor})
	r.hears("agent.a", "agent.b")
	client, task := r.client(), requiring(newTask("agent.a", "x.y.z", `{}`), `{"stream":true}`)
	if _, _, err := client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{}); err != nil {
		t.Fatal(err)
	}
	var seqs []int
	for _, e := range r.replies(task) {
		if e.Type == envelope.TypeStream {
			var chunk struct{ Seq int }
			if err := json.Unmarshal(e.Payload, &chunk); err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, chunk.Seq)
		}
	}
	equal(t, "seqs", fmt.Sprint(seqs), "[1 2 3]")
}

func TestPingPongIsRefused(t *testing.T) {
	t.Parallel()
	// relayed: the second one takes no durable tasks over, so the first one calls it.
	for _, lane := range []string{"live", "durable", "relayed"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			for _, pair := range [][2]string{{"agent.a", "agent.b"}, {"agent.b", "agent.a"}} {
				r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: pair[0], Handler: handsTo(pair[1]), LiveOnly: lane == "relayed" && pair[0] == "agent.b"})
			}
			client, task := r.client(), newTask("agent.a", "x.y.z", `{}`)
			var err error
			if lane == "live" {
				_, err = client.Send(ctxFor(t), task, mesh.SendOptions{})
			} else {
				_, _, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
			}
			var problem *envelope.Error
			if !errors.As(err, &problem) || problem.Code != envelope.CodeTreeLimit || problem.Message != "the task would come back to agent.a, which has delegated it already (agent.a → agent.b)" {
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
	if err == nil || !strings.Contains(err.Error(), "delegated 2 times") {
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

// The limit of the first agent's own work is not that of the receiver, which has the sender's time.
func TestAReceiverHasTheTimeOfTheSenderThatIsLeft(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for _, lane := range []string{"live", "durable"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b"), Timeout: time.Second})
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(1500 * time.Millisecond):
					return json.RawMessage(`{"by":"agent.b"}`), nil
				}
			})})
			r.hears("agent.a", "agent.b")
			client, task := r.client(), requiring(newTask("agent.a", "x.y.z", `{}`), `{"timeout_ms":30000}`)
			var reply *envelope.Envelope
			var err error
			if lane == "live" {
				reply, err = client.Send(ctxFor(t), task, mesh.SendOptions{})
			} else {
				_, reply, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
			}
			if err != nil || string(reply.Payload) != `{"by":"agent.b"}` {
				t.Errorf("%v, %v", reply, err)
			}
		})
	}
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
				// A client that gives up cancels the task where it was sent.
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

// A command that is not answered in time goes through the queue, too, though a worker may
// have it already: the agent that has the run gets it twice.
func TestACommandThatComesTwiceIsAppliedOnceAfterAHandOver(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	s := newStepper(t, 1)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: s})
	client, task := r.client(), newTask("agent.a", "x.y.z", `{}`)
	r.submit(client, task)
	within(t, "the last one has it", s.entered)
	steer := mesh.NewCommand(ada, "agent.a", intents.SteerTask{Target: intents.Target{ID: task.ID, Durable: true}, Text: "be kind"})
	twice(t, client, steer, `"steered":true`)
	s.next <- struct{}{}
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"done":1,"heard":["be kind"]}` {
		t.Errorf("%v, %v", reply, err)
	}
}

// delegating is an agent that delegates its task to agent.b once it may, without a step before.
type delegating struct{ *gate }

func (d delegating) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	if _, err := d.gate.Handle(ctx, task); err != nil {
		return nil, err
	}
	return task.Delegate(ctx, mesh.Delegation{To: "agent.b"})
}

// A pause that was answered before the task is delegated pauses it, and so it is delegated when it
// is resumed.
func TestAPauseBeforeAHandOverPausesTheRun(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	d := delegating{newGate(t)}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: d})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: answersFor})
	r.hears("agent.a", "agent.b")
	client, task := r.client(), requiring(newTask("agent.a", "x.y.z", `{}`), `{"stream":true}`)
	r.submit(client, task)
	within(t, "the first one has it", d.entered)
	out, err := client.Command(ctxFor(t), "agent.a", intents.PauseTask{Target: target(task)})
	if err != nil || out.Status != "pausing" {
		t.Fatalf("%+v, %v", out, err)
	}
	d.open()
	eventually(t, "the run has stopped", func() bool { c := r.record(task); return state.Parked(c.Doc.Status) || c.Terminal() })
	equal(t, "status", r.record(task).Doc.Status, aaif.RunPaused)
	r.drainedQueue()
	if _, err := client.Command(ctxFor(t), "agent.a", intents.ResumeTask{Target: target(task)}); err != nil {
		t.Fatal(err)
	}
	if reply, err := r.result(client, task); err != nil || reply.From != "agent.b" {
		t.Errorf("%v, %v", reply, err)
	}
	equal(t, "replies", len(r.replies(task)), 3) // handed_to, from agent.b, and the result
}

// Messages that wait for the next turn when the task is delegated are for the receiver: all of them.
func TestAMessageBeforeAHandOverIsForTheReceiver(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	d, s := delegating{newGate(t)}, newStepper(t, 1)
	s.next <- struct{}{}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: d})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.b", Handler: s})
	r.hears("agent.a", "agent.b")
	client, task := r.client(), newTask("agent.a", "x.y.z", `{}`)
	r.submit(client, task)
	within(t, "the first one has it", d.entered)
	var said []string
	for i := range 9 {
		said = append(said, fmt.Sprint("be kind ", i))
	}
	said = append(said, strings.Repeat("long", 5<<8))
	for _, text := range said {
		out, err := client.Command(ctxFor(t), "agent.a", intents.SteerTask{Target: target(task), Text: text})
		if err != nil || !out.Steered {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	d.open()
	reply, err := r.result(client, task)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Heard []string }
	if err := json.Unmarshal(reply.Payload, &got); err != nil || !slices.Equal(got.Heard, said) {
		t.Errorf("%v, heard %d messages: %q", err, len(got.Heard), got.Heard)
	}
}

// twice sends a command to the workers, and then over the queue.
func twice(t *testing.T, client *mesh.Node, command *envelope.Envelope, want string) {
	t.Helper()
	eventually(t, "a worker takes the command", func() bool {
		reply, err := client.TryCommand(ctxFor(t), command)
		return err == nil && strings.Contains(string(reply.Payload), want)
	})
	if _, reply, err := client.Perform(ctxFor(t), command, mesh.SubmitOptions{}, mesh.ResultOptions{}); err != nil || !strings.Contains(string(reply.Payload), want) {
		t.Errorf("the copy: %v, %v", reply, err)
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
				return task.Delegate(ctx, mesh.Delegation{To: "agent.b", State: c})
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
	// What it was sent is the input, with a reference to the task.
	given := func(reply *envelope.Envelope) string {
		refs, err := reply.References()
		if err != nil || len(refs) != 1 || refs[0].ID != reply.ReplyTo || refs[0].Locator != "agent.a" {
			t.Errorf("references %+v, %v", refs, err)
		}
		return string(envelope.KeepReferences(reply.Payload, func(envelope.Reference) bool { return false }))
	}
	if err != nil || reply.From != "agent.a" || given(reply) != `{"n":1}` {
		t.Errorf("live: %v, %v", reply, err)
	}
	task := newTask("agent.a", "x.y.z", `{"n":2}`)
	_, reply, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
	if err != nil || reply.From != "agent.a" || given(reply) != `{"n":2}` {
		t.Errorf("durable: %v, %v", reply, err)
	}
	if text, err := client.Ask(ctxFor(t), "agent.a", "plain words"); err != nil || text != "plain words" {
		t.Errorf("ask: %q, %v", text, err)
	}
}

// A receiver that is called although it could take over has what goes along, too.
func TestAStateGoesAlongWithACall(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		c := state.New("agent.a", task.Envelope.ID, "")
		c.Doc.Conversation = []aaif.Message{{Role: aaif.MessageUser, Content: "remember me"}}
		return task.Delegate(ctx, mesh.Delegation{To: "agent.b", State: c})
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
		if err != nil || reply.From != "agent.a" || string(reply.Payload) != `{"chain":["agent.a"],"text":"remember me"}` {
			t.Errorf("%s: %v, %v", name, show(reply), err)
		}
	}
}

// A receiver that is busy when it is asked what it supports gets the task, with the conversation,
// like one that is not.
func TestABusyReceiverGetsTheTaskAllTheSame(t *testing.T) {
	t.Parallel()
	for lane, refusals := range map[string]int{"live": 1, "durable": 1000} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{Map: r.m, Entities: []string{"agent.b"}}); err != nil {
				t.Fatal(err)
			}
			got := r.listen("aee.work.*.agent.b")
			if _, err := r.nc.Subscribe("agent.b", func(m *nats.Msg) {
				e := parse(t, m.Data)
				switch {
				case e.Intent != intents.SpecQuery:
					got <- m
				case refusals > 0:
					refusals--
					_ = m.Respond(encode(t, e.ReplyError(envelope.Errorf(envelope.CodeBusy, "busy"))))
				default:
					_ = m.Respond(encode(t, e.Reply(envelope.TypeResult, json.RawMessage(`{"extensions":["`+intents.ExtHandoff+`"]}`))))
				}
			}); err != nil {
				t.Fatal(err)
			}
			settle(t, r.nc)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
			client, task := r.client(), newTask("agent.a", "agent.a.run", `{}`)
			if lane == "live" {
				r.send(task)
			} else {
				r.submit(client, task)
			}
			if e := parse(t, within(t, "the receiver's task", got).Data); !strings.Contains(string(e.Requires), `"handoff":{`) {
				t.Errorf("agent.b is called, with %s", e.Requires)
			}
		})
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A consumer must verify a signature that is there, and must reject the envelope
// when it does not verify (AEE, "Signature Verification and Trust Model"). The
// tests of this file hold that for what comes back to a sender, for commands
// and for inboxes; for tasks sign_test.go and durable_dead_test.go do.

// forgery is an envelope's signature that does not vouch for it.
type forgery struct {
	name     string
	make     func(t *testing.T, e *envelope.Envelope)
	own      *sign.Signer // who may sign for the entity
	verifier sign.Verifier
	want     envelope.Code // "": it is no forgery
}

// forgeries are the ways to get a signature of the entities wrong, and one to get
// it right.
func forgeries(t *testing.T, entities ...string) []forgery {
	k := newKeys(t)
	own, foreign, gone := k.signer("own", sign.Ed25519, entities...), k.signer("foreign", sign.Ed25519, "service.other"), k.signer("gone", sign.Ed25519, entities...)
	key, _ := k.ring.Lookup("gone")
	key.Revoked = true
	if err := k.ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	stranger, _, err := sign.NewKey("stranger", sign.Ed25519, entities...)
	if err != nil {
		t.Fatal(err)
	}
	by := func(s *sign.Signer) func(*testing.T, *envelope.Envelope) {
		return func(t *testing.T, e *envelope.Envelope) { signed(t, s, e) }
	}
	present, required := k.verifier(), k.verifier()
	required.Mode = sign.Required
	return []forgery{
		{"good", by(own), own, required, ""},
		{"changed", func(t *testing.T, e *envelope.Envelope) {
			payload := e.Payload
			e.Payload = json.RawMessage(`{"text":"what was signed"}`)
			signed(t, own, e)
			e.Payload = payload
		}, own, present, envelope.CodeSigInvalid},
		{"of a key for others", by(foreign), own, present, envelope.CodeFromDenied},
		{"of an unknown key", by(stranger), own, present, envelope.CodeKeyUnknown},
		{"of a revoked key", by(gone), own, present, envelope.CodeKeyInvalid},
		{"in words", func(_ *testing.T, e *envelope.Envelope) { e.Sig = json.RawMessage(`"trust me"`) }, own, present, envelope.CodeSigUncheckable},
		{"missing where required", func(*testing.T, *envelope.Envelope) {}, own, required, envelope.CodeSigRequired},
	}
}

// judge compares what a sender was told with what a forgery demands.
func (f forgery) judge(t *testing.T, what string, reply *envelope.Envelope, err error) {
	t.Helper()
	if f.want == "" {
		if reply == nil || reply.Type == envelope.TypeResult && err != nil {
			t.Errorf("%s: %v, %v", what, reply, err)
		}
		return
	}
	if reply != nil || codeOf(err) != f.want {
		t.Errorf("%s was believed: %+v, %v; want %s", what, reply, err, f.want)
	}
	var problem *envelope.Error
	if errors.As(err, &problem) && !strings.HasPrefix(problem.Message, "reply ") {
		t.Errorf("%s: it is not said that the reply is meant: %q", what, problem.Message)
	}
}

// Mutation V3 of the traceability review.
func TestForgedLiveRepliesAreRefused(t *testing.T) {
	t.Parallel()
	for _, f := range forgeries(t, reviewer) {
		for _, kind := range []envelope.Type{envelope.TypeResult, envelope.TypeError, envelope.TypeStream} {
			t.Run(f.name+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				if _, err := r.nc.Subscribe(reviewer, func(msg *nats.Msg) {
					task := parse(t, msg.Data)
					reply := task.Reply(kind, json.RawMessage(`{"text":"forged"}`))
					if kind == envelope.TypeError {
						reply = task.ReplyError(envelope.Errorf(envelope.CodeDenied, "forged"))
					}
					f.make(t, reply)
					msg.Respond(encode(t, reply))
					if kind == envelope.TypeStream {
						end := task.Reply(envelope.TypeResult, json.RawMessage(`{}`))
						f.make(t, end)
						msg.Respond(encode(t, end))
					}
				}); err != nil {
					t.Fatal(err)
				}
				settle(t, r.nc)
				var streamed int
				reply, err := r.node(mesh.Config{Verifier: f.verifier}).Send(ctxFor(t), newTask(reviewer, "code.review", `{}`),
					mesh.SendOptions{OnStream: func(*envelope.Envelope) error { streamed++; return nil }})
				f.judge(t, string(kind), reply, err)
				if want := kind == envelope.TypeStream && f.want == ""; (streamed > 0) != want {
					t.Errorf("%d stream envelopes were passed on", streamed)
				}
			})
		}
	}
}

// Mutation V6 of the traceability review.
func TestForgedDurableRepliesAreRefused(t *testing.T) {
	t.Parallel()
	for _, f := range forgeries(t, reviewer) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			client := r.lane(mesh.Config{Entity: ada, Verifier: f.verifier})
			replies := jetstream.NewReplies(r.js(r.nc), r.m)
			for _, kind := range []envelope.Type{envelope.TypeResult, envelope.TypeError, envelope.TypeStream} {
				task := newTask(reviewer, "code.review", `{}`)
				r.submit(client, task) // no worker takes it
				reply := task.Reply(kind, json.RawMessage(`{"text":"forged"}`))
				if kind == envelope.TypeError {
					reply = task.ReplyError(envelope.Errorf(envelope.CodeDenied, "forged"))
				}
				sent := []*envelope.Envelope{reply}
				if kind == envelope.TypeStream {
					sent = append(sent, task.Reply(envelope.TypeResult, json.RawMessage(`{}`)))
				}
				for i, e := range sent {
					f.make(t, e)
					if err := replies.Publish(ctxFor(t), jetstream.Reply{Entity: reviewer, TaskID: task.ID, MsgID: e.ID,
						Header: nats.Header{jetstream.HeaderSeq: {fmt.Sprint(i + 1)}}, Data: encode(t, e)}); err != nil {
						t.Fatal(err)
					}
				}
				var streamed int
				onStream := func(*envelope.Envelope) error { streamed++; return nil }
				got, err := client.Result(ctxFor(t), reviewer, task.ID, mesh.ResultOptions{OnStream: onStream})
				f.judge(t, string(kind)+", read", got, err)
				got, err = client.Result(ctxFor(t), reviewer, task.ID, mesh.ResultOptions{Follow: true, OnStream: onStream})
				f.judge(t, string(kind)+", followed", got, err)
				_, got, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{OnStream: onStream})
				f.judge(t, string(kind)+", performed", got, err)
				if want := kind == envelope.TypeStream && f.want == ""; (streamed > 0) != want {
					t.Errorf("%d stream envelopes were passed on", streamed)
				}
			}
		})
	}
}

// Mutation V2 of the traceability review. A task that came unsigned may be ended by
// an unsigned command of its sender, so that nothing but the check of the command's
// own signature refuses a forged one.
func TestForgedCommandsAreRefused(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for _, f := range forgeries(t, ada) {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, durable %t", f.name, durable), func(t *testing.T) {
				t.Parallel()
				r := newDurableRig(t)
				g := newGate(t)
				r.serve(r.lane(mesh.Config{Verifier: f.verifier}), mesh.Agent{Handler: willing{g}})
				task := newTask(reviewer, "code.review", `{}`)
				if f.verifier.Mode == sign.Required && durable {
					durably(t, task)
				}
				if f.verifier.Mode == sign.Required {
					signed(t, f.own, task)
				}
				var end func() *envelope.Envelope
				if client := r.client(); durable {
					r.submit(client, task)
					end = func() *envelope.Envelope { reply, _ := r.result(client, task); return reply }
				} else {
					answers := r.send(task)
					end = func() *envelope.Envelope { return parse(t, within(t, "the task's end", answers).Data) }
				}
				within(t, "the task", g.entered)
				alerts := r.listen("bus.mesh.alert")
				cancel := cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID))
				f.make(t, cancel)
				answer := r.control(cancel)
				if f.want == "" {
					equal(t, "answer", parse(t, within(t, "the answer", answer).Data).Type, envelope.TypeResult)
					equal(t, "code", errorOf(t, end()).Code, envelope.CodeCancelled)
					return
				}
				equal(t, "alert", alertOf(t, parse(t, within(t, "an alert", alerts).Data)).Code, f.want)
				g.open()
				equal(t, "the task's end", end().Type, envelope.TypeResult)
				empty(t, "answers", answer)
			})
		}
	}
}

// Mutation V5 of the traceability review; of an answer, V6.
func TestForgedEnvelopesDoNotCountInAnInbox(t *testing.T) {
	t.Parallel()
	for _, f := range forgeries(t, reviewer, bob) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			client := r.lane(mesh.Config{Entity: bob, Verifier: f.verifier})
			deliver := func(sig func(*testing.T, *envelope.Envelope), e *envelope.Envelope) *envelope.Envelope {
				sig(t, e)
				if err := r.nc.Publish(bob, encode(t, e)); err != nil {
					t.Fatal(err)
				}
				settle(t, r.nc)
				return e
			}
			question := func() *envelope.Envelope {
				return envelope.New(envelope.TypeTask, reviewer, bob, "human.ask", json.RawMessage(`{"text":"May I?"}`))
			}
			honest := func(t *testing.T, e *envelope.Envelope) { signed(t, f.own, e) }
			want := []mesh.PersonTaskState{mesh.AskOpen, mesh.AskOpen}
			if f.want == "" {
				want = []mesh.PersonTaskState{mesh.AskWithdrawn, mesh.AskAnswered}
			}

			dubious := deliver(f.make, question())
			withdrawn, answered := deliver(honest, question()), deliver(honest, question())
			event := envelope.New(envelope.TypeEvent, reviewer, bob, intents.TaskWithdrawn, json.RawMessage(`{"reason":"forged"}`))
			event.Corr, event.ReplyTo = withdrawn.Corr, withdrawn.ID
			deliver(f.make, event)
			answer := answered.Reply(envelope.TypeResult, json.RawMessage(`{"text":"yes"}`))
			f.make(t, answer)
			if err := jetstream.NewReplies(r.js(r.nc), r.m).Publish(ctxFor(t), jetstream.Reply{Entity: bob, TaskID: answered.ID, MsgID: answer.ID,
				Header: nats.Header{jetstream.HeaderSeq: {"1"}}, Data: encode(t, answer)}); err != nil {
				t.Fatal(err)
			}
			last := deliver(honest, question()) // all before it has been stored before it
			eventually(t, "the last question is there", func() bool {
				_, err := client.FindAsk(ctxFor(t), bob, "", last.ID)
				return err == nil
			})

			states := map[string]mesh.PersonTaskState{}
			asks, err := client.PersonTasks(ctxFor(t), bob)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range asks {
				states[a.Task.ID] = a.State
			}
			equal(t, "states", []mesh.PersonTaskState{states[withdrawn.ID], states[answered.ID]}, want)
			if _, shown := states[dubious.ID]; shown != (f.want == "") {
				t.Errorf("the question of doubtful origin is shown: %t", shown)
			}
			if _, err := client.FindAsk(ctxFor(t), bob, "", dubious.ID); (err == nil) != (f.want == "") {
				t.Errorf("the question of doubtful origin: %v", err)
			}
		})
	}
}

// inboxOf is an inbox that a test fills. All calls put, and last waits until everything is stored.
type inboxOf struct {
	*durableRig
	client *mesh.Node
	signer *sign.Signer // nil: unsigned
}

func (b *inboxOf) put(signer *sign.Signer, e *envelope.Envelope) {
	b.t.Helper()
	e = e.Clone()
	if signer != nil {
		signed(b.t, signer, e)
	}
	if err := b.nc.Publish(e.To, encode(b.t, e)); err != nil {
		b.t.Fatal(err)
	}
	settle(b.t, b.nc)
}

// tasks returns the tasks of bob, once the inbox has stored everything that was put.
func (b *inboxOf) tasks() map[string]*mesh.PersonTask {
	b.t.Helper()
	end := envelope.New(envelope.TypeTask, reviewer, bob, "human.ask", json.RawMessage(`{"text":"the last"}`))
	b.put(b.signer, end)
	out := map[string]*mesh.PersonTask{}
	eventually(b.t, "everything is stored", func() bool {
		asks, err := b.client.PersonTasks(ctxFor(b.t), bob)
		if err != nil {
			b.t.Fatal(err)
		}
		clear(out)
		stored := false
		for _, a := range asks {
			if a.Task.ID == end.ID {
				stored = true
				continue
			}
			key := a.Task.From + " " + a.Task.ID
			if out[key] != nil {
				b.t.Errorf("%s is listed twice", key)
			}
			out[key] = a
		}
		return stored
	})
	return out
}

// A question that is signed is the agent's. An unsigned one with its id, from and corr does not
// take its place, whether it comes before or after, and neither does an unsigned withdrawal.
func TestAnUnsignedQuestionReplacesNoSignedOne(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	own := k.signer("own", sign.Ed25519, reviewer)
	question := func() *envelope.Envelope {
		e := envelope.New(envelope.TypeTask, reviewer, bob, "human.ask", json.RawMessage(`{"text":"May I?"}`))
		e.Requires = json.RawMessage(`{"timeout_ms":3600000}`)
		return e
	}
	forge := func(e *envelope.Envelope, corr string) *envelope.Envelope {
		f := e.Clone()
		f.Payload, f.Requires = json.RawMessage(`{"text":"Pay?"}`), json.RawMessage(`{"timeout_ms":1,"escalate_to":"agent.eve","result_schema":{"type":"null"}}`)
		f.Corr = corr
		return f
	}
	withdrawal := func(e *envelope.Envelope) *envelope.Envelope {
		w := envelope.New(envelope.TypeEvent, e.From, bob, intents.TaskWithdrawn, json.RawMessage(`{"reason":"gone"}`))
		w.Corr, w.ReplyTo = e.Corr, e.ID
		return w
	}
	for name, c := range map[string]struct {
		fill func(b *inboxOf, e *envelope.Envelope)
		want mesh.PersonTaskState
	}{
		"a forgery after it": {func(b *inboxOf, e *envelope.Envelope) {
			b.put(own, e)
			b.put(nil, forge(e, e.Corr))
			b.put(nil, withdrawal(e))
		}, mesh.AskOpen},
		"a forgery before it": {func(b *inboxOf, e *envelope.Envelope) {
			b.put(nil, forge(e, e.Corr))
			b.put(nil, withdrawal(e))
			b.put(own, e)
		}, mesh.AskOpen},
		"a forgery before it, of another corr": {func(b *inboxOf, e *envelope.Envelope) {
			b.put(nil, forge(e, "another-corr"))
			b.put(own, e)
			b.put(nil, withdrawal(e))
		}, mesh.AskOpen},
		"a signed withdrawal": {func(b *inboxOf, e *envelope.Envelope) {
			b.put(own, e)
			b.put(own, withdrawal(e))
			b.put(own, e)
		}, mesh.AskWithdrawn},
		"a signed withdrawal between": {func(b *inboxOf, e *envelope.Envelope) {
			b.put(nil, e)
			b.put(own, withdrawal(e))
			b.put(own, e)
		}, mesh.AskWithdrawn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			b := &inboxOf{r, r.lane(mesh.Config{Entity: bob, Verifier: k.verifier()}), own}
			e := question()
			c.fill(b, e)
			a := b.tasks()[reviewer+" "+e.ID]
			if a == nil {
				t.Fatal("the question is not shown")
			}
			equal(t, "state", a.State, c.want)
			equal(t, "question", string(a.Task.Payload), `{"text":"May I?"}`)
			equal(t, "corr", a.Task.Corr, e.Corr)
			if a.Task.Sig == nil || a.Until.Sub(a.Stored) < time.Minute || a.EscalateTo != "" || a.Schema != nil {
				t.Errorf("it is %+v", a)
			}
			var told []string
			ctx, cancel := context.WithCancel(ctxFor(t))
			err := b.client.FollowInbox(ctx, bob, func(a *mesh.PersonTask) error {
				told = append(told, string(a.Task.Payload))
				if a.Task.ID != e.ID {
					cancel()
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) || len(told) < 2 || !slices.Contains(told, `{"text":"May I?"}`) {
				t.Errorf("a follower was told %q, %v", told, err)
			}
			if c.want == mesh.AskWithdrawn {
				return
			}
			if a, err = b.client.FindAsk(ctxFor(t), bob, "", e.ID); err != nil {
				t.Fatal(err)
			}
			if err := b.client.AnswerPersonTask(ctxFor(t), a, e.Reply(envelope.TypeResult, json.RawMessage(`{"text":"yes"}`))); err != nil {
				t.Errorf("the answer: %v", err)
			}
		})
	}
}

// Ids of hops can be computed. A sender that uses the id of another sender's question under its own
// name, and first, hides nothing.
func TestTwoSendersMayUseOneIDInAnInbox(t *testing.T) {
	t.Parallel()
	const eve = "agent.eve"
	r, k := newDurableRig(t), newKeys(t)
	own, eves, bobs := k.signer("own", sign.Ed25519, reviewer), k.signer("eve", sign.Ed25519, eve), k.signer("bob", sign.Ed25519, bob)
	required := k.verifier()
	required.Mode = sign.Required
	b := &inboxOf{r, r.lane(mesh.Config{Entity: bob, Verifier: required, Signer: bobs}), own}
	real := envelope.New(envelope.TypeTask, reviewer, bob, "human.ask", json.RawMessage(`{"text":"May I?"}`))
	squat := envelope.New(envelope.TypeTask, eve, bob, "human.ask", json.RawMessage(`{"text":"Pay?"}`))
	squat.ID = real.ID
	b.put(eves, squat)
	b.put(own, real)
	w := envelope.New(envelope.TypeEvent, eve, bob, intents.TaskWithdrawn, json.RawMessage(`{"reason":"gone"}`))
	w.Corr, w.ReplyTo = real.Corr, real.ID
	b.put(eves, w)

	asks := b.tasks()
	if asks[reviewer+" "+real.ID] == nil || asks[eve+" "+real.ID] == nil {
		t.Fatalf("shown are %v", asks)
	}
	equal(t, "the withdrawn one", asks[eve+" "+real.ID].State, mesh.AskWithdrawn)
	equal(t, "the other", asks[reviewer+" "+real.ID].State, mesh.AskOpen)

	if _, err := b.client.FindAsk(ctxFor(t), bob, "", real.ID); !errors.Is(err, mesh.ErrSeveralAsks) || !strings.Contains(err.Error(), eve) || !strings.Contains(err.Error(), reviewer) {
		t.Errorf("the id alone: %v", err)
	}
	ask, err := b.client.FindAsk(ctxFor(t), bob, reviewer, real.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.answer(b.client, ask, `{"text":"yes"}`)
	asks = b.tasks()
	equal(t, "the withdrawn one", asks[eve+" "+real.ID].State, mesh.AskWithdrawn)
	equal(t, "the other", asks[reviewer+" "+real.ID].State, mesh.AskAnswered)
}

// A stored reply is read for as long as it is kept: its key must be valid when the server
// stores it, not when it is read. A key that was revoked is believed nothing.
func TestAStoredReplyOutlivesItsKey(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	k := newKeys(t)
	own := k.signer("own", sign.Ed25519, reviewer)
	required := sign.Verifier{Ring: k.ring, Mode: sign.Required}
	r.serve(r.lane(mesh.Config{Signer: own}), mesh.Agent{Handler: echo})
	client, task := r.lane(mesh.Config{Entity: ada, Verifier: required}), newTask(reviewer, "code.review", `{}`)
	before := time.Now()
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*sign.Key)
		want   envelope.Code
	}{
		{"expired since", func(k *sign.Key) { k.Expires = time.Now() }, ""},
		{"expired before", func(k *sign.Key) { k.Expires = before.Add(-time.Second) }, envelope.CodeKeyInvalid},
		{"revoked since", func(k *sign.Key) { k.Revoked = true }, envelope.CodeKeyInvalid},
	} {
		key, _ := k.ring.Lookup("own")
		c.change(&key)
		if err := k.ring.Put(sign.Local, key); err != nil {
			t.Fatal(err)
		}
		for _, follow := range []bool{false, true} {
			_, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{Follow: follow})
			if codeOf(err) != c.want {
				t.Errorf("%s, follow %v: %v, want %q", c.name, follow, err, c.want)
			}
		}
	}
}

// So is the reply to a task that was delegated: the key of the agent that delegated it may expire
// before the other agent answers.
func TestAReplyToADelegatedTaskOutlivesTheKeyOfItsChain(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"live", "durable"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			r, p := newDurableRig(t), newParty(t, true)
			r.serve(r.lane(p.config(t, "agent.a")), mesh.Agent{Entity: "agent.a", Handler: handsTo("agent.b")})
			g := newGate(t)
			r.serve(r.lane(p.config(t, "agent.b")), mesh.Agent{Entity: "agent.b", Handler: g})
			r.hears("agent.b")
			client, task := r.lane(p.config(t, ada)), newTask("agent.a", "x.y.z", `{}`)
			type answer struct {
				reply *envelope.Envelope
				err   error
			}
			got := make(chan answer, 1)
			go func() {
				var a answer
				if lane == "live" {
					a.reply, a.err = client.Send(ctxFor(t), task, mesh.SendOptions{})
				} else {
					_, a.reply, a.err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
				}
				got <- a
			}()
			within(t, "agent.b has the task", g.entered)
			p.keys.change("agent.a", func(k *sign.Key) { k.Expires = time.Now() })
			g.open()
			if a := within(t, "the answer", got); a.err != nil || a.reply.From != "agent.b" {
				t.Fatalf("%v, %v", show(a.reply), a.err)
			}
			if lane == "live" {
				return
			}
			p.keys.change("agent.a", func(k *sign.Key) { k.Revoked = true })
			if _, err := client.Result(ctxFor(t), task.To, task.ID, mesh.ResultOptions{}); codeOf(err) != envelope.CodeKeyInvalid {
				t.Errorf("revoked since: %v", err)
			}
		})
	}
}

// A reply that is stored on a task's reply subject must answer that task, and come from its addressee.
func TestStoredReplyThatIsNotForTheTaskIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(reply *envelope.Envelope)
		want   string
	}{
		"foreign corr":     {func(e *envelope.Envelope) { e.Corr = "another-corr" }, "foreign corr another-corr"},
		"foreign reply_to": {func(e *envelope.Envelope) { e.ReplyTo = "another-task" }, "it answers another-task, not "},
		"foreign stream":   {func(e *envelope.Envelope) { e.Type, e.ReplyTo = envelope.TypeStream, "another-task" }, "it answers another-task, not "},
		"a task":           {func(e *envelope.Envelope) { e.Type = envelope.TypeTask }, "an envelope of type task is no answer"},
		"foreign from":     {func(e *envelope.Envelope) { e.From = "agent.eve" }, "comes from agent.eve"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			client, task := r.client(), newTask(reviewer, "code.review", `{}`)
			r.submit(client, task) // no worker takes it
			reply := task.Reply(envelope.TypeResult, json.RawMessage(`{"text":"forged"}`))
			c.change(reply)
			if err := jetstream.NewReplies(r.js(r.nc), r.m).Publish(ctxFor(t), jetstream.Reply{Entity: reviewer, TaskID: task.ID, MsgID: reply.ID,
				Header: nats.Header{jetstream.HeaderSeq: {"1"}}, Data: encode(t, reply)}); err != nil {
				t.Fatal(err)
			}
			streamed := 0
			_, got, err := client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{OnStream: func(*envelope.Envelope) error { streamed++; return nil }})
			if got != nil || streamed > 0 || codeOf(err) != envelope.CodeInvalidEnvelope || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %d stream envelopes, %v; want %q", got, streamed, err, c.want)
			}
		})
	}
}

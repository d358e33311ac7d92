package mesh_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

var wantsOK = map[string]json.RawMessage{"result_schema": json.RawMessage(`{"type":"object","required":["ok"]}`)}

// An answer by plain NATS that does not fit the schema that was asked for does
// not count; the next that does, does.
func TestAnAnswerThatDoesNotFitDoesNotCount(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}, timeout: time.Hour, more: wantsOK}})
	client := r.client()
	for _, live := range []bool{false, true} {
		task := requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":20000}`)
		done := make(chan string, 1)
		if live {
			go func() {
				reply, err := client.Send(ctxFor(t), task, mesh.SendOptions{})
				if err != nil {
					done <- err.Error()
					return
				}
				done <- string(reply.Payload)
			}()
		} else {
			r.submit(client, task)
		}
		var ask *mesh.PersonTask
		eventually(t, "bob is asked", func() bool {
			asks, _ := client.PersonTasks(ctxFor(t), bob)
			for _, a := range asks {
				if a.Task.Corr == task.Corr {
					ask = a
				}
			}
			return ask != nil
		})
		parked := uint64(0)
		if !live {
			parked = r.waits(task).Mesh.Epoch
		}
		say := func(payload string) {
			t.Helper()
			if err := r.nc.Publish("aee.reply."+bob+"."+ask.Task.ID, encode(t, ask.Task.Reply(envelope.TypeResult, json.RawMessage(payload)))); err != nil {
				t.Fatal(err)
			}
		}
		say(`{"nope":1}`)
		var seen *mesh.PersonTask
		eventually(t, "the misfit is stored", func() (ok bool) {
			seen, _ = client.FindAsk(ctxFor(t), bob, "", ask.Task.ID)
			return seen != nil && seen.Misfit != nil
		})
		if seen.State != mesh.AskOpen || seen.Answer != nil || string(seen.Misfit.Payload) != `{"nope":1}` {
			t.Errorf("the ask is %+v", seen)
		}
		if err := client.AnswerPersonTask(ctxFor(t), seen, ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"no":1}`))); !errors.Is(err, mesh.ErrMisfit) {
			t.Errorf("a misfit through the node: %v", err)
		}
		say(`{"ok":true}`)
		if !live {
			reply, err := r.result(client, task)
			if err != nil {
				t.Fatal(err)
			}
			done <- string(reply.Payload)
			if epochs := r.record(task).Mesh.Epoch - parked; epochs != 2 { // of who woke it, and of who took it
				t.Errorf("the run was woken for what does not count: %d epochs", epochs)
			}
		}
		equal(t, "result", within(t, "the result", done), `{"human.bob":"{\"ok\":true}"}`)
	}
}

// An answer that is meant for another task or agent does not count, and does not wake the
// run: one that was accepted in one place and refused in the other woke it again and again.
func TestAnAnswerToAnotherDoesNotCount(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}, timeout: time.Hour}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	ask := r.asked(client, bob).Task
	parked := r.waits(task).Mesh.Epoch
	say := func(change func(*envelope.Envelope)) {
		t.Helper()
		e := ask.Reply(envelope.TypeResult, json.RawMessage(`{"ok":true}`))
		change(e)
		if err := r.nc.Publish("aee.reply."+bob+"."+ask.ID, encode(t, e)); err != nil {
			t.Fatal(err)
		}
	}
	for want, change := range map[string]func(*envelope.Envelope){
		"foreign corr other-corr-1":                  func(e *envelope.Envelope) { e.Corr = "other-corr-1" },
		"it is for agent.other, not for " + reviewer: func(e *envelope.Envelope) { e.To = "agent.other" },
		"comes from human.mallory":                   func(e *envelope.Envelope) { e.From = "human.mallory" },
		"of type event":                              func(e *envelope.Envelope) { e.Type = envelope.TypeEvent },
	} {
		say(change)
		var why error
		eventually(t, want, func() bool {
			seen, err := client.FindAsk(ctxFor(t), bob, "", ask.ID)
			if err != nil || seen.State != mesh.AskOpen {
				t.Fatalf("%s: %+v, %v", want, seen, err)
			}
			why = seen.Invalid
			return why != nil && strings.Contains(why.Error(), want)
		})
	}
	say(func(e *envelope.Envelope) { e.Intent, e.Priority = "code.reviewed", envelope.PriorityHigh })
	reply, err := r.result(client, task)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "result", string(reply.Payload), `{"human.bob":"{\"ok\":true}"}`)
	if epochs := r.record(task).Mesh.Epoch - parked; epochs != 2 { // of who woke it, and of who took it
		t.Errorf("the run was woken for what does not count: %d epochs", epochs)
	}
}

// A run whose task is larger than envelopes are by default waits, and wakes, like others.
func TestARunWithALargeTaskWakes(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := (&durableRig{rig: rigWith(t, natsd.Config{JetStream: true, MaxPayload: 8 << 20})}).under("")
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}, timeout: time.Hour, payload: json.RawMessage(`{}`)}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"text":"`+strings.Repeat("x", 2<<20)+`"}`)
	r.submit(client, task)
	ask := r.asked(client, bob)
	r.waits(task)
	if err := client.AnswerPersonTask(ctxFor(t), ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"ok":true}`))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
}

// A run whose task came as CBOR wakes also if the task takes more room as JSON, in which form the
// record has it, than a message may have.
func TestARunWakesWhoseTaskIsTooLargeAsJSON(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	r := (&durableRig{rig: rigWith(t, natsd.Config{JetStream: true, MaxPayload: limit})}).under("")
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}, timeout: time.Hour, payload: json.RawMessage(`{}`)}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"text":"`+strings.Repeat(`\n`, limit*2/3)+`"}`)
	if _, err := client.Submit(ctxFor(t), task, mesh.SubmitOptions{CBOR: true}); err != nil {
		t.Fatal(err)
	}
	ask := r.asked(client, bob)
	if c := r.waits(task); len(c.Mesh.Task) <= limit {
		t.Fatalf("the task has %d bytes as JSON: they fit a message", len(c.Mesh.Task))
	}
	if err := client.AnswerPersonTask(ctxFor(t), ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"ok":true}`))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.result(client, task); err != nil {
		t.Error(err)
	}
}

// What a person has answered is final: an error that says that it may be retried does not
// have the person asked again.
func TestAPersonsErrorIsNotRetried(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}, timeout: time.Hour}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	ask := r.asked(client, bob)
	busy := ask.Task.ReplyError(&envelope.Error{Code: envelope.CodeBusy, Message: "not today", Retryable: true})
	if err := client.AnswerPersonTask(ctxFor(t), ask, busy); err != nil {
		t.Fatal(err)
	}
	reply, err := r.result(client, task)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "result", string(reply.Payload), `{"human.bob":"E_DECLINED: not today"}`)
	if asks, err := client.PersonTasks(ctxFor(t), bob); err != nil || len(asks) != 1 {
		t.Errorf("%d questions, %v", len(asks), err)
	}
}

// A person is not asked for a member that is not in the schema.
func TestAPersonIsNotAskedForWhatIsNoSchema(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}, more: map[string]json.RawMessage{"result_schema": json.RawMessage(`{"type":"objekt"}`)}}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeRequires {
		t.Errorf("%v", err)
	}
	if asks, err := client.PersonTasks(ctxFor(t), bob); err != nil || len(asks) != 0 {
		t.Errorf("bob was asked: %v, %v", asks, err)
	}
}

package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

func TestAPersonIsAskedAndTheRunWaitsWithoutAPlace(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	events := r.events()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Concurrency: 1, Handler: asking{people: []string{bob}, timeout: time.Hour, more: map[string]json.RawMessage{"result_schema": json.RawMessage(`{"type":"object","required":["ok"]}`)}}, Timeout: time.Minute})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{"text":"may I?"}`), `{"timeout_ms":7200000}`)
	task.Priority = envelope.PriorityHigh
	r.submit(client, task)
	ask := r.asked(client, bob)
	c := r.waits(task)
	r.drainedQueue() // no lease is held

	e := ask.Task
	if e.From != reviewer || e.To != bob || e.Corr != task.Corr || e.ReplyTo != task.ID || e.Intent != intents.HumanAsk || e.Priority != envelope.PriorityHigh || string(e.Payload) != `{"text":"may I?"}` {
		t.Errorf("the task is %+v", e)
	}
	equal(t, "state", ask.State, mesh.AskOpen)
	equal(t, "schema", string(ask.Schema), `{"type":"object","required":["ok"]}`)
	if d := ask.Until.Sub(ask.Stored); d < time.Hour-time.Minute || d > time.Hour+time.Second {
		t.Errorf("the answer counts for %v", d)
	}
	waiting := r.event(events, intents.RunWaiting)
	equal(t, "event", member(t, waiting.Payload, "to")+member(t, waiting.Payload, "child"), `"`+bob+`""`+e.ID+`"`)
	request := c.Doc.ApprovalRequest
	if request == nil || request.ApproverHint != bob || request.TimeoutAt != state.Time(ask.Until) || request.RequestedAt == "" || !strings.Contains(string(request.PendingAction), e.ID) {
		t.Errorf("approval request %+v", request)
	}
	if len(c.Mesh.Waits) != 1 || c.Mesh.Waits[0].Entity != bob || c.Mesh.Waits[0].TaskID != e.ID {
		t.Errorf("waits %+v", c.Mesh.Waits)
	}

	other := newTask(reviewer, "code.review", `{"text":"and this?"}`) // the one place is free
	r.submit(client, other)
	eventually(t, "bob is asked twice", func() bool {
		asks, _ := client.PersonTasks(ctxFor(t), bob)
		return len(asks) == 2
	})

	r.answer(client, ask, `{"ok":true}`)
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"human.bob":"{\"ok\":true}"}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	sent, err := client.FindAsk(ctxFor(t), bob, "", e.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.AnswerPersonTask(ctxFor(t), ask, sent.Answer); err != nil {
		t.Errorf("the same answer again: %v", err)
	}
	again, err := client.FindAsk(ctxFor(t), bob, "", e.ID)
	if err != nil || again.State != mesh.AskAnswered || string(again.Answer.Payload) != `{"ok":true}` {
		t.Errorf("the ask is %+v, %v", again, err)
	}
	if err := client.AnswerPersonTask(ctxFor(t), again, e.Reply(envelope.TypeResult, json.RawMessage(`{"ok":false}`))); !errors.Is(err, mesh.ErrAnswered) {
		t.Errorf("a second answer: %v", err)
	}
	if r.record(task).Doc.ApprovalRequest != nil {
		t.Error("a run that has ended asks for approval")
	}
}

// Every NATS subscriber can answer: the first valid answer counts.
func TestAPersonAnswersWithPlainNATS(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	ask := r.asked(client, bob).Task
	r.waits(task)
	on := "aee.reply." + bob + "." + ask.ID
	say := func(e *envelope.Envelope) {
		t.Helper()
		if err := r.nc.Publish(on, encode(t, e)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.nc.Publish(on, []byte("yes")); err != nil { // no envelope
		t.Fatal(err)
	}
	stranger := ask.Reply(envelope.TypeResult, json.RawMessage(`{"by":"a stranger"}`))
	stranger.From = cleo
	say(stranger)
	foreign := ask.Reply(envelope.TypeResult, json.RawMessage(`{"by":"another corr"}`))
	foreign.Corr = "somebody-elses"
	say(foreign)
	say(ask.Reply(envelope.TypeResult, json.RawMessage(`{"by":"bob"}`)))
	say(ask.Reply(envelope.TypeResult, json.RawMessage(`{"by":"bob, too late"}`)))
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"human.bob":"{\"by\":\"bob\"}"}` {
		t.Fatalf("result %v, %v", reply, err)
	}
}

// The workers are gone when the answer comes, and so are those that asked.
func TestAnAnswerIsFoundByWorkersThatStartLater(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	for _, before := range []bool{false, true} {
		nc := r.lane(mesh.Config{})
		stop := r.serving(nc, mesh.Agent{Handler: asking{people: []string{bob}}})
		client := r.client()
		task := newTask(reviewer, "code.review", fmt.Sprintf(`{"before":%t}`, before))
		r.submit(client, task)
		r.waits(task)
		asks, err := client.PersonTasks(ctxFor(t), bob)
		if err != nil {
			t.Fatal(err)
		}
		ask := asks[len(asks)-1]
		stop()
		if before {
			r.answer(client, ask, `{"ok":1}`)
		}
		stop = r.serving(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}}})
		if !before {
			r.answer(client, ask, `{"ok":1}`)
		}
		reply, err := r.result(client, task)
		if err != nil || string(reply.Payload) != `{"human.bob":"{\"ok\":1}"}` {
			t.Errorf("before %t: result %v, %v", before, reply, err)
		}
		stop()
	}
	asks, err := r.client().PersonTasks(ctxFor(t), "")
	if err != nil || len(asks) != 2 {
		t.Errorf("%d tasks for people, %v; want 2", len(asks), err)
	}
}

func TestAPersonDeclines(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	ask := r.asked(client, bob)
	no := ask.Task.ReplyError(envelope.Errorf(envelope.CodeDeclined, "not my department"))
	if err := client.AnswerPersonTask(ctxFor(t), ask, no); err != nil {
		t.Fatal(err)
	}
	reply, err := r.result(client, task)
	if err != nil || !strings.Contains(string(reply.Payload), "E_DECLINED: not my department") {
		t.Errorf("result %v, %v", reply, err)
	}
}

// No person answers in time: the run goes on by itself, the person is told, and an
// answer that comes then does not count. Another person is asked instead, by a
// worker that did not begin the run.
func TestAnAnswerIsTooLateAndSomebodyElseIsAsked(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newDurableRig(t)
	agent := mesh.Agent{Handler: asking{people: []string{bob}, then: boss, timeout: 1200 * time.Millisecond, more: map[string]json.RawMessage{"escalate_to": json.RawMessage(`"human.boss"`)}}}
	stop := r.serving(r.lane(mesh.Config{}), agent)
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	ask := r.asked(client, bob)
	equal(t, "escalates to", ask.EscalateTo, boss)
	r.waits(task)
	stop()
	defer r.serving(r.lane(mesh.Config{}), agent)()
	second := r.asked(client, boss)
	eventually(t, "bob is told", func() bool {
		var err error
		if ask, err = client.FindAsk(ctxFor(t), bob, "", ask.Task.ID); err != nil {
			t.Fatal(err)
		}
		return ask.State == mesh.AskWithdrawn
	})
	equal(t, "why", ask.Reason, "there was no answer in time; it is with human.boss now")
	if err := client.AnswerPersonTask(ctxFor(t), ask, ask.Task.Reply(envelope.TypeResult, nil)); !errors.Is(err, mesh.ErrTooLate) {
		t.Errorf("a late answer: %v", err)
	}
	late := ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"late":true}`))
	if err := r.nc.Publish("aee.reply."+bob+"."+ask.Task.ID, encode(t, late)); err != nil {
		t.Fatal(err)
	}
	r.answer(client, second, `{"ok":true}`)
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"human.bob":"E_TIMEOUT: human.bob did not answer in time","human.boss":"{\"ok\":true}"}` {
		t.Errorf("result %v, %v", reply, err)
	}
	if ask, err = client.FindAsk(ctxFor(t), bob, "", ask.Task.ID); err != nil || ask.State != mesh.AskWithdrawn || ask.Late == nil {
		t.Errorf("ask %+v, %v", ask, err)
	}
}

// A run may wait for a time: it goes on then, or ends when the task's own time is
// over, by itself.
func TestARunWaitsForItsTime(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		run := task.Run()
		if run.View().Mesh.Plan != nil {
			return json.RawMessage(`{"woken":true}`), nil
		}
		pause := time.Hour
		if string(task.Envelope.Payload) == `{"soon":true}` {
			pause = 200 * time.Millisecond
		}
		return nil, run.ParkUntil(ctx, mesh.Wake{At: time.Now().Add(pause)}, func(c *state.Checkpoint) error {
			c.Mesh.Plan = json.RawMessage(`{}`)
			return nil
		})
	})})
	client := r.client()
	late := requiring(newTask(reviewer, "code.review", `{"soon":false}`), `{"timeout_ms":1500}`)
	r.submit(client, late)
	soon := newTask(reviewer, "code.review", `{"soon":true}`)
	r.submit(client, soon)
	if reply, err := r.result(client, soon); err != nil || string(reply.Payload) != `{"woken":true}` {
		t.Errorf("result %v, %v", reply, err)
	}
	if _, err := r.result(client, late); !isCode(err, envelope.CodeTimeout) {
		t.Errorf("result %v", err)
	}
	r.drainedQueue()
}

func TestOfThreePeopleTwoAreEnough(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob, cleo, boss}, enough: 2}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	asks := map[string]*mesh.PersonTask{}
	for _, who := range []string{bob, cleo, boss} {
		asks[who] = r.asked(client, who)
	}
	r.answer(client, asks[cleo], `{"n":1}`)
	eventually(t, "one has answered, two are waited for", func() bool {
		c := r.begun(task)
		return c != nil && c.Doc.Status == aaif.RunAwaitingApproval && len(c.Mesh.Waits) == 2
	})
	r.answer(client, asks[bob], `{"n":2}`)
	reply, err := r.result(client, task)
	if err != nil || string(reply.Payload) != `{"human.bob":"{\"n\":2}","human.cleo":"{\"n\":1}"}` {
		t.Fatalf("result %v, %v", reply, err)
	}
	eventually(t, "the third is told", func() bool {
		ask, err := client.FindAsk(ctxFor(t), boss, "", asks[boss].Task.ID)
		return err == nil && ask.State == mesh.AskWithdrawn && ask.Reason == "the run has ended"
	})
}

func TestCancelOfARunThatWaitsTellsThePerson(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	run := r.submit(client, task).Run
	ask := r.asked(client, bob)
	r.waits(task)
	if out := r.command(client, intents.CancelTask{Run: run, Reason: "never mind"}); !out.Cancelled {
		t.Errorf("answer %+v", out)
	}
	r.cancelled(client, task)
	eventually(t, "bob is told", func() bool {
		ask, err := client.FindAsk(ctxFor(t), bob, "", ask.Task.ID)
		return err == nil && ask.State == mesh.AskWithdrawn && strings.Contains(ask.Reason, "never mind")
	})
}

// A pause holds a run that waits when it is woken. It does not leave the mesh with the answer unread:
// another platform would ask the person again.
func TestPauseOfARunThatWaits(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	ask := r.asked(client, bob)
	r.waits(task)
	out := r.command(client, intents.PauseTask{Target: target(task)})
	equal(t, "status", out.Status, "pausing")
	r.answer(client, ask, `{"ok":true}`)
	eventually(t, "the run is paused", func() bool { return r.record(task).Doc.Status == aaif.RunPaused })
	_, err := client.Command(ctxFor(t), reviewer, intents.MigrateTask{Target: target(task), To: intents.MigrateFile, Platform: "other"})
	if !isCode(err, envelope.CodeDenied) || !strings.Contains(err.Error(), bob) {
		t.Errorf("move: %v", err)
	}
	if out := r.command(client, intents.ResumeTask{Target: target(task)}); !out.Resumed {
		t.Errorf("answer %+v", out)
	}
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"human.bob":"{\"ok\":true}"}` {
		t.Fatalf("result %v, %v", reply, err)
	}
}

// Another mesh would not hear the answer.
func TestARunThatWaitsDoesNotLeaveTheMesh(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	r.waits(task)
	_, err := client.Command(ctxFor(t), reviewer, intents.MigrateTask{Target: target(task), To: intents.MigrateFile, Platform: "other"})
	if !isCode(err, envelope.CodeDenied) || !strings.Contains(err.Error(), bob) {
		t.Errorf("move: %v", err)
	}
}

// A move out of the mesh that is asked for when the answer has come, and no place is free to read it,
// waits until it is read.
func TestARunReadsItsAnswerBeforeItLeavesTheMesh(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	other := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Concurrency: 1, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if string(task.Envelope.Payload) == `{"other":true}` {
			return other.Handle(ctx, task)
		}
		said, err := asking{people: []string{bob}}.Handle(ctx, task)
		if err == nil {
			err = task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, func(c *state.Checkpoint) error {
				c.SetVariable("said", []byte(said))
				return nil
			})
		}
		return said, err
	})})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	ask := r.asked(client, bob)
	r.waits(task)
	r.submit(client, newTask(reviewer, "code.review", `{"other":true}`))
	within(t, "the other task", other.entered)
	r.answer(client, ask, `{"ok":true}`)
	eventually(t, "the run goes on", func() bool { return r.record(task).Doc.Status == aaif.RunRunning })
	out := r.command(client, intents.MigrateTask{Target: target(task), To: intents.MigrateFile, Platform: "other"})
	equal(t, "status", out.Status, "moving")
	other.open()
	eventually(t, "the run has stopped for its export", func() bool { return r.record(task).Doc.Status == aaif.RunMigrating })
	equal(t, "what bob said", string(r.record(task).Variables()["said"]), `{"human.bob":"{\"ok\":true}"}`)
}

// A task of the live lane waits with its place.
func TestALiveTaskWaitsForAPerson(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}, timeout: time.Minute}})
	client := r.client()
	done := make(chan *envelope.Envelope, 1)
	go func() {
		reply, err := client.Send(ctxFor(t), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{})
		if err != nil {
			t.Error(err)
		}
		done <- reply
	}()
	r.answer(client, r.asked(client, bob), `{"ok":true}`)
	if reply := within(t, "the result", done); reply != nil && string(reply.Payload) != `{"human.bob":"{\"ok\":true}"}` {
		t.Errorf("result %s", reply.Payload)
	}
}

// A run that waits for an agent that waits for a person holds no place either, and a
// cancel reaches the person through both.
func TestACallOfARunThatWaitsIsWaitedForWithoutAPlace(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	const inner = "agent.inner"
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: inner, Handler: asking{people: []string{bob}}})
	r.hears(inner)
	stop := r.serving(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{inner}}})
	client := r.client()
	task, other := newTask(reviewer, "code.review", `{"n":1}`), newTask(reviewer, "code.review", `{"n":2}`)
	r.submit(client, task)
	ask := r.asked(client, bob)
	c := r.waits(task)
	if len(c.Mesh.Waits) != 1 || c.Mesh.Waits[0].Entity != inner || c.Mesh.Waits[0].TaskID != ask.Task.ReplyTo {
		t.Errorf("waits %+v", c.Mesh.Waits)
	}
	r.drainedQueue()
	stop()
	r.answer(client, ask, `{"ok":true}`)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{inner}}})
	reply, err := r.result(client, task)
	if err != nil || !strings.Contains(string(reply.Payload), `ok`) {
		t.Fatalf("result %v, %v", reply, err)
	}

	r.submit(client, other)
	r.waits(other)
	r.command(client, intents.CancelTask{ID: other.ID, Reason: "never mind"})
	r.cancelled(client, other)
	eventually(t, "bob is told", func() bool {
		asks, err := client.PersonTasks(ctxFor(t), bob)
		return err == nil && len(asks) == 2 && asks[1].State == mesh.AskWithdrawn
	})
}

// So does one that waits for an agent that delegated the task to one that waits for a person.
func TestACallThatWasDelegatedToARunThatWaitsIsWaitedForWithoutAPlace(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	const middle, inner = "agent.middle", "agent.inner"
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: inner, Handler: asking{people: []string{bob}}})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: middle, Handler: handsTo(inner)})
	r.hears(inner, middle)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{middle}}})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	ask := r.asked(client, bob)
	c := r.waits(task)
	if len(c.Mesh.Waits) != 1 || c.Mesh.Waits[0].Entity != middle {
		t.Errorf("waits %+v", c.Mesh.Waits)
	}
	r.drainedQueue()
	r.answer(client, ask, `{"ok":true}`)
	reply, err := r.result(client, task)
	if err != nil || !strings.Contains(string(reply.Payload), `ok`) {
		t.Fatalf("result %v, %v", reply, err)
	}
}

// A message by an entity that may not speak for the asker changes nothing.
func TestAStrangerTakesNothingBack(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: asking{people: []string{bob}}})
	client := r.client()
	r.submit(client, newTask(reviewer, "code.review", `{}`))
	ask := r.asked(client, bob)
	e := envelope.New(envelope.TypeEvent, "agent.mallory", bob, intents.TaskWithdrawn, nil)
	e.Corr, e.ReplyTo = ask.Task.Corr, ask.Task.ID
	twin := ask.Task.Clone()
	twin.From = "agent.mallory"
	for _, e := range []*envelope.Envelope{e, twin} {
		if err := r.nc.PublishMsg(&nats.Msg{Subject: bob, Data: encode(t, e)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	r.answer(client, ask, `{"ok":true}`)
	var asks []*mesh.PersonTask
	eventually(t, "all is stored", func() bool {
		asks, _ = client.PersonTasks(ctxFor(t), bob)
		return len(asks) == 2
	})
	if asks[0].State != mesh.AskAnswered || asks[0].Task.From != reviewer {
		t.Errorf("the question: %+v", asks[0])
	}
	if asks[1].State != mesh.AskOpen || asks[1].Task.From != "agent.mallory" { // a question of its own, under the same id
		t.Errorf("the stranger's question: %+v", asks[1])
	}
}

// A captured task that is sent to a person again changes nothing, and does not come back when the
// inbox has forgotten it.
func TestACapturedTaskForAPersonIsNotANewOne(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	r := newDurableRig(t)
	lead := k.signer("lead", sign.Ed25519, "agent.lead")
	client := r.lane(mesh.Config{Entity: ada, Verifier: k.verifier()})
	task := func(age time.Duration) []byte {
		e := envelope.New(envelope.TypeTask, "agent.lead", bob, intents.HumanAsk, json.RawMessage(`{}`))
		e.TS, e.Requires = time.Now().Add(-age).UTC().Format(envelope.TimeLayout), json.RawMessage(`{"timeout_ms":3600000}`)
		return encode(t, signed(t, lead, e))
	}
	put := func(data []byte) {
		t.Helper()
		if _, err := r.js(r.nc).Publish(ctxFor(t), bob, data); err != nil {
			t.Fatal(err)
		}
	}
	inbox := func() []*mesh.PersonTask {
		t.Helper()
		asks, err := client.PersonTasks(ctxFor(t), bob)
		if err != nil {
			t.Fatal(err)
		}
		return asks
	}
	put(task(40 * 24 * time.Hour))
	put(task(-time.Hour))
	if asks := inbox(); len(asks) > 0 {
		t.Errorf("a task of another time is shown: %+v", asks[0])
	}
	captured := task(0)
	put(captured)
	first := inbox()
	put(captured)
	again := inbox()
	if len(first) != 1 || len(again) != 1 || !again[0].Until.Equal(first[0].Until) || !again[0].Stored.Equal(first[0].Stored) {
		t.Errorf("%+v, then %+v", first, again)
	}
}

// A follower hears of a task when it comes and when its state changes, and of nothing else.
func TestAFollowerOfAnInboxHearsOfChangesAlone(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	outage, nc := natstest.NewOutage(t, r.srv), natstest.Conn(t, r.srv)
	client := r.nodeOn(nc, mesh.Config{Entity: ada, Durable: r.durableOver(outage.JetStream(t, nc)), Heartbeat: -1})
	seen := make(chan string, 16)
	go func() {
		err := client.FollowInbox(ctxFor(t), bob, func(a *mesh.PersonTask) error {
			seen <- a.Task.ID + " " + string(a.State)
			return nil
		})
		seen <- fmt.Sprint("the end: ", err)
	}()
	put := func(e *envelope.Envelope) *envelope.Envelope {
		t.Helper()
		if err := r.nc.Publish(bob, encode(t, e)); err != nil {
			t.Fatal(err)
		}
		return e
	}
	withdrawn := func(task *envelope.Envelope) *envelope.Envelope {
		e := envelope.New(envelope.TypeEvent, task.From, bob, intents.TaskWithdrawn, json.RawMessage(`{"reason":"done"}`))
		e.Corr, e.ReplyTo = task.Corr, task.ID
		return e
	}
	heard := func(task *envelope.Envelope, state mesh.PersonTaskState) {
		t.Helper()
		equal(t, "heard", within(t, "an event of the inbox", seen), task.ID+" "+string(state))
	}
	first := put(newTask(bob, "code.review", `{"n":1}`))
	heard(first, mesh.AskOpen)
	put(withdrawn(first))
	put(withdrawn(first))
	heard(first, mesh.AskWithdrawn)
	reads := "DIRECT.GET." + jetstream.StreamReply
	outage.RefuseFirst(1, reads) // the stream has no leader for a moment: the follower goes on
	heard(put(newTask(bob, "code.review", `{"n":2}`)), mesh.AskOpen)
	equal(t, "refused", outage.RefusedOf(reads), 1)
	heard(put(newTask(bob, "code.review", `{"n":3}`)), mesh.AskOpen)
}

// A run that has an answer and then asks for an approval waits for that approval: the answer
// neither wakes it nor keeps a person from resuming it. So it is with the answer of an agent that
// waited for a person, with one whose time is over, and with one that the run needs only after the
// approval.
func TestARunThatHasItsAnswerWaitsForAnApproval(t *testing.T) {
	t.Parallel()
	const approval, approved = `"approval"`, "approved"
	for name, call := range map[string]mesh.Call{"a person": {To: bob}, "an agent": {To: helper}, "an agent that is late": {To: helper, Timeout: 5 * shortLease}, "a person for later": {To: bob, Intent: "code.later"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			if call.To == helper { // a caller looks after two leases whether the agent waits
				r.shortLeases()
			}
			handler := mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				run := task.Run()
				if string(run.View().Mesh.Plan) == approval {
					if len(run.View().Mesh.Commands) == 0 {
						return nil, errors.New("it went on without an approval")
					}
					return json.RawMessage(`{"text":"` + approved + `"}`), nil
				}
				call := call
				call.Key, call.Payload = "ask", task.Envelope.Payload
				_, err := task.Call(ctx, call)
				var waits *mesh.PendingError
				switch {
				case errors.As(err, &waits) && call.Intent == "":
					return nil, run.ParkUntil(ctx, mesh.Wake{On: []state.Wait{waits.Wait}}, nil)
				case err != nil && waits == nil && !isCode(err, envelope.CodeTimeout):
					return nil, err
				}
				return nil, run.Park(ctx, aaif.RunAwaitingApproval, func(c *state.Checkpoint) error {
					c.Mesh.Plan = json.RawMessage(approval)
					c.Doc.ApprovalRequest = &aaif.ApprovalRequest{TriggerDescription: "May it go on?", PendingAction: json.RawMessage(`{}`), RequestedAt: state.Time(time.Now())}
					return nil
				})
			})
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: asking{people: []string{bob}}})
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: handler})
			client := r.client()
			task := newTask(reviewer, "code.review", `{}`)
			r.submit(client, task)
			if call.Timeout == 0 {
				ask := r.asked(client, bob)
				r.waits(task)
				r.answer(client, ask, `{"ok":true}`)
			}
			eventually(t, "the run waits for an approval", func() bool {
				c := r.begun(task)
				return c != nil && string(c.Mesh.Plan) == approval && (c.Doc.Status == aaif.RunAwaitingApproval || c.Terminal())
			})
			// A worker that looks for answers finds the one that the run has.
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: handler})
			if out := r.command(client, intents.ResumeTask{Target: target(task)}); !out.Resumed {
				t.Errorf("resume: %+v", out)
			}
			if reply, err := r.result(client, task); err != nil || !strings.Contains(string(reply.Payload), approved) {
				t.Errorf("result %v, %v", reply, err)
			}
		})
	}
}

// An answer that came in time counts also if the time is over when the run parks for the
// next one.
func TestAnAnswerInTimeCountsWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	both := asking{people: []string{bob, cleo}, parking: func(c *state.Checkpoint) {
		for i := range c.Mesh.Waits {
			if w := &c.Mesh.Waits[i]; w.Entity == bob && c.Mesh.Plan != nil { // parks for the second time
				w.Until = w.Asked.Add(-time.Hour)
			}
		}
	}}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: both})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	toBob, toCleo := r.asked(client, bob), r.asked(client, cleo)
	r.waits(task)
	r.answer(client, toBob, `{"ok":true}`)
	eventually(t, "the run waits for cleo alone", func() bool {
		c := r.record(task)
		return c.Doc.Status == aaif.RunAwaitingApproval && c.Doc.ApprovalRequest != nil && c.Doc.ApprovalRequest.ApproverHint == cleo
	})
	r.answer(client, toCleo, `{"ok":false}`)
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"human.bob":"{\"ok\":true}","human.cleo":"{\"ok\":false}"}` {
		t.Errorf("result %v, %v", reply, err)
	}
}

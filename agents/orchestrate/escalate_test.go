package orchestrate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// asked returns a person's task, whatever its state.
func (r *rig) asked(person string) (ask *mesh.PersonTask) {
	r.t.Helper()
	until(r.t, person+" is asked", func() bool {
		asks, err := r.client.PersonTasks(r.ctx(), person)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(asks) > 0 {
			ask = asks[0]
		}
		return ask != nil
	})
	return ask
}

// withdrawn waits until a person's task was withdrawn.
func (r *rig) withdrawn(ask *mesh.PersonTask) *mesh.PersonTask {
	r.t.Helper()
	until(r.t, ask.Task.To+" is told", func() bool {
		now, err := r.client.FindAsk(r.ctx(), ask.Task.To, "", ask.Task.ID)
		if err != nil {
			r.t.Fatal(err)
		}
		ask = now
		return ask.State == mesh.AskWithdrawn
	})
	return ask
}

// stamped returns the time of an envelope.
func stamped(t testing.TB, e *envelope.Envelope) time.Time {
	t.Helper()
	at, err := time.Parse(envelope.TimeLayout, e.TS)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// A step of a pipeline goes to a person who does not answer, then to another
// one who does not either, then to an agent. Workers are stopped and started
// meanwhile.
func TestAStepIsEscalatedAcrossWorkers(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newRig(t)
	r.serve(true, says(`{"text":"draft"}`), "agent.writer")
	r.serve(true, says(`{"text":"signed by a machine"}`), "agent.notary")
	p := plan(t, `{"pipeline":["writer","sign"],"subagents":[{"ref":"agent.writer","alias":"writer"},{"ref":"human.bob","alias":"sign"},{"ref":"human.eve","alias":"lead"}]}`,
		extras(`"steps":{"sign":{"timeout_seconds":2,"escalate_to":"lead","result_schema":{"type":"object","required":["text"]}},"lead":{"escalate_to":"agent.notary"}}`))
	first := r.serve(true, team(p, nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	bob := r.asked("human.bob")
	if string(bob.Task.Payload) != `{"text":"draft"}` || bob.EscalateTo != "human.eve" || string(bob.Schema) != `{"type":"object","required":["text"]}` {
		t.Errorf("bob is asked %s, then %s, with schema %s", bob.Task.Payload, bob.EscalateTo, bob.Schema)
	}
	first.kill()
	r.serve(true, team(p, nil), boss)
	eve := r.asked("human.eve")
	if eve.EscalateTo != "agent.notary" || string(eve.Task.Payload) != `{"text":"draft"}` || eve.Schema == nil {
		t.Errorf("eve is asked %+v", eve)
	}
	if why := r.withdrawn(bob).Reason; why != "there was no answer in time; it is with human.eve now" {
		t.Errorf("bob is told %q", why)
	}
	if _, step := r.told(intents.RunEscalated); step.To != "human.eve" || step.Child != eve.Task.ID || !strings.Contains(step.Detail, "human.bob") || step.Alias != "sign" {
		t.Errorf("told %+v", step)
	}
	if _, step := r.told(intents.RunEscalated); step.To != "agent.notary" {
		t.Errorf("told %+v", step)
	}
	escalated := stamped(t, r.last)
	if got := r.result(task); got.payload != `{"text":"signed by a machine"}` {
		t.Errorf("%+v", got)
	}
	// The duration is that of the last receiver alone: between the two events of each earlier one
	// there are two seconds.
	_, step := r.told(intents.RunStepFinished)
	since := stamped(t, r.last).Sub(escalated).Milliseconds()
	if step.To != "agent.notary" || step.DurationMS > float64(since+2000) {
		t.Errorf("%d ms after it was asked: %+v", since, step)
	}
	r.withdrawn(eve)
	asks, err := r.client.PersonTasks(r.ctx(), "")
	if err != nil || len(asks) != 2 {
		t.Errorf("%d tasks for people, %v", len(asks), err)
	}
}

// An answer in time ends the escalation; a later answer of the first person is
// refused.
func TestTheSecondAnswersInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := plan(t, `{"pipeline":["sign"],"subagents":[{"ref":"human.bob","alias":"sign"},{"ref":"human.eve","alias":"lead"}]}`,
		extras(`"steps":{"sign":{"timeout_seconds":0.5,"escalate_to":"lead"},"lead":{"timeout_seconds":600}}`))
	r.serve(true, team(p, nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	bob, eve := r.asked("human.bob"), r.asked("human.eve")
	r.withdrawn(bob)
	if err := r.client.AnswerPersonTask(r.ctx(), bob, bob.Task.Reply(envelope.TypeResult, json.RawMessage(`{"by":"bob"}`))); err == nil {
		t.Error("bob's late answer was taken")
	}
	if err := r.client.AnswerPersonTask(r.ctx(), eve, eve.Task.Reply(envelope.TypeResult, json.RawMessage(`{"by":"eve"}`))); err != nil {
		t.Fatal(err)
	}
	if got := r.result(task); got.payload != `{"by":"eve"}` {
		t.Errorf("%+v", got)
	}
}

// on_error decides if no person answers, and if one refuses.
func TestWhatNoPersonDoes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, more, want string
		code             envelope.Code
		declines         bool
	}{
		{"nobody answers", `"escalate_to":"human.eve","timeout_seconds":0.3`, "", envelope.CodeTimeout, false},
		{"it comes round again", `"escalate_to":"sign","timeout_seconds":0.3`, "", envelope.CodeTimeout, false},
		{"nobody answers and it is skipped", `"on_error":"skip","timeout_seconds":0.3`, `{"text":"go"}`, "", false},
		{"somebody refuses", `"escalate_to":"human.eve","timeout_seconds":60`, "", envelope.CodeDeclined, true},
		{"somebody refuses and the fallback does it", `"on_error":"fallback"`, `{"text":"by the fallback"}`, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.serve(true, says(`{"text":"by the fallback"}`), "agent.other")
			p := plan(t, `{"pipeline":["sign"],"subagents":[{"ref":"human.bob","alias":"sign"},{"ref":"agent.other","alias":"other","role":"fallback"}]}`, extras(`"steps":{"sign":{`+tt.more+`}}`))
			r.serve(true, team(p, nil), boss)
			task := r.submit(`{"text":"go"}`, "")
			if tt.declines {
				ask := r.open("human.bob")
				if err := r.client.AnswerPersonTask(r.ctx(), ask, ask.Task.ReplyError(envelope.Errorf(envelope.CodeDeclined, "not mine"))); err != nil {
					t.Fatal(err)
				}
			}
			got := r.result(task)
			switch {
			case tt.code != "" && (got.err == nil || got.err.Code != tt.code):
				t.Errorf("%+v", got)
			case tt.code == "" && got.payload != tt.want:
				t.Errorf("%+v", got)
			}
		})
	}
}

// A person who is the referee gets the form of the answer.
func TestAPersonWhoJudgesIsToldWhatToAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(true, says(`{"n":1}`), "agent.a")
	r.serve(true, says(`{"n":2}`), "agent.b")
	p := plan(t, `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"}],"consensus":{"strategy":"referee","referee_agent":"human.bob"}}`, "")
	r.serve(true, team(p, nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	ask := r.open("human.bob")
	if !strings.Contains(string(ask.Schema), "the number of a candidate") || !strings.Contains(string(ask.Task.Payload), `"candidates"`) {
		t.Errorf("the referee is asked %s with schema %s", ask.Task.Payload, ask.Schema)
	}
	r.waits(task)
	var asked struct {
		Candidates []struct {
			N      int
			Output json.RawMessage
		}
	}
	if err := json.Unmarshal(ask.Task.Payload, &asked); err != nil {
		t.Fatal(err)
	}
	for _, c := range asked.Candidates {
		if string(c.Output) == `{"n":2}` {
			r.says("human.bob", fmt.Sprintf(`{"choice":%d}`, c.N))
		}
	}
	if got := r.result(task); got.payload != `{"n":2}` {
		t.Errorf("%+v", got)
	}
}

func TestAPersonIsARoutersChoice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := plan(t, `{"role":"router","subagents":[{"ref":"human.bob","alias":"bob","when":{"lang":"always"}}]}`, "")
	r.serve(true, team(p, nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	r.waits(task)
	r.says("human.bob", `{"text":"here"}`)
	if got := r.result(task); got.payload != `{"text":"here"}` {
		t.Errorf("%+v", got)
	}
}

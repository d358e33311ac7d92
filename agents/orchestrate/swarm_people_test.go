package orchestrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// open returns the only unanswered task of a person.
func (r *rig) open(person string) *mesh.PersonTask {
	r.t.Helper()
	var found *mesh.PersonTask
	until(r.t, person+" is asked", func() bool {
		asks, err := r.client.PersonTasks(r.ctx(), person)
		if err != nil {
			r.t.Fatal(err)
		}
		i := slices.IndexFunc(asks, func(a *mesh.PersonTask) bool { return a.State == mesh.AskOpen })
		if i >= 0 {
			found = asks[i]
		}
		return i >= 0
	})
	return found
}

func (r *rig) says(person, payload string) {
	r.t.Helper()
	ask := r.open(person)
	if err := r.client.AnswerPersonTask(r.ctx(), ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(payload))); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) waits(task *envelope.Envelope) {
	r.t.Helper()
	until(r.t, "the run waits for people", func() bool {
		cp, err := r.client.Run(r.t.Context(), task.To, task.ID)
		return err == nil && cp.Doc.Status == aaif.RunAwaitingApproval
	})
}

const jury = `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"human.bob","alias":"bob"},{"ref":"human.eve","alias":"eve"}],"consensus":{"strategy":"majority_vote"}}`

// People vote like other members. While they have not answered, the run is parked; another worker
// resumes it when they have. No person gets two tasks.
func TestPeopleVoteInASwarm(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newTally()
	r.serve(true, c, "agent.a")
	p := plan(t, jury, "")
	first := r.serve(true, team(p, nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	r.waits(task)
	first.stop()
	r.serve(true, team(p, nil), boss)
	r.says("human.bob", `{"n":7}`)
	r.says("human.eve", `{"n":7}`)
	got := r.result(task)
	if got.payload != `{"n":7}` || got.swarm.Winner != "bob" || aliases(got.swarm.Dissent) != "a" {
		t.Errorf("%+v", got)
	}
	if n := c.all()["agent.a"]; n != 1 {
		t.Errorf("the agent was asked %d times", n)
	}
	asks, err := r.client.PersonTasks(r.ctx(), "")
	if err != nil || len(asks) != 2 {
		t.Errorf("%d tasks in the inboxes, %v", len(asks), err)
	}
}

// A run that waits goes on with the members that it has called, even if the document has got
// another subagent meanwhile. The new subagent takes no part.
func TestASwarmWaitsWhileItsDocumentGetsAnotherSubagent(t *testing.T) {
	t.Parallel()
	const x = `{"ref":"agent.x","alias":"x"}`
	t.Run("a voter in front", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		c := newTally()
		r.serve(true, c, "agent.a", "agent.x")
		first := r.serve(true, team(plan(t, jury, ""), nil), boss)
		task := r.submit(`{"text":"go"}`, "")
		r.waits(task)
		first.stop()
		r.serve(true, team(plan(t, strings.Replace(jury, "[", "["+x+",", 1), ""), nil), boss)
		r.says("human.bob", `{"n":7}`)
		r.says("human.eve", `{"n":7}`)
		got := r.result(task)
		if got.payload != `{"n":7}` || len(got.swarm.Votes) != 2 || !slices.Equal(got.swarm.Votes[0].By, []string{"bob", "eve"}) || aliases(got.swarm.Dissent) != "a" {
			t.Errorf("%+v", got)
		}
		if counts := c.all(); counts["agent.a"] != 1 || counts["agent.x"] != 0 {
			t.Errorf("the agents were asked %v", counts)
		}
		if asks, err := r.client.PersonTasks(r.ctx(), ""); err != nil || len(asks) != 2 {
			t.Errorf("%d tasks in the inboxes, %v", len(asks), err)
		}
	})
	t.Run("a member at the end, while scores are missing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.serve(true, newTally(), "agent.a", "agent.b", "agent.c")
		var judged atomic.Int32
		r.serve(true, mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			judged.Add(1)
			return judge("score")(ctx, task)
		}), "agent.j")
		const more, end = `,{"ref":"agent.j","alias":"j","role":"evaluator"},{"ref":"human.bob","alias":"bob","role":"evaluator"}`, `],"consensus":{"strategy":"best_of_n"}`
		first := r.serve(true, team(plan(t, three(more+end), ""), nil), boss)
		task := r.submit(`{"text":"go"}`, "")
		r.waits(task)
		first.stop()
		r.serve(true, team(plan(t, three(more+","+x+end), ""), nil), boss)
		for range 3 {
			r.says("human.bob", `{"score":0}`)
		}
		got := r.result(task)
		var scores []string
		for _, s := range got.swarm.Scores {
			scores = append(scores, fmt.Sprintf("%s %g", s.By[0], *s.Judgements[0].Score))
		}
		if want := []string{"c 0.2", "b 0.1", "a 0"}; !slices.Equal(scores, want) || judged.Load() != 3 {
			t.Errorf("j gave %q in %d tasks, want %q", scores, judged.Load(), want)
		}
	})
}

// A run whose next judge is no longer a subagent cannot go on. Members that have answered may go.
func TestASwarmWaitsWhileItsDocumentLosesASubagent(t *testing.T) {
	t.Parallel()
	const both = `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"human.bob","alias":"synthesizer"}]}`
	const scored = `{"parallel_execution":true,"subagents":[{"ref":"human.bob","alias":"bob"},{"ref":"agent.a","alias":"a"}],"consensus":{"strategy":"best_of_n"}}`
	for _, tt := range []struct{ name, first, then, want string }{
		{"one that has voted, while votes are missing", jury, strings.Replace(jury, `{"ref":"agent.a","alias":"a"},`, "", 1), `{"n":9}`},
		{"its votes, for scores that nothing gives", strings.Replace(scored, "best_of_n", "majority_vote", 1), scored, "!E_INTERNAL the strategy best_of_n has no evaluator: no subagent has the role evaluator, and the agent has no model"},
		{"one that has answered", both, `{"parallel_execution":true,"subagents":[{"ref":"human.bob","alias":"synthesizer"}]}`, `{"n":9}`},
		{"one that is waited for", both, `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"}]}`, "!E_INTERNAL the run cannot go on: synthesizer is no longer a subagent"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.serve(true, newTally(), "agent.a")
			first := r.serve(true, team(plan(t, tt.first, ""), nil), boss)
			task := r.submit(`{"text":"go"}`, "")
			r.waits(task)
			first.stop()
			r.serve(true, team(plan(t, tt.then, ""), nil), boss)
			r.says("human.bob", `{"n":9}`)
			if tt.first == jury {
				r.says("human.eve", `{"n":9}`)
			}
			got := r.result(task)
			if got.err != nil {
				got.payload = "!" + string(got.err.Code) + " " + got.err.Message
			}
			if got.payload != tt.want {
				t.Errorf("%s, want %s", got.payload, tt.want)
			}
		})
	}
}

// hears returns a handler that answers with {"n":0} and sends the text of each task's input to the
// channel.
func hears(heard chan<- string) mesh.HandlerFunc {
	return func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		var in struct{ Text string }
		if err := json.Unmarshal(task.Input(), &in); err != nil {
			return nil, err
		}
		heard <- in.Text
		return json.RawMessage(`{"n":0}`), nil
	}
}

// Members that work one after the other wait for a person as for an agent: the next one begins
// after the answer, and its input may contain it. A refusal comes before the work that it forbids.
func TestMembersInSequenceWaitForAPerson(t *testing.T) {
	t.Parallel()
	const bob, b = `{"ref":"human.bob","alias":"a"}`, `{"ref":"agent.b","alias":"b"}`
	const seen = `"b":{"input":{"lang":"jmespath","expr":"{text: outputs.a.text}"}}`
	for _, tt := range []struct {
		name, block, extras, says string
		heard                     string // by agent.b, after the answer; "": it is not called
		want                      string
	}{
		{"the next one sees the answer", `{"subagents":[` + bob + `,` + b + `]}`, `"steps":{` + seen + `}`, `{"text":"yes"}`, "yes", ""},
		{"the first success", `{"subagents":[` + bob + `,` + b + `],"consensus":{"strategy":"first_success"}}`, "", `{"text":"yes"}`, "", `{"text":"yes"}`},
		{"a vote that the next one could not change", `{"subagents":[{"ref":"agent.a","alias":"x"},{"ref":"agent.c","alias":"y"},` + bob + `,` + b + `],"consensus":{"strategy":"majority_vote"}}`,
			`"tie":"first","steps":{` + seen + `}`, `{"text":"yes"}`, "yes", `{"n":0}`},
		{"a refusal", `{"subagents":[` + bob + `,` + b + `]}`, `"steps":{"a":{"on_error":"fail"}}`, "", "", "!E_DECLINED step a: no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			heard := make(chan string, 10)
			r.serve(true, hears(heard), "agent.b")
			r.serve(true, says(`{"n":0}`), "agent.a", "agent.c")
			r.serve(true, team(plan(t, tt.block, extras(tt.extras)), nil), boss)
			task := r.submit(`{"text":"go"}`, "")
			ask := r.open("human.bob")
			r.waits(task)
			select {
			case text := <-heard:
				t.Errorf("agent.b was called before the answer, with %q", text)
			default:
			}
			reply := ask.Task.Reply(envelope.TypeResult, json.RawMessage(tt.says))
			if tt.says == "" {
				reply = ask.Task.Reply(envelope.TypeError, envelope.Errorf(envelope.CodeDeclined, "no").Payload())
			}
			if err := r.client.AnswerPersonTask(r.ctx(), ask, reply); err != nil {
				t.Fatal(err)
			}
			if tt.heard != "" {
				if got := within(t, "agent.b is called", heard); got != tt.heard {
					t.Errorf("agent.b was sent %q, want %q", got, tt.heard)
				}
			}
			got := r.result(task)
			if got.err != nil {
				got.payload = "!" + string(got.err.Code) + " " + got.err.Message
			}
			if tt.want != "" && got.payload != tt.want {
				t.Errorf("%s, want %s", got.payload, tt.want)
			}
			if n := len(heard); n != 0 {
				t.Errorf("agent.b was called %d times more", n)
			}
		})
	}
}

// A person in a sequence who does not answer leaves time for the members after them: of the time that
// is left, each of them has an equal part. A question that was sent keeps its time, also when
// another worker continues the run.
func TestAPersonInASequenceLeavesTimeForTheOthers(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	const bob, eve, a = `{"ref":"human.bob","alias":"bob"}`, `{"ref":"human.eve","alias":"eve"}`, `{"ref":"agent.a","alias":"a"}`
	slow := mesh.HandlerFunc(func(ctx context.Context, _ *mesh.Task) (json.RawMessage, error) {
		select { // longer than the second that was left once
		case <-time.After(2 * time.Second):
			return json.RawMessage(`{"n":0}`), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	for _, tt := range []struct {
		name, members, extras string
		asked                 []string // the people, in turn
		failures              string
	}{
		{"one", bob + "," + a, "", []string{"human.bob"}, "bob E_TIMEOUT"},
		{"two", bob + "," + eve + "," + a, "", []string{"human.bob", "human.eve"}, "bob E_TIMEOUT,eve E_TIMEOUT"},
		{"one whose part is escalated", bob + "," + a, `"steps":{"bob":{"escalate_to":"human.eve"}}`, []string{"human.bob", "human.eve"}, "bob E_TIMEOUT"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.serve(true, slow, "agent.a")
			p := plan(t, `{"subagents":[`+tt.members+`],"consensus":{"strategy":"majority_vote"}}`, extras(tt.extras))
			first := r.serve(true, team(p, nil), boss)
			task := r.submit(`{"text":"go"}`, `{"timeout_ms":24000}`)
			for i, person := range tt.asked {
				ask := r.open(person)
				if i > 0 {
					continue
				}
				r.waits(task)
				first.stop()
				r.serve(true, team(p, nil), boss)
				if again := r.open(person); !again.Until.Equal(ask.Until) {
					t.Errorf("%s may answer until %v, and until %v later", person, ask.Until, again.Until)
				}
			}
			got := r.result(task)
			if got.payload != `{"n":0}` || failures(got.swarm.Failures) != tt.failures {
				t.Errorf("%s, failures %s, %v", got.payload, failures(got.swarm.Failures), got.err)
			}
		})
	}
}

// The time of a person in a sequence is their own timeout, or a share of what is left for members:
// almost an hour, because nothing follows them.
func TestTheTimeOfAPersonInASequence(t *testing.T) {
	t.Parallel()
	const a, bob, b = `{"ref":"agent.a","alias":"a"}`, `{"ref":"human.bob","alias":"bob"}`, `{"ref":"agent.b","alias":"b"}`
	for _, tt := range []struct {
		name, members, extras string
		want                  time.Duration
	}{
		{"the first of three", bob + "," + a + "," + b, "", 20 * time.Minute},
		{"the second of three", a + "," + bob + "," + b, "", 30 * time.Minute},
		{"the last of three", a + "," + b + "," + bob, "", time.Hour},
		{"one with a timeout", bob + "," + a + "," + b, `"steps":{"bob":{"timeout_seconds":2400}}`, 40 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.serve(true, newTally(), "agent.a", "agent.b")
			r.serve(true, team(plan(t, `{"subagents":[`+tt.members+`]}`, extras(tt.extras)), nil), boss)
			r.submit(`{"text":"go"}`, `{"timeout_ms":3600000}`)
			ask := r.open("human.bob")
			if got := ask.Until.Sub(ask.Stored); got < tt.want-time.Minute || got > tt.want+time.Minute {
				t.Errorf("bob has %v, want %v", got, tt.want)
			}
		})
	}
}

// A run in which several members of a sequence were called at the same time, by an earlier release,
// goes on with the first of their answers.
func TestMembersInSequenceThatWereAllCalledAreAllHeard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const block = `"subagents":[{"ref":"human.bob","alias":"bob"},{"ref":"human.eve","alias":"eve"}],"consensus":{"strategy":"first_success"}}`
	first := r.serve(true, team(plan(t, `{"parallel_execution":true,`+block, ""), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	r.open("human.bob")
	r.waits(task)
	first.stop()
	r.serve(true, team(plan(t, `{`+block, ""), nil), boss)
	r.says("human.eve", `{"n":9}`)
	if got := r.result(task); got.payload != `{"n":9}` || got.swarm.Winner != "eve" || !slices.Equal(got.swarm.Cancelled, []string{"bob"}) {
		t.Errorf("%+v", got)
	}
}

// Judges do not see one another's answers, so those who are people are asked at the same time.
func TestJudgesOfASequenceAreAskedTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(true, newTally(), "agent.a", "agent.b")
	const block = `{"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"},{"ref":"human.bob","alias":"bob","role":"evaluator"},{"ref":"human.eve","alias":"eve","role":"evaluator"}],"consensus":{"strategy":"best_of_n"}}`
	r.serve(true, team(plan(t, block, ""), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	r.waits(task)
	if asks, err := r.client.PersonTasks(r.ctx(), ""); err != nil || len(asks) != 4 {
		t.Errorf("%d tasks in the inboxes, %v", len(asks), err)
	}
}

// A person who has declined is not asked again when the swarm is tried again, because another member
// has failed in a way that may pass.
func TestAPersonWhoDeclinedIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newTally()
	r.serve(true, once(c, map[string]string{"agent.a": "E_UNAVAILABLE"}), "agent.a", "agent.c")
	r.retries = 1
	const block = `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"human.bob","alias":"bob"},{"ref":"agent.c","alias":"c"}],"consensus":{"strategy":"majority_vote"}}`
	r.serve(true, team(plan(t, block, extras(`"min_results":2,"tie":"first","steps":{"a":{"max_retries":0}}`)), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	ask := r.open("human.bob")
	if err := r.client.AnswerPersonTask(r.ctx(), ask, ask.Task.Reply(envelope.TypeError, envelope.Errorf(envelope.CodeDeclined, "no").Payload())); err != nil {
		t.Fatal(err)
	}
	got := r.result(task)
	if got.payload != `{"n":0}` || failures(got.swarm.Failures) != "bob E_DECLINED" {
		t.Errorf("%+v, failures %s", got, failures(got.swarm.Failures))
	}
	if want := map[string]int{"agent.a": 2, "agent.c": 1}; !maps.Equal(c.all(), want) {
		t.Errorf("asked %v, want %v", c.all(), want)
	}
	if asks, err := r.client.PersonTasks(r.ctx(), ""); err != nil || len(asks) != 1 {
		t.Errorf("%d tasks in the inboxes, %v", len(asks), err)
	}
}

// A member is called again when the swarm is retried, also if a person who was asked instead of it
// has declined.
func TestAMemberWhoseFallbackDeclinedIsCalledAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newTally()
	r.serve(true, once(c, map[string]string{"agent.a": "E_UNAVAILABLE", "agent.b": "E_UNAVAILABLE"}), "agent.a", "agent.b", "agent.c")
	r.retries = 1
	p := plan(t, three(`,{"ref":"human.bob","alias":"bob","role":"fallback"}],"consensus":{"strategy":"majority_vote"}`), extras(`"min_results":2,"tie":"first","steps":{"a":{"max_retries":0},"b":{"max_retries":0,"on_error":"fallback"}}`))
	r.serve(true, team(p, nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	ask := r.open("human.bob")
	if err := r.client.AnswerPersonTask(r.ctx(), ask, ask.Task.Reply(envelope.TypeError, envelope.Errorf(envelope.CodeDeclined, "no").Payload())); err != nil {
		t.Fatal(err)
	}
	r.result(task)
	if want := map[string]int{"agent.a": 2, "agent.b": 2, "agent.c": 1}; !maps.Equal(c.all(), want) {
		t.Errorf("asked %v, want %v", c.all(), want)
	}
}

// A person whose vote cannot change the result is not awaited, and the task is
// withdrawn.
func TestADecidedVoteDoesNotWaitForPeople(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(true, newTally(), "agent.a")
	r.serve(true, team(plan(t, jury, ""), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	r.open("human.eve")
	r.says("human.bob", `{"n":0}`)
	if _, step := r.told(intents.RunWithdrawn); step.To != "human.eve" || step.Step != "swarm/2" || step.Child == "" || step.Detail == "" {
		t.Errorf("told %+v", step)
	}
	got := r.result(task)
	if got.payload != `{"n":0}` || !slices.Equal(got.swarm.Cancelled, []string{"eve"}) || got.swarm.Answered != 2 {
		t.Errorf("%+v", got)
	}
	until(t, "eve is told", func() bool {
		asks, err := r.client.PersonTasks(r.ctx(), "human.eve")
		return err == nil && len(asks) == 1 && asks[0].State == mesh.AskWithdrawn
	})
}

// lateAck is a JetStream whose first acknowledgement comes late: the message is stored before.
type lateAck struct {
	natsjs.JetStream
	first        atomic.Bool
	stored, gate chan struct{}
}

func (j *lateAck) PublishMsg(ctx context.Context, m *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	ack, err := j.JetStream.PublishMsg(ctx, m, opts...)
	if j.first.CompareAndSwap(false, true) {
		close(j.stored)
		select {
		case <-j.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return ack, err
}

// A question that is on its way to a person when the swarm is decided is withdrawn, too.
func TestAQuestionOnItsWayIsWithdrawn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newTally("agent.a")
	r.serve(true, c, "agent.a")
	js := &lateAck{JetStream: r.js(natstest.Conn(t, r.srv)), stored: make(chan struct{}), gate: make(chan struct{})}
	const block = `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"human.bob","alias":"bob"}],"consensus":{"strategy":"first_success"}}`
	r.serveAs(true, team(plan(t, block, ""), nil), []string{boss}, func(_ *serving, d *mesh.Durable) { d.Inbox = jetstream.NewInbox(js, subject.Map{}) })
	task := r.submit(`{"text":"go"}`, "")
	within(t, "the question is stored", js.stored)
	c.open("agent.a")
	r.told(intents.RunStepFinished)
	close(js.gate)
	if got := r.result(task); got.payload != `{"n":0}` || !slices.Equal(got.swarm.Cancelled, []string{"bob"}) {
		t.Errorf("%+v", got)
	}
	until(t, "bob is told", func() bool {
		asks, err := r.client.PersonTasks(r.ctx(), "human.bob")
		return err == nil && len(asks) == 1 && asks[0].State == mesh.AskWithdrawn
	})
}

// A person is awaited if their answer would be the result: of equal votes on a part, the first in the
// document's order is taken.
func TestAVoteWaitsForThePersonWhoseAnswerIsTheResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(true, says(`{"n":1,"by":"agent"}`), "agent.a", "agent.b")
	const block = `{"parallel_execution":true,"subagents":[{"ref":"human.bob","alias":"bob"},{"ref":"agent.a","alias":"a"},{"ref":"agent.b","alias":"b"}],"consensus":{"strategy":"majority_vote"}}`
	r.serve(true, team(plan(t, block, extras(`"vote_on":"/n"`)), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	waits := false
	until(t, "the run waits for bob, or ends", func() bool {
		cp, err := r.client.Run(t.Context(), task.To, task.ID)
		waits = err == nil && cp.Doc.Status == aaif.RunAwaitingApproval
		return waits || err == nil && cp.Doc.Status == aaif.RunCompleted
	})
	if waits {
		r.says("human.bob", `{"n":1,"by":"bob"}`)
	}
	if got := r.result(task); got.payload != `{"by":"bob","n":1}` || got.swarm.Winner != "bob" {
		t.Errorf("%+v", got)
	}
}

// The agent's own timeout does not apply while a swarm waits for people: they
// have the task's whole time.
func TestPeopleInASwarmHaveTheTasksTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(true, newTally(), "agent.a")
	r.timeout = 3 * time.Second
	r.serve(true, team(plan(t, jury, ""), nil), boss)
	task := r.submit(`{"text":"go"}`, `{"timeout_ms":3600000}`)
	ask := r.open("human.bob")
	if left := ask.Until.Sub(ask.Stored); left < 40*time.Minute || left > 55*time.Minute {
		t.Errorf("bob has %v", left)
	}
	r.says("human.bob", `{"n":7}`)
	r.says("human.eve", `{"n":7}`)
	if got := r.result(task); got.payload != `{"n":7}` {
		t.Errorf("%+v", got)
	}
}

// So it is where the worker's clock is half an hour ahead of the server's.
func TestPeopleInASwarmHaveTheTasksTimeByTheServersClock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	js := natstest.ClockAhead(t, r.srv, -30*time.Minute)
	r.serve(true, newTally(), "agent.a")
	r.timeout = 3 * time.Second
	r.serveAs(true, team(plan(t, jury, ""), nil), []string{boss}, func(_ *serving, d *mesh.Durable) { d.Clock = jetstream.NewClock(js, subject.Map{}) })
	r.submit(`{"text":"go"}`, `{"timeout_ms":3600000}`)
	if ask := r.open("human.bob"); ask.Until.Sub(ask.Stored) < 40*time.Minute || ask.Until.Sub(ask.Stored) > 55*time.Minute {
		t.Errorf("bob has %v", ask.Until.Sub(ask.Stored))
	}
}

// A member that has used up all of the swarm's time is not escalated, because
// the next receiver would have no time: the swarm continues without it.
func TestASwarmsTimeIsNotEscalated(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newRig(t)
	r.serve(true, newTally(), "agent.a")
	r.serve(true, says(`{"merged":true}`), "agent.s")
	const block = `{"parallel_execution":true,"subagents":[{"ref":"agent.a","alias":"a"},{"ref":"human.bob","alias":"bob"},{"ref":"agent.s","alias":"synthesizer"}]}`
	r.serve(true, team(plan(t, block, extras(`"steps":{"bob":{"escalate_to":"human.boss"}}`)), nil), boss)
	got := r.result(r.submit(`{"text":"go"}`, `{"timeout_ms":16000}`))
	if got.payload != `{"merged":true}` || failures(got.swarm.Failures) != "bob E_TIMEOUT" {
		t.Errorf("%+v", got)
	}
	if asks, err := r.client.PersonTasks(r.ctx(), "human.boss"); err != nil || len(asks) != 0 {
		t.Errorf("the boss is asked %d times, %v", len(asks), err)
	}
}

// A person may be the referee.
func TestAPersonIsTheReferee(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(true, newTally(), "agent.a", "agent.b", "agent.c")
	r.serve(true, team(plan(t, three(`],"consensus":{"strategy":"referee","referee_agent":"human.bob"}`), ""), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	ask := r.open("human.bob")
	var sent struct {
		Candidates []struct {
			N      int
			Output struct{ N int }
		}
	}
	if err := json.Unmarshal(ask.Task.Payload, &sent); err != nil || len(sent.Candidates) != 3 {
		t.Fatalf("the referee was sent %s, %v", ask.Task.Payload, err)
	}
	for _, cand := range sent.Candidates {
		if cand.Output.N == 1 {
			r.says("human.bob", string(mustJSON(t, map[string]any{"choice": cand.N, "reason": "I say so"})))
		}
	}
	got := r.result(task)
	if got.payload != `{"n":1}` || got.swarm.Winner != "b" || got.swarm.Choice == nil || got.swarm.Choice.Reason != "I say so" {
		t.Errorf("%+v", got)
	}
}

// A text without a decision does not count, and the person may answer again.
func TestAPersonsWordsAreNoDecision(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(true, newTally(), "agent.a", "agent.b", "agent.c")
	r.serve(true, team(plan(t, three(`],"consensus":{"strategy":"referee","referee_agent":"human.bob"}`), ""), nil), boss)
	task := r.submit(`{"text":"go"}`, "")
	ask := r.open("human.bob")
	for _, words := range []string{`{"text":"I like b"}`, `{"verdict":1}`, `{"choice":4}`, `{"choice":1,"output":{}}`} {
		if err := r.client.AnswerPersonTask(r.ctx(), ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(words))); err == nil {
			t.Errorf("%s is taken for a decision", words)
		}
	}
	// A program that publishes by itself is not prevented from this.
	js := r.js(natstest.Conn(t, r.srv))
	if _, err := js.PublishMsg(r.ctx(), &nats.Msg{Subject: "aee.reply.human.bob." + ask.Task.ID, Data: mustJSON(t, ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"text":"I like b"}`)))}); err != nil {
		t.Fatal(err)
	}
	r.says("human.bob", `{"output":{"n":9},"reason":"none holds"}`)
	if got := r.result(task); got.payload != `{"n":9}` || got.swarm.Choice == nil || got.swarm.Choice.Reason != "none holds" {
		t.Errorf("%+v", got)
	}
}

func mustJSON(t testing.TB, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

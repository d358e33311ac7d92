package agents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// behind hosts an agent whose worker reaches JetStream through an outage.
func (l *lane) behind(o *natstest.Outage, a *agents.Agent) {
	l.t.Helper()
	l.host(a, func(d *mesh.Durable) {
		s := jetstream.Open(jetstream.Gather(o.JetStream(l.t, natstest.Conn(l.t, l.server))), subject.Map{})
		d.Queue, d.Replies, d.Dead, d.Inbox, d.States, d.Clock = s.Queue, s.Replies, s.Dead, s.Inbox, s.States, s.Clock
	})
}

// For some seconds JetStream refuses every request of a team's worker. The
// members, including a person, get one task each, and the team ends normally.
// Finding D7 of the reliability review: such teams ended with E_INTERNAL.
func TestATeamOutlastsAnOutageOfJetStream(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for name, orchestration := range map[string]string{
		"pipeline": `{"pipeline":["agent.one","human.ada","agent.two"]}`,
		"swarm":    `{"parallel_execution":true,"subagents":[{"ref":"agent.one","alias":"one"},{"ref":"human.ada","alias":"ada"},{"ref":"agent.two","alias":"two"}],"consensus":{"strategy":"majority_vote"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			o := natstest.NewOutage(t, l.server)
			say := func(what string) func(*mesh.Task, string) (string, error) {
				return func(*mesh.Task, string) (string, error) { return what, nil }
			}
			one, two := &member{name: "one", work: say("no")}, &member{name: "two", work: say("so be it")} // ada decides
			l.host(one.agent(), nil)
			l.host(two.agent(), nil)
			l.behind(o, lead(t, orchestration, ""))
			task := l.task("agent.lead", `{"text":"zero"}`, "")
			o.RefuseFirst(1)
			l.submit(task)
			var ask *mesh.PersonTask
			until(t, "ada is asked", func() bool {
				asks, err := l.client.PersonTasks(l.ctx(), "human.ada")
				if err == nil && len(asks) == 1 {
					ask = asks[0]
				}
				return ask != nil
			})
			o.RefuseFirst(1) // once more, while the run waits for her
			if err := l.client.AnswerPersonTask(l.ctx(), ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"text":"so be it"}`))); err != nil {
				t.Fatal(err)
			}
			if got := l.result(task); !strings.Contains(got, "so be it") {
				t.Errorf("result %s", got)
			}
			cp := l.until(task, "the run has ended", func(cp *state.Checkpoint) bool { return cp.Terminal() })
			if asks, err := l.client.PersonTasks(l.ctx(), ""); err != nil || len(asks) != 1 || one.calls.Load() != 1 || two.calls.Load() != 1 || cp.Mesh.Attempt != 0 || o.Refused() == 0 {
				t.Errorf("asked: %d tasks for people (%v), %d and %d of the members; attempt %d; %d requests refused", len(asks), err, one.calls.Load(), two.calls.Load(), cp.Mesh.Attempt, o.Refused())
			}
		})
	}
}

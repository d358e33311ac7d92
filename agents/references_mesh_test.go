package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// A model agent fetches what its task refers to over the mesh, on both lanes.
func TestWhatATaskRefersToIsFetchedOverTheMesh(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	archive := &agents.Agent{Agent: mesh.Agent{Entity: "agent.archive", Handler: answering(`{"text":"Rain tomorrow."}`)}}
	l.serve(archive)
	reply, err := l.client.Send(l.ctx(), l.task("agent.archive", `{"text":"weather?"}`, ""), mesh.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := reply.Refer("agent.archive")
	if err != nil {
		t.Fatal(err)
	}
	payload, err := envelope.WithReferences(json.RawMessage(`{"text":"Take an umbrella?"}`), ref)
	if err != nil {
		t.Fatal(err)
	}
	fake := l.hosted("agent.adviser", "", agents.Options{}, modeltest.Turn{Text: "Yes."})
	for _, durable := range []bool{false, true} {
		if got := l.demand(durable, "agent.adviser", string(payload), `{"evidence":true}`); !strings.HasPrefix(got, `{"text":"Yes.","evidence_refs":["aee.envelope:TASK","aee.envelope:ID"`) {
			t.Errorf("durable %t: %s", durable, got)
		}
		requests := fake.Requests()
		messages := requests[len(requests)-1].Messages
		if told := messages[len(messages)-1].Content; !strings.Contains(told, `"from":"agent.archive"`) || !strings.Contains(told, "Rain tomorrow.") {
			t.Errorf("durable %t: the model is told %q", durable, told)
		}
	}
}

// What is made of the results of others refers to them, and what is handed on to the
// task that it was.
func TestWhatAnAgentSendsRefersToWhatItIsMadeOf(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		for name, c := range map[string]struct {
			document string
			last     string // whose task is looked at
			want     []string
		}{
			"a pipeline": {`"orchestration": {"subagents": [{"ref": "agent.one", "alias": "one"}, {"ref": "agent.two", "alias": "two"}], "pipeline": ["one", "two"]}`, "two", []string{"result of one"}},
			"a pipeline that passes a step over": {`"orchestration": {"subagents": [{"ref": "agent.one", "alias": "one"}, {"ref": "agent.two", "alias": "two"}, {"ref": "agent.two", "alias": "no", "when": {"lang": "never"}}], "pipeline": ["one", "no", "two"]}`,
				"two", []string{"result of one"}},
			"a swarm":     {`"orchestration": {"subagents": [{"ref": "agent.one", "alias": "one"}, {"ref": "agent.two", "alias": "two"}, {"ref": "agent.three", "alias": "synthesizer"}], "parallel_execution": true}`, "three", []string{"result of one", "result of two"}},
			"a hand-over": {`"orchestration": {"handoff": [{"condition": {"lang": "always"}, "target_agent": "agent.one"}]}`, "one", []string{"the task"}},
		} {
			t.Run(fmt.Sprintf("%s, durable %t", name, durable), func(t *testing.T) {
				t.Parallel()
				l := newLane(t)
				var mu sync.Mutex
				got := map[string]*envelope.Envelope{}
				for _, who := range []string{"one", "two", "three"} {
					l.serve(&agents.Agent{Agent: mesh.Agent{Entity: "agent." + who, Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
						mu.Lock()
						defer mu.Unlock()
						got[who] = task.Envelope
						return json.RawMessage(`{"text":"` + who + `"}`), nil
					})}})
				}
				if strings.Contains(name, "hand-over") {
					l.hosted("agent.lead", c.document, agents.Options{}, says("for one"))
				} else {
					a := lead(t, strings.TrimPrefix(c.document, `"orchestration": `), "")
					l.serve(a)
				}
				if durable {
					task := l.task("agent.lead", `{"text":"go"}`, "")
					l.submit(task)
					l.result(task)
				} else if _, err := l.client.Send(l.ctx(), l.task("agent.lead", `{"text":"go"}`, ""), mesh.SendOptions{}); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				defer mu.Unlock()
				refs, err := got[c.last].References()
				if err != nil || len(refs) != len(c.want) {
					t.Fatalf("references %+v, %v", refs, err)
				}
				for i, want := range c.want {
					who, ok := strings.CutPrefix(want, "result of ")
					ref := refs[i]
					if ref.Corr != got[c.last].Corr || ok && (ref.Locator != "agent."+who || ref.Hash == "") || !ok && (ref.ID != got[c.last].ReplyTo || ref.Locator != "agent.lead") {
						t.Errorf("reference %+v is none to %s", ref, want)
					}
				}
			})
		}
	}
}

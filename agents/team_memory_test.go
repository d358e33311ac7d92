package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// recall is a Memory that keeps what it is given.
type recall struct {
	mu   sync.Mutex
	text []string
}

func (m *recall) Restore(_ context.Context, whose state.Whose, items []aaif.MemoryItem) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	words := whose.User
	for _, i := range items {
		words += " " + i.Content
	}
	m.text = append(m.text, words)
	return nil
}

func (m *recall) said() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.text, "; ")
}

var someMemories = []aaif.MemoryItem{
	{Scope: aaif.ScopeLongTerm, Key: "facts", Content: "1"}, {Scope: aaif.ScopeUser, Key: "customer", Content: "2"},
	{Scope: aaif.ScopeUser, Key: "other", Content: "3"}, {Scope: aaif.ScopeTask, Key: "customer", Content: "4"}, {Scope: aaif.ScopeSession, Key: "customer", Content: "5"},
}

// knowing is an agent that calls another one, with memories.
func knowing(to string, durable bool) *agents.Agent {
	return &agents.Agent{Agent: mesh.Agent{Entity: "agent.first", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		c := state.New("agent.first", task.Envelope.ID, "")
		c.Doc.MemorySnapshot = someMemories
		a, err := task.Call(ctx, mesh.Call{To: to, Key: "there", Payload: task.Envelope.Payload, State: c, Live: !durable})
		if err != nil {
			return nil, err
		}
		return a.Envelope.Payload, nil
	})}}
}

// Whatever the pattern, a member gets the memories that the document names for it,
// as far as they may leave the run, with the name of their user, and no
// conversation; one for whom it names none gets nothing.
func TestNamedMemoriesGoAlongWithEachCall(t *testing.T) {
	t.Parallel()
	subagents := `"subagents":[{"ref":"agent.knows","alias":"knows","pass_memory_keys":["customer"]},{"ref":"agent.blank","alias":"blank","pass_memory_keys":["nothing"]}]`
	script := fmt.Sprintf(builtinScript, `[{"call":[{"name":"knows","arguments":{"text":"Help."}},{"name":"blank","arguments":{"text":"Help."}}]},{"say":"done"}]`)
	for name, text := range map[string]string{
		"pipeline":  `"orchestration":{"pipeline":["blank","knows"],` + subagents + `}`,
		"swarm":     `"orchestration":{"parallel_execution":true,` + subagents + `}`,
		"router":    `"orchestration":{"role":"router",` + subagents + `}`,
		"model-led": `"orchestration":{"role":"orchestrator",` + subagents + `}` + script,
	} {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s durable=%v", name, durable), func(t *testing.T) {
				t.Parallel()
				l := newLane(t)
				kept := &recall{}
				knows := l.hosted("agent.knows", "", agents.Options{Memory: kept}, always("known")...)
				blank := &member{name: "blank", work: func(task *mesh.Task, text string) (string, error) {
					if c, err := task.HandedState(t.Context()); c != nil || err != nil || strings.Contains(string(task.Envelope.Requires), `"context"`) {
						t.Errorf("who is to know nothing has %v, %v, %s", c, err, task.Envelope.Requires)
					}
					return text, nil
				}}
				l.serve(blank.agent())
				l.serve(newAgent(t, definition(t, `{"sc_standard":"SC-006","agent":{"name":"Lead","goal":"Lead.",`+text+`}}`), agents.Options{}))
				l.serve(knowing("agent.lead", durable))
				task := l.task("agent.first", `{"text":"Help."}`, "")
				var err error
				if durable {
					_, _, err = l.client.Perform(l.ctx(), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
				} else {
					_, err = l.client.Send(l.ctx(), task, mesh.SendOptions{})
				}
				if err != nil {
					t.Fatal(err)
				}
				if got, want := kept.said(), "human.ada of agent.first of agent.lead 2 5"; got != want {
					t.Errorf("restored %q, want %q", got, want)
				}
				if got := spoken(knows.Requests()[0]); got != "user: Help." {
					t.Errorf("conversation:\n%s", got)
				}
			})
		}
	}
}

// A worker that goes on with a team sends along what the one before it stored, and
// stores nothing again.
func TestMemoriesOfACallAreStoredOnce(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	l := newLane(t).shortLeases()
	begun, finish := make(chan *envelope.Envelope, 8), make(chan struct{})
	knows := &member{name: "knows", work: func(task *mesh.Task, text string) (string, error) {
		begun <- task.Envelope
		<-finish
		c, err := task.HandedState(t.Context())
		// The test does not wait for the call that the crash has cut off: it may take longer.
		if t.Context().Err() == nil && (err != nil || len(c.Doc.MemorySnapshot) != 2) {
			t.Errorf("came along: %v, %v", c, err)
		}
		return text, err
	}}
	l.host(&agents.Agent{Agent: mesh.Agent{Entity: "agent.knows", LiveOnly: true, Handler: knows.agent().Handler, Concurrency: 2}}, nil) // asked again after the crash
	l.serve(knowing("agent.lead", true))
	lead := func() *worker {
		return l.host(newAgent(t, definition(t, `{"sc_standard":"SC-006","agent":{"name":"Lead","goal":"Lead.","orchestration":{"pipeline":["knows"],
			"subagents":[{"ref":"agent.knows","alias":"knows","pass_memory_keys":["customer"]}]}}}`), agents.Options{}), nil)
	}
	first := lead()
	until(t, "the lead's lane is there", func() bool {
		served, err := jetstream.NewQueue(l.js(l.conn), subject.Map{}).Served(l.ctx(), "agent.lead")
		return err == nil && served
	})
	task := l.task("agent.first", `{"text":"Help."}`, "")
	l.submit(task)
	ref := func(e *envelope.Envelope) string {
		var requires struct{ Context json.RawMessage }
		if err := json.Unmarshal(e.Requires, &requires); err != nil || requires.Context == nil {
			t.Errorf("requires %s, %v", e.Requires, err)
		}
		return string(requires.Context)
	}
	before := ref(<-begun)
	first.kill()
	lead()
	if after := ref(<-begun); after != before {
		t.Errorf("sent along\n%s\nand before\n%s", after, before)
	}
	close(finish)
	if got := l.result(task); !strings.Contains(got, `"text":"Help."`) {
		t.Error(got)
	}
}

// On a mesh without JetStream the memories themselves go along.
func TestMemoriesGoAlongWithoutAStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kept := &recall{}
	w.host(newAgent(t, doc(t, ""), agents.Options{As: "agent.knows", Memory: kept, Model: modeltest.New(always("known")...)}))
	w.host(lead(t, `{"pipeline":["knows"],"subagents":[{"ref":"agent.knows","alias":"knows","pass_memory_keys":["customer"]}]}`, ""))
	w.host(knowing("agent.lead", false))
	if got := w.send("agent.first", `{"text":"Help."}`, sending{}); got.err != nil {
		t.Fatal(got.err)
	}
	if got, want := kept.said(), "human.ada of agent.first of agent.lead 2 5"; got != want {
		t.Errorf("restored %q, want %q", got, want)
	}
}

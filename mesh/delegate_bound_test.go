package mesh_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/internal/chain"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
)

// A record holds integers up to 2^53-1 only: a task with a larger one was delivered again and again.
func TestADelegatedTaskWithACountThatNoRecordHoldsIsRefused(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: committing(`{}`)})
	for name, change := range map[string]func(*delegated.Handed){
		"stream":                    func(h *delegated.Handed) { h.Stream = 1<<53 + 1 },
		"stream, with the own ones": func(h *delegated.Handed) { h.Stream = 1<<53 - 1 },
		"epoch":                     func(h *delegated.Handed) { h.Epoch = 1<<53 + 1 },
		"epoch that overflows":      func(h *delegated.Handed) { h.Epoch = 1<<64 - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			original := newTask("agent.a", "code.review", `{}`)
			link, err := chain.NewLink("agent.a", reviewer, original.Corr, chain.About{Task: original.ID, Caller: ada})
			if err != nil {
				t.Fatal(err)
			}
			text, err := chain.Text(link)
			if err != nil {
				t.Fatal(err)
			}
			h := delegated.Handed{Task: original.ID, Caller: ada, Intent: original.Intent, Chain: []string{text}}
			change(&h)
			task := newTask(reviewer, original.Intent, `{}`)
			task.From, task.Corr = "agent.a", original.Corr
			task.Requires = mustJSON(map[string]any{"handoff": h, "stream": true, "timeout_ms": patience.Milliseconds()})
			client := r.lane(mesh.Config{Entity: "agent.a"})
			r.submit(client, task)
			_, err = client.Result(ctxFor(t), reviewer, task.ID, mesh.ResultOptions{Follow: true})
			equal(t, "answer", codeOf(err), envelope.CodeRequires)
			r.drainedQueue()
		})
	}
}

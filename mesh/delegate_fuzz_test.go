package mesh

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/chain"
)

// What requires.handoff and the header say is a peer's word: whatever it is, it is
// refused or it is a chain that leads from its first link to the last, in no circle.
func FuzzHanded(f *testing.F) {
	n := &Node{cfg: Config{MaxHandoffs: 8}}
	add := func(from, to, task, caller string) string {
		e, err := chain.NewLink(from, to, "workflow-1", chain.About{Task: task, Caller: caller})
		if err != nil {
			f.Fatal(err)
		}
		text, err := chain.Text(e)
		if err != nil {
			f.Fatal(err)
		}
		return text
	}
	first, second := add("agent.a", "agent.b", "task-0001", "human.ada"), add("agent.b", "agent.c", "task-0001", "human.ada")
	for _, text := range []string{first, first + " " + second, second + " " + first, first + " " + first, "", "e30", first + " " + add("agent.b", "agent.a", "task-0001", "human.ada")} {
		f.Add(text, `{"task":"task-0001","caller":"human.ada","intent":"x.y.z","chain":["`+strings.ReplaceAll(text, " ", `","`)+`"]}`)
	}
	f.Add(first, `false`)
	f.Add(first, `{"task":"task-0001","caller":"human.ada","intent":"x.y.z","chain":["`+first+`"],"stream":-1,"state":{"entity":"agent.a"}}`)
	f.Fuzz(func(t *testing.T, header, requires string) {
		reply := envelope.New(envelope.TypeResult, "agent.c", "human.ada", "x.y.z", nil)
		reply.Corr, reply.ReplyTo = "workflow-1", "task-0001"
		if err := n.answers.MayAnswer("agent.a", "task-0001", "workflow-1", "human.ada", header, reply, time.Now(), nil); err == nil {
			links, err := chain.Parse(strings.Split(header, " "))
			if err != nil || links.First().From != "agent.a" || links.Last().To != "agent.c" {
				t.Errorf("%q lets agent.c answer for agent.a: %v", header, err)
			}
		}
		if !json.Valid([]byte(requires)) {
			return
		}
		task := envelope.New(envelope.TypeTask, "agent.b", "agent.c", "x.y.z", nil)
		task.Corr, task.Requires = "workflow-1", json.RawMessage(`{"handoff":`+requires+`}`)
		h, _, err := n.checkHanded(&Task{Envelope: task}, time.Now())
		if h == nil || err != nil {
			return
		}
		seen := map[string]bool{}
		for i, l := range h.Links.Links {
			if seen[l.From] || i > 0 && h.Links.Links[i-1].To != l.From {
				t.Errorf("a chain that does not hold: %v", h.Links.Entities())
			}
			seen[l.From] = true
		}
		if last := h.Links.Last(); last.From != task.From || last.To != task.To || seen[task.To] {
			t.Errorf("the task is not at the end of its chain: %v", h.Links.Entities())
		}
	})
}

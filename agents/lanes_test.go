package agents_test

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/mesh"
)

// What a document wants of the durable lane waits for a lane that is still to come;
// at level strict an agent is not hosted without it meanwhile.
func TestAnAgentIsAcceptedForALaneThatIsStillToCome(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	node := l.node(l.conn, mesh.Config{}, func(d *mesh.Durable) { d.Ready = make(chan struct{}) })
	for level, hosted := range map[string]bool{"standard": true, "strict": false} {
		a := newAgent(t, doc(t, echoModel+`, "runtime": {"concurrency": 2, "async_execution": true}, "compliance": {"safety_level": "`+level+`", "pii_handling": "none"}`), agents.Options{})
		if err := a.Accept(node); (err == nil) != hosted {
			t.Errorf("%s: %v", level, err)
		}
		if last := a.Notices[len(a.Notices)-1].Message; !a.Async || a.MeshConcurrency != 2 || !strings.Contains(last, "until the durable lane is available") {
			t.Errorf("%s: async %v, %d at once, notice %q", level, a.Async, a.MeshConcurrency, last)
		}
	}
	sealed := newAgent(t, doc(t, echoModel+`, "compliance": {"pii_handling": "encrypt"}`), agents.Options{})
	if err := sealed.Accept(node); err != nil || !sealed.LiveOnly {
		t.Errorf("an agent whose runs would be stored in the clear: %v, live only %v", err, sealed.LiveOnly)
	}
}

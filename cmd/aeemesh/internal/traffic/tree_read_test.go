package traffic

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/tree"
)

// An event is of a tree however its corr is spelled.
func TestATreeHasEventsInEverySpelling(t *testing.T) {
	t.Parallel()
	e := envelope.New(envelope.TypeEvent, "agent.a", "bus.mesh.task", intents.TaskStarted, json.RawMessage(`{"task":"task-0001"}`))
	e.Corr = "corr-0001"
	plain, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, spelling := range []string{"corr-0001", `\u0063orr-0001`, "corr-0002"} {
		r := &treeReader{quick: inJSON("corr-0001"), builder: tree.New("corr-0001")}
		_, changed := r.take(time.Now(), []byte(strings.Replace(string(plain), `"corr-0001"`, `"`+spelling+`"`, 1)))
		if want := spelling != "corr-0002"; changed != want {
			t.Errorf("corr %s: taken %t, want %t", spelling, changed, want)
		}
	}
}

package mesh

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
	"github.com/aeemesh/aeemesh/mesh/internal/chain"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
)

// Respell writes JSON text in another way that has the same canonical form: all of a
// string as escapes, integers as 1.0, and white space.
func Respell(raw string) string {
	var b strings.Builder
	for i := 0; i < len(raw); {
		end := i + 1
		switch c := raw[i]; {
		case c == '"':
			for ; raw[end] != '"'; end++ {
				if raw[end] == '\\' {
					end++
				}
			}
			end++
			var text string
			if err := json.Unmarshal([]byte(raw[i:end]), &text); err != nil {
				panic(err)
			}
			b.WriteByte('"')
			for _, unit := range utf16.Encode([]rune(text)) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
			b.WriteByte('"')
		case c == '-' || '0' <= c && c <= '9':
			for end < len(raw) && strings.IndexByte("+-.0123456789eE", raw[end]) >= 0 {
				end++
			}
			b.WriteString(raw[i:end])
			if end-i <= 15 && !strings.ContainsAny(raw[i:end], ".eE") {
				b.WriteString(".0")
			}
		default:
			b.WriteByte(c)
			if c == ',' || c == ':' {
				b.WriteString(" \t")
			}
		}
		i = end
	}
	return b.String()
}

// constraintsSeen is what the readers of requires make of a task.
func constraintsSeen(n *Node, task *envelope.Envelope) map[string]any {
	t := &Task{Envelope: task}
	seen := map[string]any{}
	note := func(name string, value any, err error) {
		if err != nil {
			value = envelope.AsError(err).Message
		}
		seen[name] = value
	}
	note("known", nil, t.readRequires())
	seen["requires"] = t.Requires
	at, problem := requires.ReadNotBefore(t.required(requires.NotBefore))
	seen["not_before"], seen["not_before fault"] = at, problem != nil
	tree, err := bounds.ReadTree(t.required(requires.Tree))
	note("tree", tree, err)
	h, forbidden, err := n.checkHanded(t, time.Now())
	if h != nil {
		h.Links = chain.Chain{} // made of h.Chain, each time anew
	}
	note("handoff", [2]any{h, forbidden}, err)
	by, err := t.handedBy()
	note("handed_by", by, err)
	ref, from, err := t.stateRef()
	note("context", [2]any{ref, from}, err)
	until, to, due := requires.AnswerOf(task, time.Unix(1_800_000_000, 0))
	seen["until"], seen["escalate_to"], seen["schema"] = until, to, string(requires.Canonical(due))
	return seen
}

// FuzzRequires: a constraint is the same in every spelling that a signature leaves open.
func FuzzRequires(f *testing.F) {
	n := &Node{cfg: Config{MaxHandoffs: 8}}
	for _, s := range []string{
		`{}`, `{"timeout_ms":30000,"evidence":true,"human_approval":false,"format":"json"}`, `{"not_before":"2030-01-02T03:04:05.6Z","stream":true}`,
		`{"tree":{"root":"task-0001","depth":3,"max_depth":4,"tokens":5,"usd":0.5,"deadline":"2030-01-02T03:04:05Z","teams":[{"task":"task-0001","max_iterations":3}]}}`,
		`{"tree":{"max_tasks":0}}`, `{"handoff":false}`, `{"handoff":true,"tree":null}`, `{"handed_by":["agent.a","agent.b"]}`, `{"handed_by":7,"tree":[],"context":"x","handoff":{}}`,
		`{"handoff":{"task":"task-0001","caller":"human.ada","intent":"x.y.z","chain":["e30"],"stream":-1}}`,
		`{"context":{"entity":"agent.a","run":"r","state_id":"s","hash":"sha256:00","user":"bob"}}`,
		`{"answer_by":"2030-01-02T03:04:05Z","escalate_to":"human.boss","result_schema":{"required":["ok"],"maximum":9007199254740993}}`,
		`{"tre\u0065":{"depth":99},"handof\u0066":false,"not_befor\u0065":"2030-01-02T03:04:05Z"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, requires string) {
		task := envelope.New(envelope.TypeTask, "agent.b", "agent.c", "x.y.z", nil)
		task.Requires = json.RawMessage(requires)
		if task.Validate() != nil {
			return
		}
		want, err := envelope.Canonical(task.Requires)
		if err != nil {
			return // no signature covers it
		}
		other := *task
		other.Requires = json.RawMessage(Respell(requires))
		if got, err := envelope.Canonical(other.Requires); err != nil || string(got) != string(want) {
			t.Fatalf("the test's own spelling means something else (%v): %s", err, other.Requires)
		}
		if a, b := constraintsSeen(n, task), constraintsSeen(n, &other); !reflect.DeepEqual(a, b) {
			t.Errorf("%s\n is %v\n%s\n is %v", requires, a, other.Requires, b)
		}
	})
}

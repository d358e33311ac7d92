package agents_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/intents"
)

// Fault 13 of the operator's tour: an agent served without its central tool, and was
// healthy. One rule holds for all protocols; a peer is told no names of hosts.
func TestAnAgentWithoutOneOfItsToolsIsDegraded(t *testing.T) {
	t.Parallel()
	all := aaif.Offer{Capabilities: aaif.SetOf(aaif.CapToolHTTP, aaif.CapToolMCP, aaif.CapToolOpenAPI)}
	refuse := func(*aaif.Tool) (tool.Source, error) { return nil, errors.New("db.internal is not allowed") }
	shelfWith := func(err error, tools ...tool.Tool) func(*aaif.Tool) (tool.Source, error) {
		return func(*aaif.Tool) (tool.Source, error) { return &shelf{err: err, tools: tools}, nil }
	}
	down := &tool.Error{Kind: tool.ErrUnavailable, Tool: "t", Message: "db.internal: refused"}
	gone := &tool.Error{Kind: tool.ErrNotFound, Tool: "t", Message: "db.internal has no such tool"}
	for name, c := range map[string]struct {
		open  func(*aaif.Tool) (tool.Source, error)
		offer aaif.Offer
		more  string // of the document
		want  string // why; "" is healthy
	}{
		"a protocol without a source": {nil, aaif.Offer{}, "", "this worker has no tools of protocol"},
		"not allowed":                 {refuse, all, "", "its operator has not allowed it"},
		"switched off":                {refuse, aaif.Offer{}, `, "required_capabilities": ["tool.http", "tool.mcp", "tool.openapi"]`, "it depends on tool."},
		"not there":                   {shelfWith(gone), all, "", "its server has no such tool"},
		"nothing is listed":           {shelfWith(nil), all, "", "its server lists no tool for it"},
		"a schema that reaches out":   {shelfWith(nil, toolThatSays("t", `{"$ref":"https://db.internal/x.json"}`, "1")), all, "", "its schemas are refused"},
		"there":                       {shelfWith(nil, toolThatSays("t", "", "1")), all, "", ""},
		"down":                        {shelfWith(down), all, "", "its server cannot be reached now"},
	} {
		for _, protocol := range []aaif.Protocol{aaif.ProtocolHTTP, aaif.ProtocolMCP, aaif.ProtocolOpenAPI} {
			t.Run(fmt.Sprintf("%s/%s", name, protocol), func(t *testing.T) {
				t.Parallel()
				d := doc(t, fmt.Sprintf(`"tools": [{"name": "t", "description": "d", "protocol": %q, "endpoint": "https://x.example/a", "parameters_schema": {}}]%s`, protocol, c.more))
				opts := agents.Options{Model: modeltest.New(modeltest.Turn{Text: "done"}), Open: c.open, Offer: c.offer}
				a, err := agents.New(d, opts)
				if err != nil {
					t.Fatal(err)
				}
				w := newWorld(t)
				w.host(a)
				var got intents.HealthResult
				if _, err := w.node.Query(t.Context(), a.Entity, intents.StatusHealth, struct{}{}, &got); err != nil {
					t.Fatal(err)
				}
				reason := fmt.Sprint(got.Details["reason"], got.Details["tools_missing"])
				if c.want == "" {
					if got.Status != intents.Healthy {
						t.Errorf("%+v", got)
					}
				} else if got.Status != intents.Degraded || !strings.Contains(reason, "tool t is not offered: "+c.want) || strings.Contains(reason, "db.internal") {
					t.Errorf("%+v, want it degraded: %s", got, c.want)
				}

				opts.RequireTools = true
				if a, err = agents.New(d, opts); err == nil && c.want == "" {
					newWorld(t).host(a)
				} else if err == nil {
					err = a.Run(t.Context(), newWorld(t).node)
				}
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), "tool t is not offered: "+c.want) {
					t.Errorf("where all tools are required: %v", err)
				}
			})
		}
	}
}

// What an agent may use are the names in its document and those that servers list, as far as they
// have listed any. A server that is down may still list its tools; one that has none will not.
func TestCapabilitiesHaveTheNamesOfServers(t *testing.T) {
	t.Parallel()
	const tools = `"tools": [{"name": "github", "description": "d", "protocol": "mcp", "endpoint": "mcp://github/*"}], "orchestration": {"subagents": [{"ref": "agent.deployer"}, {"ref": "agent.x", "alias": "tester"}]}`
	for name, c := range map[string]struct {
		err   error
		tools []tool.Tool
		want  string
		all   bool
	}{
		"listed":  {nil, []tool.Tool{toolThatSays("merge_pull_request", "", "1"), toolThatSays("close_issue", "", "1")}, "github agent.deployer tester merge_pull_request close_issue", true},
		"nothing": {nil, nil, "github agent.deployer tester", true},
		"down":    {&tool.Error{Kind: tool.ErrUnavailable, Tool: "github", Message: "refused"}, nil, "github agent.deployer tester", false},
		"gone":    {&tool.Error{Kind: tool.ErrNotFound, Tool: "github", Message: "no such tool"}, nil, "github agent.deployer tester", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := agents.New(doc(t, tools), agents.Options{Model: modeltest.New(), Open: func(*aaif.Tool) (tool.Source, error) { return &shelf{err: c.err, tools: c.tools}, nil }})
			if err != nil {
				t.Fatal(err)
			}
			if names, all := a.Capabilities(); strings.Join(names, " ") != "github agent.deployer tester" || all {
				t.Errorf("before anything is listed: %q, %v", names, all)
			}
			newWorld(t).host(a)
			names, all := a.Capabilities()
			if got := strings.Join(names, " "); got != c.want || all != c.all {
				t.Errorf("%q, %v, want %q, %v", got, all, c.want, c.all)
			}
		})
	}
}

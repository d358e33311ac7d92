package agents_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/tooltest"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Every safety level and every capability of the registry and an unknown one,
// on a bare worker and on one with everything, with and without the durable
// lane: available capabilities are accepted silently, missing ones are handled
// by the level.
func TestRequiredCapabilitiesAreHeldAgainstWhatThereIs(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	nodes := map[string]*mesh.Node{"live": l.node(l.conn, mesh.Config{}, nil), "durable": l.node(l.conn, mesh.Config{}, nil)}
	var err error
	if nodes["live"], err = mesh.New(l.conn, mesh.Config{Heartbeat: -1}); err != nil {
		t.Fatal(err)
	}
	full := agents.Options{
		Offer:     aaif.Offer{Capabilities: aaif.SetOf(aaif.CapToolMCP, aaif.CapToolHTTP, aaif.CapToolOpenAPI, aaif.CapAuthVault)},
		Telemetry: agents.Telemetry{Tracer: sdktrace.NewTracerProvider()},
	}
	always := []string{aaif.CapToolFunction, aaif.CapIOStreaming, aaif.CapConditionStructured, aaif.CapOrchestrationPipeline, aaif.CapOrchestrationParallel, aaif.CapOrchestrationConsensus, aaif.CapOrchestrationHandoff}
	configured := []string{aaif.CapToolMCP, aaif.CapToolHTTP, aaif.CapToolOpenAPI, aaif.CapAuthVault, aaif.CapTelemetryOTel}
	durable := []string{aaif.CapIOAsync, aaif.CapStateCheckpoint, aaif.CapStateRestore}
	seen := 0
	for _, level := range []aaif.SafetyLevel{aaif.SafetyMinimal, aaif.SafetyStandard, aaif.SafetyStrict, aaif.SafetyRegulated} {
		for _, capability := range append(aaif.Capabilities(), "nobody.knows") {
			for worker, opts := range map[string]agents.Options{"bare": {}, "full": full} {
				for lane, node := range nodes {
					there := slices.Contains(always, capability) || worker == "full" && slices.Contains(configured, capability) ||
						lane == "durable" && slices.Contains(durable, capability)
					name := fmt.Sprintf("%s, %s, %s, %s", level, capability, worker, lane)
					seen++
					d := doc(t, echoModel+`, "required_capabilities": ["`+capability+`"], "compliance": {"pii_handling": "none", "safety_level": "`+string(level)+`"}`)
					a, err := agents.New(d, opts)
					if err == nil {
						err = a.Accept(node)
					}
					var refused *agents.Refusal
					switch {
					case there || level == aaif.SafetyMinimal || level == aaif.SafetyStandard:
						if err != nil {
							t.Errorf("%s: refused: %v", name, err)
							continue
						}
						if told := slices.ContainsFunc(a.Notices, func(p aaif.Problem) bool {
							return p.Rule == aaif.RuleCapability && p.Severity == aaif.SeverityWarning && strings.Contains(p.Message, capability)
						}); told == there {
							t.Errorf("%s: there %v, warned %v", name, there, told)
						}
					case !errors.As(err, &refused) || !slices.Equal(refused.Unsatisfied, []string{capability}) || !strings.Contains(err.Error(), capability):
						t.Errorf("%s: not refused with what is lacking: %v", name, err)
					case refused.MustAudit() != (level == aaif.SafetyRegulated):
						t.Errorf("%s: must be audited %v", name, refused.MustAudit())
					}
				}
			}
		}
	}
	if want := 4 * (len(aaif.Capabilities()) + 1) * 4; seen != want {
		t.Errorf("%d cases, want %d", seen, want)
	}
}

// At level standard what depends on a capability that is lacking is switched
// off; at level minimal it is tried. (Mutation M11 of the traceability review: of the
// tool's protocol, too.)
func TestStandardSwitchesOffWhatDependsOnALackingCapability(t *testing.T) {
	t.Parallel()
	const tools = `, "tools": [{"name": "open", "description": "d", "protocol": "http", "endpoint": "https://x.example/a"},
		{"name": "locked", "description": "d", "protocol": "http", "endpoint": "https://x.example/b",
		 "auth": {"type": "bearer", "vault_ref": {"provider": "hashicorp_vault", "path": "a/b"}}},
		{"name": "far", "description": "d", "protocol": "mcp", "endpoint": "mcp://x.example/c"}], "required_capabilities": ["auth.vault", "tool.mcp"]`
	for level, want := range map[string][]string{"minimal": {"far", "locked", "open"}, "standard": {"open"}} {
		opened := map[string]bool{}
		opts := agents.Options{Offer: aaif.Offer{Capabilities: aaif.SetOf(aaif.CapToolHTTP)}, Open: func(entry *aaif.Tool) (tool.Source, error) {
			opened[entry.Name] = true
			return tool.Static(&tooltest.Fake{Def: tool.Definition{Name: entry.Name}}), nil
		}}
		a := newAgent(t, doc(t, echoModel+tools+`, "compliance": {"pii_handling": "none", "safety_level": "`+level+`"}`), opts)
		if got := slices.Sorted(maps.Keys(opened)); !slices.Equal(got, want) {
			t.Errorf("%s: the tools are %v, want %v", level, got, want)
		}
		for pointer, lacks := range map[string]string{"/agent/tools/1": "auth.vault", "/agent/tools/2": "tool.mcp"} {
			off := slices.ContainsFunc(a.Notices, func(p aaif.Problem) bool {
				return p.Pointer == pointer && strings.Contains(p.Message, "is switched off: it depends on "+lacks)
			})
			if off != (level == "standard") {
				t.Errorf("%s: %s: notices %v", level, pointer, a.Notices)
			}
		}
	}
}

// A refusal at level regulated goes to the log, and to the mesh.
func TestARegulatedRefusalIsToldToTheMesh(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	node, err := mesh.New(conn, mesh.Config{Entity: "agent.worker"})
	if err != nil {
		t.Fatal(err)
	}
	alerts := make(chan *nats.Msg, 1)
	if _, err := conn.ChanSubscribe("bus.mesh.alert", alerts); err != nil {
		t.Fatal(err)
	}
	for level, want := range map[string]bool{"strict": false, "regulated": true} {
		log.Reset()
		_, err := agents.New(doc(t, echoModel+`, "required_capabilities": ["memory.redis", "memory.qdrant"], "compliance": {"pii_handling": "none", "safety_level": "`+level+`"}`),
			agents.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
		var refused *agents.Refusal
		if !errors.As(err, &refused) {
			t.Fatal(err)
		}
		if err := errors.Join(refused.Tell(node), conn.Flush()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), `"audit":true`) && strings.Contains(log.String(), "memory.qdrant"); got != want {
			t.Errorf("%s: log %s", level, &log)
		}
		select {
		case msg := <-alerts:
			if !want || !strings.Contains(string(msg.Data), agents.AlertRefused) || !strings.Contains(string(msg.Data), `"unsatisfied":["memory.qdrant","memory.redis"]`) {
				t.Errorf("%s: %s", level, msg.Data)
			}
		default:
			if want {
				t.Errorf("%s: nobody was told", level)
			}
		}
	}
}

// Every refusal at level regulated is audit-logged, also for a tool that the
// operator does not permit.
func TestARegulatedRefusalForAToolIsAudited(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	_, err := agents.New(doc(t, echoModel+`, "compliance": {"pii_handling": "none", "safety_level": "regulated"}, "tools": [{"name": "far", "description": "d", "protocol": "http", "endpoint": "https://x.example/a", "parameters_schema": {}}]`),
		agents.Options{
			Logger: slog.New(slog.NewJSONHandler(&log, nil)), Offer: aaif.Offer{Capabilities: aaif.SetOf(aaif.CapToolHTTP)},
			Open: func(*aaif.Tool) (tool.Source, error) { return nil, errors.New("the host is not allowed") },
		})
	var refused *agents.Refusal
	if !errors.As(err, &refused) || !refused.MustAudit() || !strings.Contains(log.String(), `"audit":true`) || !strings.Contains(log.String(), "the host is not allowed") {
		t.Errorf("%v, log %s", err, &log)
	}
}

// So is a refusal that is found only when the tools are listed, before the
// first task.
func TestARegulatedRefusalOfAListedToolIsAudited(t *testing.T) {
	t.Parallel()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	node, err := mesh.New(conn, mesh.Config{Entity: "agent.worker"})
	if err != nil {
		t.Fatal(err)
	}
	alerts := make(chan *nats.Msg, 8)
	if _, err := conn.ChanSubscribe("bus.mesh.alert", alerts); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"strict", "regulated"} {
		var log bytes.Buffer
		s := &shelf{err: &tool.Error{Kind: tool.ErrRefused, Tool: "shelf", Message: "the host is not allowed: it says s3cr3t-value"}}
		known := &secret.Redactor{}
		known.Add(secret.New("s3cr3t-value"))
		a, err := agents.New(onShelf(t, level), agents.Options{
			Model: modeltest.New(), Open: func(*aaif.Tool) (tool.Source, error) { return s, nil }, Logger: slog.New(slog.NewJSONHandler(&log, nil)), Redactor: known,
		})
		if err != nil {
			t.Fatal(err)
		}
		var refused *agents.Refusal
		if err := a.Run(t.Context(), node); !errors.As(err, &refused) || refused.Entity != a.Entity || !strings.Contains(err.Error(), "the host is not allowed") || strings.Contains(err.Error(), "s3cr3t") || !s.closed {
			t.Errorf("%s: %v, closed %t", level, err, s.closed)
		}
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
		regulated := level == "regulated"
		if got := strings.Contains(log.String(), `"audit":true`) && strings.Contains(log.String(), "the host is not allowed"); got != regulated {
			t.Errorf("%s: log %s", level, &log)
		}
		if told := len(alerts) == 1; told != regulated {
			t.Errorf("%s: %d alerts", level, len(alerts))
		} else if told {
			if data := string((<-alerts).Data); !strings.Contains(data, agents.AlertRefused) || strings.Contains(data, "s3cr3t") {
				t.Errorf("%s: the alert %s", level, data)
			}
		}
	}
}

// Without JetStream a limit that a runtime MUST NOT exceed cannot be counted
// over workers: such an agent is hosted with a warning, or refused.
func TestConcurrencyAcrossWorkersNeedsTheDurableLane(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for level, hosted := range map[string]bool{"minimal": true, "standard": true, "strict": false, "regulated": false} {
		a := newAgent(t, doc(t, echoModel+`, "runtime": {"concurrency": 2}, "compliance": {"pii_handling": "none", "safety_level": "`+level+`"}`), agents.Options{})
		err := a.Accept(w.node)
		if (err == nil) != hosted || !strings.Contains(fmt.Sprint(err, a.Notices), "/agent/runtime/concurrency") {
			t.Errorf("%s: %v, notices %v", level, err, a.Notices)
		}
	}
}

func TestDeprecatedAgentsAreRefusedUnlessTheOperatorSaysSo(t *testing.T) {
	t.Parallel()
	d := definition(t, `{"sc_standard": "SC-006", "agent_id": "6a6f0e0c-0b7a-4b0e-9d55-2f6b2c7d7f10", "status": "deprecated", "agent": {"name": "Old", "goal": "Rest.", `+echoModel+`}}`)
	if _, err := agents.New(d, agents.Options{}); err == nil || !strings.Contains(err.Error(), "worker --allow-deprecated") {
		t.Errorf("a deprecated agent: %v", err)
	}
	if _, err := agents.New(d, agents.Options{Deprecated: true}); err != nil {
		t.Errorf("overridden: %v", err)
	}
}

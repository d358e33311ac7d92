package agents

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
)

// laneCapabilities are the capabilities of agents on a node with a durable lane. The operator
// permits the platforms to which runs may be streamed, like the servers that a tool may reach.
var laneCapabilities = []string{aaif.CapIOAsync, aaif.CapStateCheckpoint, aaif.CapStateRestore, "state.live_migration", "state.streaming_handoff"}

// teamCapabilities are the capabilities of agents whose teams this runtime
// leads.
var teamCapabilities = []string{aaif.CapOrchestrationPipeline, aaif.CapOrchestrationParallel, aaif.CapOrchestrationConsensus, aaif.CapOrchestrationHandoff, "orchestration.dynamic_routing"}

// teamFields are the fields of an orchestration block that this runtime
// honours.
var teamFields = []string{
	"/agent/orchestration/max_iterations", "/agent/orchestration/role", "/agent/orchestration/pipeline",
	"/agent/orchestration/parallel_execution", "/agent/orchestration/consensus",
	"/agent/orchestration/handoff/*/condition", "/agent/orchestration/handoff/*/target_agent", "/agent/orchestration/handoff/*/pass_context",
	"/agent/orchestration/subagents/*/ref", "/agent/orchestration/subagents/*/alias",
	"/agent/orchestration/subagents/*/role", "/agent/orchestration/subagents/*/when",
}

// memoryFields pass memories on. The memories travel with the task, but only a
// runtime with Options.Memory uses them.
var memoryFields = []string{"/agent/orchestration/handoff/*/pass_memory", "/agent/orchestration/subagents/*/pass_memory_keys"}

// Offers lists what a runtime with these options offers to agents (AAIF,
// Capability Negotiation): the abilities of this package, those that the
// operator's telemetry adds, and those of Options.Offer. durable says whether
// the node has the durable lane, without which no state is kept.
func Offers(opts Options, durable bool) aaif.Offer {
	o := aaif.Offer{Languages: condition.Languages(), Capabilities: aaif.SetOf(
		aaif.CapToolFunction, "tool.parallel_calls", aaif.CapIOStreaming, "model.streaming", "model.function_calling", "model.structured_output")}
	if opts.Handler == nil && opts.Program == nil { // a handler or a program decides for itself whether it calls other agents
		for _, name := range teamCapabilities {
			o.Capabilities[name] = struct{}{}
		}
	}
	maps.Copy(o.Capabilities, opts.Offer.Capabilities)
	maps.Copy(o.Languages, opts.Offer.Languages)
	if opts.Telemetry.Tracer != nil || opts.traceable {
		o.Capabilities[aaif.CapTelemetryOTel] = struct{}{}
	}
	if opts.Telemetry.Meter != nil {
		o.Capabilities["telemetry.otel_metrics"] = struct{}{}
	}
	if durable {
		for _, name := range laneCapabilities {
			o.Capabilities[name] = struct{}{}
		}
	}
	return o
}

// Honours lists the fields that this package honours in a definition that it
// runs with a model, given the operator's adapters; see [aaif.NotHonoured].
func Honours(with aaif.Offer) aaif.Supported {
	s := aaif.WorkerSupports().With(append(teamFields, "/agent/tools/*/timeout_seconds")...)
	s.Protocols, s.Values = maps.Clone(s.Protocols), maps.Clone(s.Values)
	s.Values["/agent/orchestration/handoff/*/pass_memory"] = []string{"false"}
	for _, p := range aaif.Protocols() {
		if with.Offers(toolCapability(p)) {
			s.Protocols[p] = struct{}{}
		}
	}
	return s
}

// Capabilities returns the names of what the agent may use: the tools and the members of a team that
// its document names, and the tools that its servers have listed last, under the servers' own names.
// all is false while a server has not listed its tools.
func (a *Agent) Capabilities() (names []string, all bool) {
	names, all = slices.Clone(a.named), true
	if a.tools == nil {
		return names, all
	}
	for _, e := range a.tools.entries {
		if e.source == nil || e.team { // the document has their names
			continue
		}
		e.mu.Lock()
		for _, t := range e.listed {
			names = append(names, t.tool.Definition().Name)
		}
		all = all && e.known
		e.mu.Unlock()
	}
	return names, all
}

// namedCapabilities returns the tools and the members of a team that a document names.
func namedCapabilities(def *aaif.Definition) (names []string) {
	for i := range def.Agent.Tools {
		names = append(names, def.Agent.Tools[i].Name)
	}
	o := def.Agent.Orchestration
	if o == nil {
		return names
	}
	for _, s := range o.Subagents {
		names = append(names, cmp.Or(s.Alias, s.Ref))
	}
	names = append(names, o.Pipeline...)
	for _, h := range o.Handoff {
		names = append(names, h.TargetAgent)
	}
	return names
}

func toolCapability(p aaif.Protocol) string { return "tool." + string(p) }

// switchedOff returns the capability that a tool depends on, the agent requires
// and this runtime lacks; "" if there is none. At safety level standard such a
// tool is disabled (AAIF, Capability Negotiation). At level minimal the
// capability is skipped, and the tool is offered with what works of it.
func switchedOff(n aaif.Negotiation, t *aaif.Tool) string {
	if n.Action != aaif.ActionDisable {
		return ""
	}
	needs := []string{toolCapability(t.EffectiveProtocol())}
	if t.Auth != nil {
		if t.Auth.Type != "" {
			needs = append(needs, "auth."+string(t.Auth.Type))
		}
		if t.Auth.VaultRef != nil {
			needs = append(needs, aaif.CapAuthVault)
		}
	}
	for _, name := range n.Unsatisfied {
		for _, need := range needs {
			if strings.EqualFold(name, need) {
				return name
			}
		}
	}
	return ""
}

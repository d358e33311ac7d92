package agents

import (
	"maps"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
)

// laneCapabilities are those of agents on a node that has the durable lane.
var laneCapabilities = []string{aaif.CapIOAsync, aaif.CapStateCheckpoint, aaif.CapStateRestore, "state.live_migration"}

// teamCapabilities are those of agents whose teams this runtime leads.
var teamCapabilities = []string{aaif.CapOrchestrationPipeline, aaif.CapOrchestrationParallel, aaif.CapOrchestrationConsensus, aaif.CapOrchestrationHandoff, "orchestration.dynamic_routing"}

// teamFields are what this runtime does of an orchestration block.
var teamFields = []string{
	"/agent/orchestration/max_iterations", "/agent/orchestration/role", "/agent/orchestration/pipeline",
	"/agent/orchestration/parallel_execution", "/agent/orchestration/consensus",
	"/agent/orchestration/handoff/*/condition", "/agent/orchestration/handoff/*/target_agent", "/agent/orchestration/handoff/*/pass_context",
	"/agent/orchestration/subagents/*/ref", "/agent/orchestration/subagents/*/alias",
	"/agent/orchestration/subagents/*/role", "/agent/orchestration/subagents/*/when",
}

// memoryFields pass memories on. They travel, and only a runtime with Options.Memory
// makes anything of them.
var memoryFields = []string{"/agent/orchestration/handoff/*/pass_memory", "/agent/orchestration/subagents/*/pass_memory_keys"}

// Offers is what a runtime with these options has for agents (AAIF, Capability
// Negotiation): what this package does by itself, what the operator's telemetry
// allows, and what Options.Offer adds. durable says that the node has the
// durable lane, without which no state is kept.
func Offers(opts Options, durable bool) aaif.Offer {
	o := aaif.Offer{Languages: condition.Languages(), Capabilities: aaif.SetOf(
		aaif.CapToolFunction, "tool.parallel_calls", aaif.CapIOStreaming, "model.streaming", "model.function_calling", "model.structured_output")}
	if opts.Handler == nil && opts.Program == nil { // what else does an agent's work calls others by itself, or does not
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

// Honours is what this package does of a definition that it runs with a model,
// given what the operator's adapters offer; see [aaif.NotHonoured].
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

func toolCapability(p aaif.Protocol) string { return "tool." + string(p) }

// switchedOff says which capability a tool depends on that the agent requires
// and this runtime lacks; "": none. At safety level standard such a tool is
// disabled (AAIF, Capability Negotiation). At level minimal the capability is
// skipped, and the tool offered as far as it goes.
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

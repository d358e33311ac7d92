package aaif

// Orchestration is an agent's team and its rules (Orchestration Topology).
type Orchestration struct {
	Role              Role       `json:"role,omitzero"`
	Subagents         []Subagent `json:"subagents,omitzero"`
	Handoff           []Handoff  `json:"handoff,omitzero"`
	Pipeline          []string   `json:"pipeline,omitzero"`           // aliases or ids, in order
	ParallelExecution *bool      `json:"parallel_execution,omitzero"` // default false
	MaxIterations     Number     `json:"max_iterations,omitzero"`     // default 10; a runtime MUST enforce it
	Consensus         *Consensus `json:"consensus,omitzero"`
}

// Role is an agent's function in a team.
type Role string

const (
	RoleOrchestrator Role = "orchestrator"
	RoleWorker       Role = "worker"
	RoleEvaluator    Role = "evaluator"
	RoleRouter       Role = "router"
	RoleSynthesizer  Role = "synthesizer"
)

// A Subagent is an agent that this one may call.
type Subagent struct {
	Ref            string       `json:"ref"` // an agent_id, or a URI of the definition
	Alias          string       `json:"alias,omitzero"`
	Role           SubagentRole `json:"role,omitzero"`
	When           *Condition   `json:"when,omitzero"`
	PassMemoryKeys []string     `json:"pass_memory_keys,omitzero"`
}

// SubagentRole is a subagent's function in a team.
type SubagentRole string

const (
	SubagentWorker     SubagentRole = "worker"
	SubagentEvaluator  SubagentRole = "evaluator"
	SubagentSpecialist SubagentRole = "specialist"
	SubagentFallback   SubagentRole = "fallback"
)

// A Handoff is a rule by which a run is delegated to another agent.
type Handoff struct {
	Condition   Condition `json:"condition"`
	TargetAgent string    `json:"target_agent"`          // an alias or an agent_id
	PassContext *bool     `json:"pass_context,omitzero"` // default true
	PassMemory  *bool     `json:"pass_memory,omitzero"`  // default false
}

// Consensus determines one result from the outputs of parallel workers.
type Consensus struct {
	Strategy     ConsensusStrategy `json:"strategy,omitzero"`
	MinVotes     Number            `json:"min_votes,omitzero"`     // for majority_vote
	RefereeAgent string            `json:"referee_agent,omitzero"` // for referee
}

// ConsensusStrategy is the way in which that result is determined.
type ConsensusStrategy string

const (
	ConsensusMajorityVote ConsensusStrategy = "majority_vote"
	ConsensusBestOfN      ConsensusStrategy = "best_of_n"
	ConsensusReferee      ConsensusStrategy = "referee"
	ConsensusFirstSuccess ConsensusStrategy = "first_success"
)

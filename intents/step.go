package intents

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
)

// The intents of the events on bus.mesh.run: what an agent tells of the tasks
// that it gives others while it works on one of its own. Their payload is a
// [StepEvent].
const (
	RunStepStarted  = "mesh.run.step_started"  // somebody is sent a task: Step, Alias, To, Child
	RunStepFinished = "mesh.run.step_finished" // it gave a result
	RunStepFailed   = "mesh.run.step_failed"   // it did not; Then says what becomes of that
	RunVoted        = "mesh.run.voted"         // a swarm has a consensus, or none: Strategy, Votes, Scores, Winner
	RunRouted       = "mesh.run.routed"        // a router chose: Alias, By
	RunMerged       = "mesh.run.merged"        // several outputs became one result: By
	RunHandedOff    = "mesh.run.handed_off"    // the task goes on with somebody else, who answers: To, Child
	RunWaiting      = "mesh.run.waiting"       // for a person: To, Until
	RunEscalated    = "mesh.run.escalated"     // somebody else is asked, as a person did not answer in time: To
	RunWithdrawn    = "mesh.run.withdrawn"     // a person's answer is not waited for any more: To, Child
)

// RunEvent reports whether an intent is one of those on bus.mesh.run.
func RunEvent(intent string) bool {
	switch intent {
	case RunStepStarted, RunStepFinished, RunStepFailed, RunVoted, RunRouted, RunMerged, RunHandedOff, RunWaiting, RunEscalated, RunWithdrawn:
		return true
	}
	return false
}

// StepEvent is the payload of the events on bus.mesh.run. It says who does what
// for whom, and never what they said to one another: events are for everybody.
// So an error has no details here, and a vote no value.
type StepEvent struct {
	// Task is the id of the task that is worked on, of which this is a step, and
	// Run the id of its run where it is durable. Instance is the worker. The
	// mesh fills in the three.
	Task     string `json:"task"`
	Run      string `json:"run,omitempty"`
	Instance string `json:"instance,omitempty"`

	Pattern string `json:"pattern,omitempty"` // pipeline, swarm, router, model_led; absent: none of these
	Step    string `json:"step,omitempty"`    // names the call within the task: the same one has the same name after a crash
	Alias   string `json:"alias,omitempty"`   // as the document calls whom it is about
	Slot    *int   `json:"slot,omitempty"`    // its place among the steps, or the members
	To      string `json:"to,omitempty"`      // the entity
	Child   string `json:"child,omitempty"`   // the id of the task that it was sent
	Durable bool   `json:"durable,omitempty"` // over the durable lane
	Try     int    `json:"try,omitempty"`     // of this step, from 1

	DurationMS float64         `json:"duration_ms,omitempty"` // of a step that ended
	Usage      json.RawMessage `json:"usage,omitempty"`       // as its result says
	Error      *envelope.Error `json:"error,omitempty"`       // code, message, retryable, backoff_ms
	Then       string          `json:"then,omitempty"`        // after a failure: one of the words below
	Until      string          `json:"until,omitempty"`       // what is waited for must come before, ISO 8601 in UTC

	By       string      `json:"by,omitempty"`       // who chose or merged: an alias, or one of the words below
	Strategy string      `json:"strategy,omitempty"` // of a consensus
	Winner   string      `json:"winner,omitempty"`   // alias whose output it is
	Votes    []StepVotes `json:"votes,omitempty"`    // most first
	Scores   []StepScore `json:"scores,omitempty"`   // best first
	Tied     bool        `json:"tied,omitempty"`     // the first places were equal

	Detail string `json:"detail,omitempty"` // a few words for people
}

// StepVotes are those who voted for the same.
type StepVotes struct {
	Count   int      `json:"count"`
	Aliases []string `json:"aliases,omitempty"` // the first of them
}

// MaxVoters is how many choices, how many scores and, all choices together, how
// many aliases an event has at most. The mesh cuts off what is beyond.
const MaxVoters = 100

// StepScore is what an evaluator gave one output.
type StepScore struct {
	Alias string  `json:"alias"`
	Score float64 `json:"score"`
}

// The words of [StepEvent].Then.
const (
	ThenRetry    = "retry"    // it is asked again
	ThenSkip     = "skip"     // the rest goes on without it
	ThenFallback = "fallback" // somebody else does it
	ThenFail     = "fail"     // the task fails with it
)

// The words of [StepEvent].By that are no alias.
const (
	ByCondition = "condition" // the first condition that held
	ByModel     = "model"     // the agent's own model
	ByFallback  = "fallback"  // no condition held
	ByDefault   = "default"   // the documented merge
)

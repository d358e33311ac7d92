package intents

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
)

// The intents of the events on bus.mesh.run, by which an agent reports the tasks that it
// sends to others while it works on its own task. Their payload is a [StepEvent].
const (
	RunStepStarted  = "mesh.run.step_started"  // a task was sent: Step, Alias, To, Child
	RunStepFinished = "mesh.run.step_finished" // it ended with a result
	RunStepFailed   = "mesh.run.step_failed"   // it ended without a result; Then says what happens next
	RunVoted        = "mesh.run.voted"         // a swarm has voted, with or without a consensus: Strategy, Votes, Scores, Winner
	RunRouted       = "mesh.run.routed"        // a router has chosen: Alias, By
	RunMerged       = "mesh.run.merged"        // several outputs were merged into one result: By
	RunHandedOff    = "mesh.run.handed_off"    // the task was delegated to another agent, which replies: To, Child
	RunWaiting      = "mesh.run.waiting"       // the run waits for a person: To, Until
	RunEscalated    = "mesh.run.escalated"     // another person gets the task, because the first did not answer in time: To
	RunWithdrawn    = "mesh.run.withdrawn"     // the run no longer waits for a person's answer: To, Child
)

// RunEvent reports whether an intent is one of the events on bus.mesh.run.
func RunEvent(intent string) bool {
	switch intent {
	case RunStepStarted, RunStepFinished, RunStepFailed, RunVoted, RunRouted, RunMerged, RunHandedOff, RunWaiting, RunEscalated, RunWithdrawn:
		return true
	}
	return false
}

// StepEvent is the payload of the events on bus.mesh.run. It says who works on what for
// whom, but never what they exchanged, because every agent may read events. So an error
// has no details here, and a vote no value.
type StepEvent struct {
	// Task is the id of the task that the agent works on and that this is a step of. Run
	// is the id of its run if it is durable. Instance is the worker. The mesh sets all
	// three.
	Task     string `json:"task"`
	Run      string `json:"run,omitempty"`
	Instance string `json:"instance,omitempty"`

	Pattern string `json:"pattern,omitempty"` // pipeline, swarm, router, model_led; absent: none of these
	Step    string `json:"step,omitempty"`    // names the call within the task; the same call has the same name after a crash
	Alias   string `json:"alias,omitempty"`   // the alias of the member in the agent's document
	Slot    *int   `json:"slot,omitempty"`    // its position among the steps, or the members
	To      string `json:"to,omitempty"`      // the entity
	Child   string `json:"child,omitempty"`   // the id of the task that was sent to it
	Durable bool   `json:"durable,omitempty"` // over the durable lane
	Try     int    `json:"try,omitempty"`     // the attempt at this step, from 1

	DurationMS float64         `json:"duration_ms,omitempty"` // for a step that ended
	Usage      json.RawMessage `json:"usage,omitempty"`       // as in its result
	Error      *envelope.Error `json:"error,omitempty"`       // code, message, retryable, backoff_ms
	Then       string          `json:"then,omitempty"`        // after a failure: one of the Then values below
	Until      string          `json:"until,omitempty"`       // when the wait ends, ISO 8601 in UTC

	By       string      `json:"by,omitempty"`       // who chose or merged: an alias, or one of the By values below
	Strategy string      `json:"strategy,omitempty"` // of a consensus
	Winner   string      `json:"winner,omitempty"`   // the alias whose output was chosen
	Votes    []StepVotes `json:"votes,omitempty"`    // most first
	Scores   []StepScore `json:"scores,omitempty"`   // best first
	Tied     bool        `json:"tied,omitempty"`     // the best choices were equal

	Detail string `json:"detail,omitempty"` // a few words for people
}

// StepVotes counts the members that voted for the same output.
type StepVotes struct {
	Count   int      `json:"count"`
	Aliases []string `json:"aliases,omitempty"` // the first of these members
}

// MaxVoters is the most choices, the most scores and the most aliases of all choices
// together in an event. The mesh cuts off the rest.
const MaxVoters = 100

// StepScore is an evaluator's score for one output.
type StepScore struct {
	Alias string  `json:"alias"`
	Score float64 `json:"score"`
}

// The values of [StepEvent].Then.
const (
	ThenRetry    = "retry"    // the step is retried
	ThenSkip     = "skip"     // the others continue without it
	ThenFallback = "fallback" // the fallback member gets the task
	ThenFail     = "fail"     // the task fails, too
)

// The values of [StepEvent].By that are not aliases.
const (
	ByCondition = "condition" // the first condition that was true
	ByModel     = "model"     // the agent's own model
	ByFallback  = "fallback"  // no condition was true
	ByDefault   = "default"   // the documented merge
)

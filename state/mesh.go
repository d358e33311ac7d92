package state

import (
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/go-json-experiment/json/jsontext"
)

// Format is the newest version of the x-aeemesh member that this release writes; it reads
// this and every older one. It grows with every change that an older release would lose
// or misread. A document gets the oldest version that can express it, so that older
// workers can resume those runs that they understand:
//
//   - 1: runs of one agent
//   - 2: runs of teams, with a plan; runs that call other agents; runs whose task was
//     delegated
const Format = 2

// format returns the oldest version that can express m.
func (m *Mesh) format() int {
	if m.Plan != nil || m.Handed != nil || len(m.Calls) > 0 || m.Waits != nil || !m.WakeAt.IsZero() {
		return 2
	}
	return 1
}

// Extension is the name of the member that holds [Mesh].
const Extension = "x-aeemesh"

// Mesh is what this mesh stores in a document in addition to the specification's fields.
//
// In the document, each raw JSON value of it, above all the task's envelope, is a string
// with the JSON text: so it is preserved byte for byte, including its signature, although
// the document is canonicalised.
type Mesh struct {
	Format int    `json:"format"`
	Entity string `json:"entity"`            // the agent whose run it is
	TaskID string `json:"task_id,omitempty"` // the id of the task's envelope

	// Epoch counts the owners of the run. Each claim increments it; every write and every
	// effect carries it.
	Epoch uint64 `json:"epoch"`
	Owner string `json:"owner,omitempty"` // the instance that owns the run
	Step  Step   `json:"step"`            // the step that this checkpoint completes

	// Trail identifies the preceding checkpoints, newest first: see [Checkpoint.Follows].
	Trail []string `json:"trail,omitempty"`

	// Work is the stream sequence of the run's task, so that a sweep can find out whether
	// the message still exists. 0: unknown.
	Work uint64 `json:"work,omitempty"`

	// Redelivered is how often that message was delivered before the delivery by which the owner
	// claimed the run. A worker that gets an earlier delivery late does not claim the run.
	Redelivered uint64 `json:"redelivered,omitempty"`

	// WakeAt is the time at which a parked run wakes in any case. Its Waits and its
	// Deadline may wake it earlier.
	WakeAt time.Time `json:"wake_at,omitzero"`

	Task  json.RawMessage `json:"task,omitempty"`   // the task's envelope as it was received, JSON
	KeyID string          `json:"key_id,omitempty"` // the key that signed it, "" if none did

	Priority string    `json:"priority,omitempty"` // the priority in effect: the lane's, capped by policy
	CBOR     bool      `json:"cbor,omitempty"`     // the sender uses CBOR, and gets CBOR replies
	Deadline time.Time `json:"deadline,omitzero"`  // by the server's clock; zero: none yet, a claim sets it

	StoredAt  time.Time     `json:"stored_at,omitzero"`  // when the server stored the task
	StartedAt time.Time     `json:"started_at,omitzero"` // when it was first claimed
	Ran       time.Duration `json:"ran_ms,omitzero"`     // how long it has run, without parked times; whole milliseconds

	Claims  int `json:"claims,omitempty"`  // claims since the last completed step
	Attempt int `json:"attempt,omitempty"` // retries used so far

	Stream int    `json:"stream,omitempty"` // the number of the last stream envelope
	Told   string `json:"told,omitempty"`   // the text of the unfinished turn that was already streamed

	Notes    []Note   `json:"notes,omitempty"`    // data that the specification's messages have no place for
	Effects  []Effect `json:"effects,omitempty"`  // the ledger of tool calls, oldest first
	Commands []string `json:"commands,omitempty"` // ids of the commands that were applied
	Noted    []Noted  `json:"noted,omitempty"`    // commands that arrived before the task was started
	// Due is when the task of Noted is due, or was, if it was found in the schedule; zero once it
	// is started. Earlier releases ignore it.
	Due      time.Time `json:"due,omitzero"`
	Pending  string    `json:"want,omitempty"`     // the pending request: the status that the next step applies
	Steering []Steer   `json:"steering,omitempty"` // messages for the model's next turn
	Usage    Usage     `json:"usage,omitzero"`
	Turns    int       `json:"turns,omitempty"` // turns of models, as counted for the run's tree

	Calls []Call `json:"calls,omitempty"` // tasks sent to other agents, or about to be sent, that have not ended

	Loop  json.RawMessage `json:"loop,omitempty"`  // the handler's own data
	Plan  json.RawMessage `json:"plan,omitempty"`  // the progress of a team; defined by package orchestrate
	Waits []Wait          `json:"waits,omitempty"` // tasks that the run has sent to people and waits for, or waited for when it was last parked
	Reply json.RawMessage `json:"reply,omitempty"` // the terminal envelope as it is sent, JSON
	// Handed is the delegation, if the task was delegated and this run does not reply.
	Handed *Handed `json:"handed,omitempty"`
	Dead   string  `json:"dead,omitempty"` // why the task is a dead letter; "" if it is not

	Parent    *Parent    `json:"parent,omitempty"`
	Migration *Migration `json:"migration,omitempty"`

	// More holds members of x-aeemesh that this release does not know, as one JSON
	// object. They are preserved.
	More jsontext.Value `json:",embed"`
}

// TransferredHere reports whether another platform has transferred the run to this one. The
// replies of such a run reach the task's sender only through that platform, which believes those
// of the run's own entity.
func (m *Mesh) TransferredHere() bool { return m.Parent != nil && m.Parent.Kind == "migration" }

// Vouched returns the platform that vouches for the sender of the run's task, "" if none
// has to: the run came from that platform, and no key that is known here proves the
// sender. Such a run is treated like one of an unsigned task.
func (m *Mesh) Vouched() string {
	if m.KeyID == "" && m.TransferredHere() {
		return m.Parent.Platform
	}
	return ""
}

// Handed says to which agent a run delegated its task. The run has ended with that, and
// has no reply of its own.
type Handed struct {
	To     string          `json:"to"`      // the entity
	TaskID string          `json:"task_id"` // the id of the task there
	Task   json.RawMessage `json:"task"`    // the envelope of that task as it is queued, JSON
	Reason string          `json:"reason,omitempty"`
}

// A Step is the step that a checkpoint completes.
type Step struct {
	Kind   StepKind `json:"kind"`
	Name   string   `json:"name,omitempty"`   // of the tool, the pipeline step, the handler's own step
	Detail string   `json:"detail,omitempty"` // a few words for people; never payload
	MS     int64    `json:"ms,omitempty"`     // how long it took
}

// StepKind is a kind of step.
type StepKind string

// The kinds of step.
const (
	StepClaim    StepKind = "claim"    // an owner claimed the run
	StepModel    StepKind = "model"    // a turn of the model
	StepIntent   StepKind = "intent"   // tool calls are about to be made
	StepReceipt  StepKind = "receipt"  // a tool call has ended
	StepAnswer   StepKind = "answer"   // the last turn became the result's payload
	StepTerminal StepKind = "terminal" // the run ended; the reply is in the checkpoint
	StepPause    StepKind = "pause"
	StepResume   StepKind = "resume"
	StepSteer    StepKind = "steer"
	StepSettle   StepKind = "settle" // a person stated the outcome of an effect
	StepRetry    StepKind = "retry"  // a failure was stored; the run will be retried
	StepMigrate  StepKind = "migrate"
	StepFork     StepKind = "fork"
	StepImport   StepKind = "import"
	StepTeam     StepKind = "team"    // a member of the team has answered
	StepCall     StepKind = "call"    // tasks for other agents are about to be sent, or under way
	StepHandoff  StepKind = "handoff" // the task was delegated; as a run of its own: the state that goes with a delegated task
	StepHandler  StepKind = "handler" // a step of the handler
)

// A Note holds what one message of the conversation has in addition to the
// specification's fields: the calls that an assistant's turn asks for, data that the
// model's provider needs again, and whether a tool's message reports a failure.
type Note struct {
	Message  int              `json:"message"` // index into conversation
	Calls    []model.ToolCall `json:"calls,omitempty"`
	IsError  bool             `json:"is_error,omitempty"`
	Provider json.RawMessage  `json:"provider,omitempty"` // of model.Message
}

// An Effect is one tool call in the ledger: its intent, its start, and its outcome.
type Effect struct {
	ID       string       `json:"id"`             // of the tool call
	Tool     string       `json:"tool"`           // its name
	Key      string       `json:"key"`            // the idempotency key, see [EffectKey]
	ArgsHash string       `json:"args_hash"`      // see [ArgsHash]
	Status   EffectStatus `json:"status"`         //
	Epoch    uint64       `json:"epoch"`          // of the owner that wrote the status
	Tries    int          `json:"tries,omitzero"` // how often it was started

	At     time.Time `json:"at,omitzero"`      // when it was last started
	DoneAt time.Time `json:"done_at,omitzero"` // when it ended

	Result    json.RawMessage `json:"result,omitempty"`     // what the tool returned, until it is in the conversation
	Error     string          `json:"error,omitempty"`      // the failure as the model gets it, until it is in the conversation
	SettledBy string          `json:"settled_by,omitempty"` // the person who stated the outcome, if it was unknown
}

// EffectStatus is the state of an effect.
type EffectStatus string

// The states of an effect. Done, failed and timed out are final; unknown waits for a
// person.
const (
	EffectPending  EffectStatus = "pending"   // intended, not started
	EffectInFlight EffectStatus = "in_flight" // started: it may have happened
	EffectDone     EffectStatus = "done"      // it returned a result
	EffectFailed   EffectStatus = "failed"    // it returned an error
	EffectTimedOut EffectStatus = "timed_out" // given up: it may have happened
	EffectUnknown  EffectStatus = "unknown"   // it may have happened, and a person must state the outcome
)

// Final reports whether the effect has ended.
func (s EffectStatus) Final() bool {
	return s == EffectDone || s == EffectFailed || s == EffectTimedOut
}

// A Steer is a message that a user adds to the model's next turn.
type Steer struct {
	ID   string    `json:"id"` // of the command's envelope
	From string    `json:"from,omitempty"`
	Text string    `json:"text"`
	At   time.Time `json:"at,omitzero"`
}

// A Wait is a task that the run has sent to a person, or another receiver that may take
// long. The run is parked until the answer.
type Wait struct {
	Entity string    `json:"entity"`         // the receiver
	TaskID string    `json:"task_id"`        //
	Key    string    `json:"key,omitempty"`  // names it within the run
	Asked  time.Time `json:"asked,omitzero"` // when the server stored the task
	Until  time.Time `json:"until,omitzero"` // an answer that is stored later does not count; zero: no limit
	Void   bool      `json:"void,omitempty"` // the run no longer needs an answer

	// Answered: the run has the answer. The wait stays in the record until the run parks for
	// the next answer, or ends.
	Answered bool `json:"answered,omitempty"`

	// Later: the run is parked for an approval, and reads the answer when it goes on: the answer,
	// or the end of its time, does not wake it.
	Later bool `json:"later,omitempty"`

	// Schema is the JSON Schema, as text, that a result must match; "": any result
	// counts. A [Header] leaves it out.
	Schema string `json:"result_schema,omitempty"`
}

// Open reports whether the run still needs the answer.
func (w Wait) Open() bool { return !w.Void && !w.Answered }

// Wakes reports whether the answer, or the end of its time, wakes the run.
func (w Wait) Wakes() bool { return w.Open() && !w.Later }

// Noted is a command for a task that was not started when the command arrived. The worker
// that starts the task decides whether the sender may command it.
type Noted struct {
	ID     string    `json:"id"`               // of the command's envelope
	Intent string    `json:"intent"`           // of the command
	From   string    `json:"from"`             // the sender of the command
	KeyID  string    `json:"key_id,omitempty"` // the key that signed it, "" if none did
	Reason string    `json:"reason,omitempty"`
	Text   string    `json:"text,omitempty"`
	Caller string    `json:"caller,omitempty"` // the from that the task must have; "": any. Earlier releases ignore it
	At     time.Time `json:"at,omitzero"`
}

// A Call is a task that the run sends to another agent. It is stored before the task is
// sent, and removed when the task has ended: so the worker that ends the run knows which
// tasks to cancel with it.
type Call struct {
	Key  string    `json:"key"` // names the call within the run
	ID   string    `json:"id"`  // of the task
	To   string    `json:"to"`
	Live bool      `json:"live,omitempty"` // over the live lane
	Job  bool      `json:"job,omitempty"`  // of Live: answered with a job id, and done over the durable lane
	Past bool      `json:"past,omitempty"` // of Live: of an earlier attempt; earlier releases do not write it
	At   time.Time `json:"at,omitzero"`

	// Sent are the digests of the tasks that were sent under ID over the durable lane: there are
	// several if a later owner of the run made another task for the call. The answers to all of
	// them count. Earlier releases do not write it.
	Sent []string `json:"sent,omitempty"`
}

// Usage counts what a run has used, in all attempts and by all owners.
type Usage struct {
	InputTokens  int64 `json:"input_tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens,omitempty"`
	ModelCalls   int64 `json:"model_calls,omitempty"`
	// ToolCalls counts the tool calls that were started, each once even if it was
	// repeated; see [Effect].Tries for repeats.
	ToolCalls int64 `json:"tool_calls,omitempty"`

	// CostNanoUSD is the cost of the model's turns in billionths of a US dollar, as far
	// as prices are known. UnpricedCalls counts the turns without a known price.
	CostNanoUSD   int64 `json:"cost_nano_usd,omitempty"`
	UnpricedCalls int64 `json:"unpriced_calls,omitempty"`

	// EstimatedTokens and EstimatedNanoUSD are estimates, under a budget, for turns whose
	// provider did not report the usage. They are not included in the counts above.
	EstimatedTokens  int64 `json:"estimated_tokens,omitempty"`
	EstimatedNanoUSD int64 `json:"estimated_nano_usd,omitempty"`

	// TreeTokens and TreeCostNanoUSD are the usage of all runs with the task's corr when
	// this one last read the counters; 0 if it is not counted.
	TreeTokens      int64 `json:"tree_tokens,omitempty"`
	TreeCostNanoUSD int64 `json:"tree_cost_nano_usd,omitempty"`
}

// Parent is the checkpoint that a run started from.
type Parent struct {
	Kind     string `json:"kind"` // "fork", "migration", "import"
	Entity   string `json:"entity,omitempty"`
	Run      string `json:"run,omitempty"`
	TaskID   string `json:"task_id,omitempty"`
	StateID  string `json:"state_id,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	Platform string `json:"platform,omitempty"` // if it is not this mesh
}

package state

import (
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/go-json-experiment/json/jsontext"
)

// Format is the newest version of the x-aeemesh member that this release reads
// and writes; it reads every older one. It grows with every change that an older
// release would lose or misread. A document has the oldest version that says all
// of it, so that older workers go on with what they understand:
//
//   - 1: runs of one agent
//   - 2: runs of teams, with a plan; runs that call other agents; runs that somebody else answers
const Format = 2

// format is the oldest version that says all of m.
func (m *Mesh) format() int {
	if m.Plan != nil || m.Handed != nil || len(m.Calls) > 0 || m.Waits != nil || !m.WakeAt.IsZero() {
		return 2
	}
	return 1
}

// Extension is the name of the member that holds [Mesh].
const Extension = "x-aeemesh"

// Mesh is what this mesh keeps in a document beside the specification's
// fields.
//
// In the document every raw JSON value of it, the task's envelope above all, is
// a string that holds the JSON text: so it comes back byte for byte, signature,
// digits and all, whatever canonical form the document has.
type Mesh struct {
	Format int    `json:"format"`
	Entity string `json:"entity"`            // whose run it is
	TaskID string `json:"task_id,omitempty"` // the id of the task's envelope

	// Epoch counts the owners that the run has had. Whoever claims the run adds
	// one; every write and every effect carries it.
	Epoch uint64 `json:"epoch"`
	Owner string `json:"owner,omitempty"` // the instance that owns the run
	Step  Step   `json:"step"`            // what this checkpoint is the end of

	// Trail are the marks of the checkpoints that this one was written over, newest
	// first: see [Mesh.Follows].
	Trail []string `json:"trail,omitempty"`

	// Work is the stream sequence of the work message that this run answers,
	// so that a sweeper can see whether the message is still there. 0: unknown.
	Work uint64 `json:"work,omitempty"`

	// WakeAt is when a run that waits is to go on in any case. Its Waits and its
	// Deadline may end the waiting sooner.
	WakeAt time.Time `json:"wake_at,omitzero"`

	Task  json.RawMessage `json:"task,omitempty"`   // the task's envelope as it came, JSON
	KeyID string          `json:"key_id,omitempty"` // the key that signed it, "" if none did

	Priority string    `json:"priority,omitempty"` // as the task is served: the lane's, capped by policy
	CBOR     bool      `json:"cbor,omitempty"`     // the sender speaks CBOR, and is answered in it
	Deadline time.Time `json:"deadline,omitzero"`  // by the server's clock; zero: none

	StoredAt  time.Time     `json:"stored_at,omitzero"`  // when the server stored the task
	StartedAt time.Time     `json:"started_at,omitzero"` // when it was claimed first
	Ran       time.Duration `json:"ran_ms,omitzero"`     // how long it has run, parked times not counted; whole milliseconds

	Claims  int `json:"claims,omitempty"`  // claims since the last completed step
	Attempt int `json:"attempt,omitempty"` // retries used so far

	Stream int    `json:"stream,omitempty"` // the number of the last stream envelope
	Told   string `json:"told,omitempty"`   // text of the unfinished turn that was streamed already

	Notes    []Note   `json:"notes,omitempty"`    // what the specification's messages have no place for
	Effects  []Effect `json:"effects,omitempty"`  // the ledger of tool calls, oldest first
	Commands []string `json:"commands,omitempty"` // ids of the commands that were applied
	Noted    []Noted  `json:"noted,omitempty"`    // commands that came before the task was seen
	Want     string   `json:"want,omitempty"`     // the status that was asked for and comes with the next step
	Steering []Steer  `json:"steering,omitempty"` // messages that wait for the next turn
	Usage    Usage    `json:"usage,omitzero"`
	Turns    int      `json:"turns,omitempty"` // of the model, as far as the run's tree has counted them

	Calls []Call `json:"calls,omitempty"` // tasks for others that were sent, or are about to be, and have not ended

	Loop  json.RawMessage `json:"loop,omitempty"`  // the handler's own
	Plan  json.RawMessage `json:"plan,omitempty"`  // how far a team has come; package orchestrate's own
	Waits []Wait          `json:"waits,omitempty"` // tasks of the run's that people have, or had when it was parked last
	Reply json.RawMessage `json:"reply,omitempty"` // the terminal envelope as it is sent, JSON
	// Handed says who answers the task, where that is not this run.
	Handed *Handed `json:"handed,omitempty"`
	Dead   string  `json:"dead,omitempty"` // why the task is a dead letter; "" if it is none

	Parent    *Parent    `json:"parent,omitempty"`
	Migration *Migration `json:"migration,omitempty"`

	// More holds members of this extension that this release does not know, as
	// one JSON object. They survive.
	More jsontext.Value `json:",embed"`
}

// Vouched is the platform whose word it is who sent the run's task, "" where that is
// not so: the run came from there, and no key that is known here proves the sender.
// Then the run is what one of an unsigned task is.
func (m *Mesh) Vouched() string {
	if m.KeyID == "" && m.Parent != nil && m.Parent.Kind == "migration" {
		return m.Parent.Platform
	}
	return ""
}

// Handed is to whom a run has handed its task on. The run has ended with that,
// and has no reply of its own.
type Handed struct {
	To     string          `json:"to"`      // the entity
	TaskID string          `json:"task_id"` // the id of the task there
	Task   json.RawMessage `json:"task"`    // its envelope as it is queued, JSON
	Reason string          `json:"reason,omitempty"`
}

// A Step says what a checkpoint is the end of.
type Step struct {
	Kind   StepKind `json:"kind"`
	Name   string   `json:"name,omitempty"`   // of the tool, the pipeline step, the handler's own step
	Detail string   `json:"detail,omitempty"` // a few words for people; no payload
	MS     int64    `json:"ms,omitempty"`     // how long it took
}

// StepKind is a kind of step.
type StepKind string

// The kinds of step.
const (
	StepClaim    StepKind = "claim"    // an owner took the run
	StepModel    StepKind = "model"    // a turn of the model
	StepIntent   StepKind = "intent"   // tool calls are about to be made
	StepReceipt  StepKind = "receipt"  // a tool call has its outcome
	StepAnswer   StepKind = "answer"   // the last turn became the result's payload
	StepTerminal StepKind = "terminal" // the run ended; the reply is in the checkpoint
	StepPause    StepKind = "pause"
	StepResume   StepKind = "resume"
	StepSteer    StepKind = "steer"
	StepSettle   StepKind = "settle" // somebody said what became of an effect
	StepRetry    StepKind = "retry"  // a failure was committed and will be tried again
	StepMigrate  StepKind = "migrate"
	StepFork     StepKind = "fork"
	StepImport   StepKind = "import"
	StepTeam     StepKind = "team"    // a member of the team has answered
	StepCall     StepKind = "call"    // tasks for others are about to be sent
	StepHandoff  StepKind = "handoff" // the task was handed on; in a run of its own: what goes along with one
	StepHandler  StepKind = "handler" // a handler's own
)

// A Note is what one message of the conversation has besides the
// specification's fields: the calls that an assistant's turn asks for, what its
// provider wants to see again, and whether a tool's message tells of a failure.
type Note struct {
	Message  int              `json:"message"` // index into conversation
	Calls    []model.ToolCall `json:"calls,omitempty"`
	IsError  bool             `json:"is_error,omitempty"`
	Provider json.RawMessage  `json:"provider,omitempty"` // of model.Message
}

// An Effect is one tool call in the ledger: that it was meant, that it was
// begun, and what became of it.
type Effect struct {
	ID       string       `json:"id"`             // of the tool call
	Tool     string       `json:"tool"`           // its name
	Key      string       `json:"key"`            // the idempotency key, see [EffectKey]
	ArgsHash string       `json:"args_hash"`      // see [ArgsHash]
	Status   EffectStatus `json:"status"`         //
	Epoch    uint64       `json:"epoch"`          // of the owner that wrote the status
	Tries    int          `json:"tries,omitzero"` // how often it was begun

	At     time.Time `json:"at,omitzero"`      // when it was begun last
	DoneAt time.Time `json:"done_at,omitzero"` // when its outcome was known

	Result    json.RawMessage `json:"result,omitempty"`     // what the tool returned, until the conversation has it
	Error     string          `json:"error,omitempty"`      // what the model is told of a failure, until the conversation has it
	SettledBy string          `json:"settled_by,omitempty"` // who said what became of it, where nobody saw it
}

// EffectStatus is how far an effect has come.
type EffectStatus string

// The states of an effect. Done, failed and timed out are final; unknown waits
// for a person.
const (
	EffectPending  EffectStatus = "pending"   // meant, not begun
	EffectInFlight EffectStatus = "in_flight" // begun: it may have happened
	EffectDone     EffectStatus = "done"      // it returned a result
	EffectFailed   EffectStatus = "failed"    // it returned an error
	EffectTimedOut EffectStatus = "timed_out" // given up: it may have happened
	EffectUnknown  EffectStatus = "unknown"   // it may have happened, and a person must say
)

// Final reports whether the effect's outcome is settled.
func (s EffectStatus) Final() bool {
	return s == EffectDone || s == EffectFailed || s == EffectTimedOut
}

// A Steer is a message that somebody put in for the model's next turn.
type Steer struct {
	ID   string    `json:"id"` // of the command's envelope
	From string    `json:"from,omitempty"`
	Text string    `json:"text"`
	At   time.Time `json:"at,omitzero"`
}

// A Wait is a task that the run has sent to somebody who may take long: it waits
// for the answer without a worker.
type Wait struct {
	Entity string    `json:"entity"`         // who has it
	TaskID string    `json:"task_id"`        //
	Key    string    `json:"key,omitempty"`  // names it within the run
	Asked  time.Time `json:"asked,omitzero"` // when the server stored it
	Until  time.Time `json:"until,omitzero"` // an answer that is stored later does not count; zero: none is too late
	Void   bool      `json:"void,omitempty"` // the run has no use for an answer any more

	// Schema is the JSON Schema, as text, that a result must fit to count; "": any
	// does. A [Header] leaves it out.
	Schema string `json:"result_schema,omitempty"`
}

// Noted is a command for a task that nobody had begun when it came. Whoever
// begins the task finds out whether its sender may command it.
type Noted struct {
	ID     string    `json:"id"`               // of the command's envelope
	Intent string    `json:"intent"`           // of the command
	From   string    `json:"from"`             // who asks
	KeyID  string    `json:"key_id,omitempty"` // the key that signed it, "" if none did
	Reason string    `json:"reason,omitempty"`
	Text   string    `json:"text,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// A Call is a task that the run sends to another agent. It is written before the
// task is sent, and taken out when that has ended: so whoever ends the run, which
// may be somebody else, knows what is to be stopped with it.
type Call struct {
	Key  string    `json:"key"` // names the call within the run
	ID   string    `json:"id"`  // of the task
	To   string    `json:"to"`
	Live bool      `json:"live,omitempty"` // over the live lane
	At   time.Time `json:"at,omitzero"`
}

// Usage counts what a run has used, all attempts and owners together.
type Usage struct {
	InputTokens  int64 `json:"input_tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens,omitempty"`
	ModelCalls   int64 `json:"model_calls,omitempty"`
	// ToolCalls are the calls of tools that were begun, each counted once however
	// often it was begun; [Effect].Tries has that.
	ToolCalls int64 `json:"tool_calls,omitempty"`

	// CostNanoUSD is what the model's turns cost, in billionths of a US dollar,
	// as far as prices are known, and UnpricedCalls is how many of them had
	// none.
	CostNanoUSD   int64 `json:"cost_nano_usd,omitempty"`
	UnpricedCalls int64 `json:"unpriced_calls,omitempty"`

	// EstimatedTokens and EstimatedNanoUSD are what turns may have used of which the
	// provider said nothing, under a budget. They are not in the counts above.
	EstimatedTokens  int64 `json:"estimated_tokens,omitempty"`
	EstimatedNanoUSD int64 `json:"estimated_nano_usd,omitempty"`

	// TreeTokens and TreeCostNanoUSD are what all runs of the task's corr had
	// used together when this one last looked; 0 where nobody counts that.
	TreeTokens      int64 `json:"tree_tokens,omitempty"`
	TreeCostNanoUSD int64 `json:"tree_cost_nano_usd,omitempty"`
}

// Parent says which checkpoint a run began from.
type Parent struct {
	Kind     string `json:"kind"` // "fork", "migration", "import"
	Entity   string `json:"entity,omitempty"`
	Run      string `json:"run,omitempty"`
	TaskID   string `json:"task_id,omitempty"`
	StateID  string `json:"state_id,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	Platform string `json:"platform,omitempty"` // where it is not this mesh
}

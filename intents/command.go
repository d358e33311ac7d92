package intents

import "encoding/json"

// Command is the task payload of one of the mesh's commands: [CancelTask], [PauseTask],
// [ResumeTask], [SteerTask], [SettleTask], [MigrateTask].
type Command interface {
	// CommandIntent returns the intent that the command is sent with.
	CommandIntent() string
}

// IsCommand reports whether an intent belongs to a [Command].
func IsCommand(intent string) bool {
	switch intent {
	case TaskCancel, TaskPause, TaskResume, TaskSteer, TaskSettle, TaskMigrate:
		return true
	}
	return false
}

// Target says what a command applies to: a task by its id, its run by the run's id, or
// every task of a correlation. One of the three is required; [SteerTask], [SettleTask] and
// [MigrateTask] accept no Corr.
type Target struct {
	ID   string `json:"id,omitempty"`
	Run  string `json:"run,omitempty"`
	Corr string `json:"corr,omitempty"`
	// Durable says that the task is on the durable lane: the command is always answered,
	// and it is stored if the task has not started.
	Durable bool `json:"durable,omitempty"`
	// CopyOf is set by an agent that passes on a command about a task that it has delegated:
	// the id of that command. A run applies a command once, however often it is passed on.
	CopyOf string `json:"copy_of,omitempty"`
}

// CancelTask cancels one task (ID or Run), or every task of a correlation.
type CancelTask struct {
	ID      string `json:"id,omitempty"`
	Run     string `json:"run,omitempty"`
	Corr    string `json:"corr,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Durable bool   `json:"durable,omitempty"` // as in [Target]
	// From, if not empty, is the from of the tasks: a task of another sender is not cancelled. A sender who
	// knows a task only from what an agent says of its calls gives it.
	From string `json:"from,omitempty"`
}

// PauseTask pauses a run after its current step.
type PauseTask struct {
	Target
	Reason string `json:"reason,omitempty"`
}

// ResumeTask resumes a paused run.
type ResumeTask struct {
	Target
	Reason string `json:"reason,omitempty"`
}

// SteerTask adds a message to a run's next turn.
type SteerTask struct {
	Target
	Text string `json:"text"`
}

// Outcome is the outcome of a tool call, as a person states it.
type Outcome string

// The outcomes of a [SettleTask].
const (
	OutcomeDone   Outcome = "done"   // it happened, and returned Result
	OutcomeFailed Outcome = "failed" // it did not happen, or failed with Error
	OutcomeRepeat Outcome = "repeat" // call again, with the same idempotency key
)

// SettleTask states the outcome of a tool call whose outcome is unknown.
type SettleTask struct {
	Target
	Call    string          `json:"call,omitempty"` // the tool call's id; "": all calls with an unknown outcome
	Outcome Outcome         `json:"outcome"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
	Reason  string          `json:"reason,omitempty"`
}

// MigrateTask transfers a run to another worker, or to another platform.
type MigrateTask struct {
	Target
	// To is an instance of the entity, "any" for any other instance, the https URL of a
	// receiver, or "file": then the run is stopped until an operator exports it.
	To string `json:"to,omitempty"`
	// Platform is the platform that a file is for.
	Platform string `json:"platform,omitempty"`
	// WaitMS is how many milliseconds to wait for tool calls under way before the run is
	// captured with them unfinished. Default: until they end.
	WaitMS int64 `json:"wait_ms,omitempty"`
	// Abort aborts a transfer; it replaces To.
	Abort  bool   `json:"abort,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// The values of [MigrateTask].To that are neither an instance nor a URL.
const (
	MigrateAny  = "any"
	MigrateFile = "file"
)

// CommandIntent returns [TaskCancel].
func (CancelTask) CommandIntent() string { return TaskCancel }

// CommandIntent returns [TaskPause].
func (PauseTask) CommandIntent() string { return TaskPause }

// CommandIntent returns [TaskResume].
func (ResumeTask) CommandIntent() string { return TaskResume }

// CommandIntent returns [TaskSteer].
func (SteerTask) CommandIntent() string { return TaskSteer }

// CommandIntent returns [TaskSettle].
func (SettleTask) CommandIntent() string { return TaskSettle }

// CommandIntent returns [TaskMigrate].
func (MigrateTask) CommandIntent() string { return TaskMigrate }

// CommandResult answers a command. Of the six bool members it has the one that belongs to
// the command.
type CommandResult struct {
	Cancelled bool `json:"cancelled,omitempty"`
	Paused    bool `json:"paused,omitempty"`
	Resumed   bool `json:"resumed,omitempty"`
	Steered   bool `json:"steered,omitempty"`
	Settled   bool `json:"settled,omitempty"`
	Migrating bool `json:"migrating,omitempty"`
	// Runs are the ids of the runs that the command applied to; none for live tasks.
	Runs []string `json:"runs,omitempty"`
	// Status is the run's current status in AAIF's terms, or "pausing" while a step has
	// to end first, or "noted" if the task has not started.
	Status string `json:"status,omitempty"`
}

// CancelResult is the minimal answer to mesh.task.cancel.
type CancelResult struct {
	Cancelled bool `json:"cancelled"` // at least one task was cancelled
}

package intents

import "encoding/json"

// Command is the task payload of one of the mesh's commands: [CancelTask],
// [PauseTask], [ResumeTask], [SteerTask], [SettleTask], [MigrateTask].
type Command interface {
	// CommandIntent is the intent that the command is sent with.
	CommandIntent() string
}

// IsCommand reports whether an intent is that of a [Command].
func IsCommand(intent string) bool {
	switch intent {
	case TaskCancel, TaskPause, TaskResume, TaskSteer, TaskSettle, TaskMigrate:
		return true
	}
	return false
}

// Target names what a command is about: a task by its id, its run by the run's
// id, or every task of a correlation. One of the three must be there;
// [SteerTask] and [SettleTask] take no Corr.
type Target struct {
	ID   string `json:"id,omitempty"`
	Run  string `json:"run,omitempty"`
	Corr string `json:"corr,omitempty"`
	// Durable says that the task is on the durable lane: the command is
	// answered in any case, and noted where nobody has begun the task.
	Durable bool `json:"durable,omitempty"`
}

// CancelTask asks to stop one task (ID or Run), or every task of a correlation.
type CancelTask struct {
	ID      string `json:"id,omitempty"`
	Run     string `json:"run,omitempty"`
	Corr    string `json:"corr,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Durable bool   `json:"durable,omitempty"` // as in [Target]
}

// PauseTask asks a run to stop after the step that it is in.
type PauseTask struct {
	Target
	Reason string `json:"reason,omitempty"`
}

// ResumeTask asks a paused run to go on.
type ResumeTask struct {
	Target
	Reason string `json:"reason,omitempty"`
}

// SteerTask gives a run a message for its next turn.
type SteerTask struct {
	Target
	Text string `json:"text"`
}

// Outcome is what a person says has become of a tool call.
type Outcome string

// The outcomes of a [SettleTask].
const (
	OutcomeDone   Outcome = "done"   // it happened, and returned Result
	OutcomeFailed Outcome = "failed" // it did not happen, or failed with Error
	OutcomeRepeat Outcome = "repeat" // call again, under the same idempotency key
)

// SettleTask says what became of a tool call whose outcome is unknown.
type SettleTask struct {
	Target
	Call    string          `json:"call,omitempty"` // the tool call's id; "": all that are unknown
	Outcome Outcome         `json:"outcome"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
	Reason  string          `json:"reason,omitempty"`
}

// MigrateTask asks to move a run to another worker, or to another platform.
type MigrateTask struct {
	Target
	// To is an instance of the entity, "any" for any other one, the https URL of
	// a receiver, or "file": then the run stands still until somebody exports it.
	To string `json:"to,omitempty"`
	// Platform is the platform that a file is for.
	Platform string `json:"platform,omitempty"`
	// WaitMS is how long to wait for tool calls that are under way, in
	// milliseconds, before the run is captured with them. Default: as long as
	// they take.
	WaitMS int64 `json:"wait_ms,omitempty"`
	// Abort takes a move back, in the place of To.
	Abort  bool   `json:"abort,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// The words of [MigrateTask].To that are neither an instance nor a URL.
const (
	MigrateAny  = "any"
	MigrateFile = "file"
)

// CommandIntent is [TaskCancel].
func (CancelTask) CommandIntent() string { return TaskCancel }

// CommandIntent is [TaskPause].
func (PauseTask) CommandIntent() string { return TaskPause }

// CommandIntent is [TaskResume].
func (ResumeTask) CommandIntent() string { return TaskResume }

// CommandIntent is [TaskSteer].
func (SteerTask) CommandIntent() string { return TaskSteer }

// CommandIntent is [TaskSettle].
func (SettleTask) CommandIntent() string { return TaskSettle }

// CommandIntent is [TaskMigrate].
func (MigrateTask) CommandIntent() string { return TaskMigrate }

// CommandResult answers a command. Of its six words the one is there that
// belongs to the command.
type CommandResult struct {
	Cancelled bool `json:"cancelled,omitempty"`
	Paused    bool `json:"paused,omitempty"`
	Resumed   bool `json:"resumed,omitempty"`
	Steered   bool `json:"steered,omitempty"`
	Settled   bool `json:"settled,omitempty"`
	Migrating bool `json:"migrating,omitempty"`
	// Runs are the ids of the runs that it was about; none for live tasks.
	Runs []string `json:"runs,omitempty"`
	// Status is what the run is doing now, one of AAIF's words, or "pausing"
	// while a step has to end first, or "noted" where nobody has begun the task.
	Status string `json:"status,omitempty"`
}

// CancelResult is what answers mesh.task.cancel, at the least.
type CancelResult struct {
	Cancelled bool `json:"cancelled"` // at least one task was told to stop
}

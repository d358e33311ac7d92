package mesh

import (
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/tracing"
	"github.com/aeemesh/aeemesh/mesh/platform"
)

// The names of package client that callers of a [Node] need.
type (
	// SendOptions say how Node.Send sends.
	SendOptions = client.SendOptions
	// SubmitOptions configure Node.Submit.
	SubmitOptions = client.SubmitOptions
	// Submitted confirms that the server has stored a task.
	Submitted = client.Submitted
	// ResultOptions say what Node.Result waits for.
	ResultOptions = client.ResultOptions
	// Instance is one worker of one agent, as it describes itself.
	Instance = client.Instance
	// PersonTask is a task for a person.
	PersonTask = client.PersonTask
	// PersonTaskState is the state of a task for a person.
	PersonTaskState = client.PersonTaskState
)

// The states of a [PersonTask].
const (
	AskOpen      = client.AskOpen
	AskAnswered  = client.AskAnswered
	AskOverdue   = client.AskOverdue
	AskWithdrawn = client.AskWithdrawn
)

// Errors of the methods that [Node] has from package client.
var (
	ErrNoResult    = client.ErrNoResult    // the task has not ended, or there is no task with this id
	ErrNoReply     = client.ErrNoReply     // no reply to the retry of a dead letter can come
	ErrQueued      = client.ErrQueued      // a command is in the work queue, and its answer was not awaited
	ErrBegun       = client.ErrBegun       // a worker has or may have begun the task, which was to be withdrawn
	ErrAnswered    = client.ErrAnswered    // the task for a person has a valid answer already
	ErrTooLate     = client.ErrTooLate     // the time for an answer is over, or the task was withdrawn
	ErrSeveralAsks = client.ErrSeveralAsks // an id, or its beginning, is that of several tasks for people
	ErrMisfit      = client.ErrMisfit      // the answer does not fit requires.result_schema
)

// IsUnanswered reports whether err, of Node.TryCommand, means that no worker answered: no worker
// is online, or none of them has the run or answers for it in time.
func IsUnanswered(err error) bool { return client.IsUnanswered(err) }

// PublishesTo reports whether an entity has no worker that answers: people
// and channels.
func PublishesTo(entity string) bool { return client.PublishesTo(entity) }

// CheckTraceHeader returns an error if a name cannot be an Agent's TraceHeader.
func CheckTraceHeader(name string) error { return tracing.CheckHeader(name) }

// The options of the methods that [Node] has from package platform.
type (
	// ExportOptions configure Node.Export, which writes a run to a file for another platform.
	ExportOptions = platform.ExportOptions
	// ConfirmOptions say whose verdicts Node.Confirm accepts.
	ConfirmOptions = platform.ConfirmOptions
	// ReceiverOptions configure Node.Receiver, which accepts runs from other platforms.
	ReceiverOptions = platform.ReceiverOptions
)

// Errors of Node.Export, Node.Confirm and Node.Recall.
var (
	ErrEnded         = platform.ErrEnded
	ErrNotMoving     = platform.ErrNotMoving
	ErrMoving        = platform.ErrMoving
	ErrAcceptedThere = platform.ErrAcceptedThere
	ErrStopping      = platform.ErrStopping
)

// ErrSealKey is an error of Node.CheckSealKey and of a receiver.
var ErrSealKey = platform.ErrSealKey

// ErrVersion is an error of Node.CheckVersion and of a receiver.
var ErrVersion = platform.ErrVersion

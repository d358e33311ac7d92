package run

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
)

// CallID returns the id of the task that a call sends under a key over the durable lane. It is
// derived from the run, the run's attempt and the key, so that the next owner of the run finds
// the same call. task is the run's own task, and c its last checkpoint; nil: there is none.
func CallID(c *state.Checkpoint, task *envelope.Envelope, run, key string) string {
	if c != nil { // a retried run sends its calls again
		run = fmt.Sprintf("%s/%d/%s", run, c.Mesh.Attempt, LastRetry(c))
	}
	at, _ := task.Time()
	return envelope.DeriveID(task.ID, at, run, key)
}

// ofThisAttempt reports whether a task was sent in the run's present attempt: the answers to those of
// an earlier one are not read any more. It reports true if it cannot tell.
func ofThisAttempt(c *state.Checkpoint, key, id string) bool {
	if c.Mesh.Attempt == 0 && LastRetry(c) == "" {
		return true // there was no other
	}
	task, err := c.ReadTask()
	return err != nil || key == "" || id == CallID(c, task, c.Doc.RunID, key)
}

// pastCalls marks the calls over the live lane as those of an earlier attempt: their ids do not tell
// it. They stay in the record, so that a later owner of the run cancels those that still go on.
func pastCalls(c *state.Checkpoint) {
	for i := range c.Mesh.Calls {
		c.Mesh.Calls[i].Past = c.Mesh.Calls[i].Live
	}
}

// RetryPrefix begins the id of the retry of a dead letter among the commands of a run; the letter's
// sequence follows. Other commands have the ids of their envelopes, which their senders choose: see
// [CheckCommandID].
const RetryPrefix = "retry."

// CheckCommandID refuses the id of a command that begins with [RetryPrefix]: the run would take it
// for the retry of a dead letter.
func CheckCommandID(id string) error {
	if strings.HasPrefix(id, RetryPrefix) {
		return envelope.Errorf(envelope.CodeRequires, "the id of a command, or its copy_of, begins with %q", RetryPrefix)
	}
	return nil
}

// LastRetry returns the id of the last retry of the run after it was dead-lettered, "" if there is
// none.
func LastRetry(c *state.Checkpoint) string {
	for _, id := range slices.Backward(c.Mesh.Commands) {
		if seq, ok := strings.CutPrefix(id, RetryPrefix); ok && seq != "" && strings.Trim(seq, "0123456789") == "" {
			return id
		}
	}
	return ""
}

package orders

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// A command for a task that has not begun is noted: stored in a record that the worker reads
// when it begins the task. A sender may name the id of a task that never arrives, so noted
// commands are short and few, and expire in minutes.
const (
	// noteText bounds the text of a noted command, in bytes.
	noteText = 4 << 10
	// NoteTTL is the time to live of a record of noted commands. For a scheduled task it
	// counts from the task's due time. While the queue may hold the task, a worker renews
	// the record, until NoteMost after the first command, or after the due time.
	NoteTTL  = 15 * time.Minute
	NoteMost = 7 * 24 * time.Hour
)

// noteBounds bound the noted commands: all, those of one sender, and all unsigned ones together.
// So a sender that invents tasks, or an attacker that invents senders, cannot use up the places of
// others. A command beyond a bound is refused; a command that is noted is never dropped for
// another.
type noteBounds struct{ all, sender, unsigned int }

var (
	// notesOfTask bounds the noted commands of one task, because the store keeps a
	// revision for each.
	notesOfTask = noteBounds{all: 16, sender: 8, unsigned: 12}
	// notesOfAgent bounds the noted commands of all tasks of an agent, as one worker
	// counts them.
	notesOfAgent = noteBounds{all: 1024, sender: 128, unsigned: 512}
)

// A noteSender is the sender of a noted command: the key of a signed command, under whatever name,
// or the from of an unsigned one.
type noteSender struct{ keyID, from string }

func senderOfNote(keyID, from string) noteSender {
	if keyID != "" {
		from = ""
	}
	return noteSender{keyID, from}
}

// noteCounts counts noted commands by their senders.
type noteCounts map[noteSender]int

func countNotes(noted []state.Noted) noteCounts {
	counts := noteCounts{}
	for _, n := range noted {
		counts[senderOfNote(n.KeyID, n.From)]++
	}
	return counts
}

// full says why no further command of a sender may be noted, such as "8 commands of human.ada";
// "" if it may be.
func (counts noteCounts) full(most noteBounds, keyID, from string) string {
	all, unsigned := 0, 0
	for sender, n := range counts {
		all += n
		if sender.keyID == "" {
			unsigned += n
		}
	}
	switch {
	case counts[senderOfNote(keyID, from)] >= most.sender:
		return fmt.Sprintf("%d commands of %s", most.sender, clip.Text(from, 128))
	case keyID == "" && unsigned >= most.unsigned:
		return fmt.Sprintf("%d unsigned commands", most.unsigned)
	case all >= most.all:
		return fmt.Sprintf("%d commands", most.all)
	}
	return ""
}

// Notes counts the commands that are noted for an agent. Commands that other workers have
// noted are counted at the next sweep.
type Notes struct {
	mu   sync.Mutex
	runs map[string]runNotes
}

type runNotes struct {
	counts    noteCounts
	at, until time.Time // when the commands were counted, and when the record expires
}

// counts returns the noted commands of all runs.
func (n *Notes) counts(now time.Time) noteCounts {
	n.mu.Lock()
	defer n.mu.Unlock()
	sum := noteCounts{}
	for run, c := range n.runs {
		if now.After(c.until) {
			delete(n.runs, run)
			continue
		}
		for sender, k := range c.counts {
			sum[sender] += k
		}
	}
	return sum
}

// Count sets the commands that are noted for a run, in a record that expires at until.
func (n *Notes) Count(run string, noted []state.Noted, now, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runs == nil {
		n.runs = map[string]runNotes{}
	}
	n.runs[run] = runNotes{countNotes(noted), now, until}
}

// Forget removes the counts of records that were counted before a time and no longer exist. there
// contains the runs whose records exist.
func (n *Notes) Forget(there map[string]bool, before time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for run, c := range n.runs {
		if !there[run] && c.at.Before(before) {
			delete(n.runs, run)
		}
	}
}

// Add adds a command to those that are noted in the checkpoint c of a task of an agent, and reports
// whether it was not there before. An error refuses it. The caller stores c, and then calls Count.
func (n *Notes) Add(c *state.Checkpoint, o *Order, agent string, now time.Time) (added bool, err error) {
	if slices.ContainsFunc(c.Mesh.Noted, func(n state.Noted) bool { return n.ID == o.Envelope }) {
		return false, nil
	}
	if o.Intent == intents.TaskSteer && o.Unread != nil {
		return false, o.Unread
	}
	if len(o.Text) > noteText {
		return false, envelope.Errorf(envelope.CodeTooLarge, "the text has %d bytes; for a task that has not begun at most %d are kept", len(o.Text), noteText)
	}
	if full := countNotes(c.Mesh.Noted).full(notesOfTask, o.KeyID, o.From); full != "" {
		return false, envelope.Errorf(envelope.CodeDenied, "%s wait for this task already", full)
	}
	if full := n.counts(now).full(notesOfAgent, o.KeyID, o.From); full != "" {
		return false, envelope.Errorf(envelope.CodeBusy, "%s wait already for tasks of %s that have not begun", full, agent).WithBackoff(notePause)
	}
	c.Mesh.Noted = append(c.Mesh.Noted, state.Noted{ID: o.Envelope, Intent: o.Intent, From: o.From, KeyID: o.KeyID, Reason: clip.Text(o.Reason, 128), Text: o.Text, Caller: o.Caller, At: now})
	c.Mesh.Step = state.Step{Kind: noteKind[o.Intent], Detail: "noted for " + o.Who()}
	return true, nil
}

// notePause is the backoff for a sender whose command was refused because of notesOfAgent.
const notePause = 15 * time.Second

var noteKind = map[string]state.StepKind{
	intents.TaskCancel: state.StepTerminal, intents.TaskPause: state.StepPause, intents.TaskSteer: state.StepSteer,
	intents.TaskResume: state.StepPause,
}

// Precedes reports whether a command may be noted for a task that has not begun: cancel, pause and
// steer may, and resume if a pause is noted. All others need a run.
func (o *Order) Precedes(noted []state.Noted) bool {
	if o.Intent == intents.TaskResume && !slices.ContainsFunc(noted, func(n state.Noted) bool { return n.Intent == intents.TaskPause }) {
		return false
	}
	return o.Durable && noteKind[o.Intent] != ""
}

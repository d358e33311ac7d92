package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
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
	// noteTTL is the time to live of a record of noted commands. For a scheduled task it
	// counts from the task's due time. While the queue may hold the task, a worker renews
	// the record, until noteMost after the first command.
	noteTTL  = 15 * time.Minute
	noteMost = 7 * 24 * time.Hour
)

// noteBounds are the most noted commands in all, of one sender, and of all unsigned
// commands together. A sender who names made-up tasks, or signs nothing and makes up
// senders, so leaves places for the commands of others. A command beyond a bound is refused:
// none is dropped that a sender was told is noted.
type noteBounds struct{ all, sender, unsigned int }

var (
	// notesOfTask bounds the noted commands of one task, because the store keeps a
	// revision for each.
	notesOfTask = noteBounds{all: 16, sender: 8, unsigned: 12}
	// notesOfAgent bounds the noted commands of all tasks of an agent, as one worker
	// counts them.
	notesOfAgent = noteBounds{all: 1024, sender: 128, unsigned: 512}
)

// A noteSender is the sender of a noted command: a key, whatever the names that it signs
// for, or the from of an unsigned command.
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

// notes counts the commands that are noted for an entity. Commands that other workers have
// noted are counted at the next sweep.
type notes struct {
	mu   sync.Mutex
	runs map[string]runNotes
}

type runNotes struct {
	counts    noteCounts
	at, until time.Time // when the commands were counted, and when the record expires
}

// counts returns the noted commands of all runs.
func (n *notes) counts(now time.Time) noteCounts {
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

func (n *notes) count(run string, noted []state.Noted, now, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runs == nil {
		n.runs = map[string]runNotes{}
	}
	n.runs[run] = runNotes{countNotes(noted), now, until}
}

// forgetExpired removes the counts of records that were counted before a time and no longer exist.
// there has the runs whose records exist.
func (n *notes) forgetExpired(there map[string]bool, before time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for run, c := range n.runs {
		if !there[run] && c.at.Before(before) {
			delete(n.runs, run)
		}
	}
}

// note stores a command for a task that has not begun.
func (cs *commands) note(ctx context.Context, id state.ID, prev uint64, c *state.Checkpoint, o *order) error {
	if c == nil {
		c = state.New(cs.host.Entity, o.ID, cs.host.AgentID)
		c.Doc.RunID, c.Doc.Status = id.Run, aaif.RunPaused
	}
	if slices.ContainsFunc(c.Mesh.Noted, func(n state.Noted) bool { return n.ID == o.Envelope }) {
		return nil
	}
	if len(o.Text) > noteText {
		return envelope.Errorf(envelope.CodeTooLarge, "the text has %d bytes; for a task that has not begun at most %d are kept", len(o.Text), noteText)
	}
	if full := countNotes(c.Mesh.Noted).full(notesOfTask, o.keyID, o.From); full != "" {
		return envelope.Errorf(envelope.CodeDenied, "%s wait for this task already", full)
	}
	now := cs.clock.now()
	if full := cs.notes.counts(now).full(notesOfAgent, o.keyID, o.From); full != "" {
		return envelope.Errorf(envelope.CodeBusy, "%s wait already for tasks of %s that have not begun", full, cs.host.Entity).WithBackoff(notePause)
	}
	c.Mesh.Noted = append(c.Mesh.Noted, state.Noted{ID: o.Envelope, Intent: o.Intent, From: o.From, KeyID: o.keyID, Reason: clip.Text(o.Reason, 128), Text: o.Text, At: now})
	c.Mesh.Step = state.Step{Kind: noteKind[o.Intent], Detail: "noted for " + o.Who()}
	life := noteTTL
	if due, ok := cs.scheduled(ctx, c.Mesh.TaskID); ok {
		life += max(0, due.Sub(now))
	}
	return cs.putNotes(ctx, id, prev, c, life)
}

// notePause is the backoff for a sender whose command was refused because of notesOfAgent.
const notePause = 15 * time.Second

var noteKind = map[string]state.StepKind{
	intents.TaskCancel: state.StepTerminal, intents.TaskPause: state.StepPause, intents.TaskSteer: state.StepSteer,
	intents.TaskResume: state.StepPause,
}

// precedes reports whether a command may be noted for a task that has not begun: cancel,
// pause and steer may; resume takes back a pause that is noted. All others need a run.
func (o *order) precedes(noted []state.Noted) bool {
	if o.Intent == intents.TaskResume && !slices.ContainsFunc(noted, func(n state.Noted) bool { return n.Intent == intents.TaskPause }) {
		return false
	}
	return o.Durable && noteKind[o.Intent] != ""
}

func (cs *commands) putNotes(ctx context.Context, id state.ID, prev uint64, c *state.Checkpoint, life time.Duration) error {
	_, _, err := cs.records.putFor(ctx, id, prev, c, life)
	if err == nil {
		now := cs.clock.now()
		cs.notes.count(id.Run, c.Mesh.Noted, now, now.Add(life))
	}
	return err
}

// scheduled returns when a scheduled task is due.
func (cs *commands) scheduled(ctx context.Context, taskID string) (due time.Time, ok bool) {
	if taskID == "" {
		return due, false
	}
	s, err := cs.cfg.Queue.FindScheduled(ctx, cs.host.Entity, taskID)
	return s.Due, err == nil
}

// renewNotes rewrites a record of noted commands that is about to expire, while the queue may
// hold its task. That is so while the queue has a message that is older than the last noted
// command, or one that is not acknowledged.
func (cs *commands) renewNotes(ctx context.Context, rec state.Record, c *state.Checkpoint) error {
	now, noted, until := cs.clock.now(), c.Mesh.Noted, rec.Time.Add(noteTTL)
	old := now.Sub(rec.Time) >= noteTTL/2
	due, scheduled := time.Time{}, false
	if old {
		if due, scheduled = cs.scheduled(ctx, c.Mesh.TaskID); scheduled {
			until = due.Add(noteTTL)
		}
	}
	cs.notes.count(rec.ID.Run, noted, now, until)
	if !old || scheduled || len(noted) == 0 || now.Sub(noted[0].At) > noteMost {
		return nil
	}
	h := cs.queue.Health()
	if h.Unacked == 0 && (h.Oldest.IsZero() || h.Oldest.After(noted[len(noted)-1].At)) {
		return nil
	}
	err := cs.putNotes(ctx, rec.ID, rec.Revision, c, noteTTL)
	if errors.Is(err, state.ErrChanged) {
		return nil
	}
	return err
}

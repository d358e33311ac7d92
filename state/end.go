package state

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
)

// An End is what a store keeps of a run that ended before its first checkpoint, beside
// the run's reply: a task of one short step has no document. Its [Record] has the terminal
// envelope, JSON, in Data.
type End struct {
	TaskID string         `json:"task"`
	Agent  string         `json:"agent"` // agent_id
	Epoch  uint64         `json:"epoch"`
	Digest string         `json:"digest,omitempty"` // identifies the task; the mesh computes it
	Under  string         `json:"under,omitempty"`  // reply_to of the task
	Status aaif.RunStatus `json:"-"`                // completed or failed
	Work   uint64         `json:"-"`                // see [Mesh.Work]

	StoredAt  time.Time `json:"stored_at"`  // when the server stored the task
	StartedAt time.Time `json:"started_at"` // when it was begun
}

// Header returns the header of the record's document. For the record of an [End] it is
// the header that the run's last document would have had.
func (r Record) Header() (Header, error) {
	if r.End == nil {
		return ReadHeader(r.Data)
	}
	e := r.End
	return Header{
		StateID: r.endID(), Agent: e.Agent, Run: r.ID.Run, Status: e.Status, At: r.Time,
		Format: 1, Entity: r.ID.Entity, TaskID: e.TaskID, Epoch: e.Epoch, Step: StepTerminal, Work: e.Work,
	}, nil
}

// endID is the state_id of the checkpoint that stands for the end of a run without a
// document: the same whenever it is read.
func (r Record) endID() string {
	return nameUUID(endNamespace, r.ID.Entity+" "+r.ID.Run+" "+strconv.FormatUint(r.Revision, 10))
}

// ended returns the last checkpoint of a run that has none: as much of it as the reply
// and the store tell. The task is not known.
func (r Record) ended() (*Checkpoint, error) {
	e := r.End
	reply, err := envelope.ParseStored(r.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: the reply of the run: %w", ErrInvalid, err)
	}
	if want := RunID(r.ID.Entity, e.TaskID); want != r.ID.Run || reply.ReplyTo != e.TaskID || !reply.Type.Terminal() {
		return nil, fmt.Errorf("%w: the reply is not of this run", ErrInvalid)
	}
	c := New(r.ID.Entity, e.TaskID, e.Agent)
	c.Doc.StateID, c.Doc.CheckpointAt, c.Doc.Status = r.endID(), Time(r.Time), e.Status
	m := &c.Mesh
	m.Epoch, m.Work, m.Claims, m.Reply = e.Epoch, e.Work, 1, r.Data
	m.StoredAt, m.StartedAt, c.under = e.StoredAt, e.StartedAt, e.Under
	m.Step = Step{Kind: StepTerminal}
	if reply.Type == envelope.TypeError {
		problem := envelope.ErrorOf(reply)
		c.Doc.Error = &aaif.RunError{Code: string(problem.Code), Message: problem.Message, OccurredAt: Time(r.Time)}
		m.Step.Detail = string(problem.Code)
	}
	return c, nil
}

// ReadTask returns the task's envelope. Of a run that ended without a document it returns
// what the reply tells of it: who gave the task to whom, its ids and its intent.
func (c *Checkpoint) ReadTask() (*envelope.Envelope, error) {
	if c.Mesh.Task != nil || !c.Terminal() {
		return envelope.ParseStored(c.Mesh.Task)
	}
	reply, err := envelope.ParseStored(c.Mesh.Reply)
	if err != nil {
		return nil, err
	}
	return &envelope.Envelope{
		V: reply.V, ID: reply.ReplyTo, Type: envelope.TypeTask, From: reply.To, To: c.Mesh.Entity,
		Intent: reply.Intent, Corr: reply.Corr, ReplyTo: c.under,
	}, nil
}

// errEndNotSealed: an [End] cannot be sealed, so a codec that wants seals refuses it.
var errEndNotSealed = errors.New("the run ended without a document, which cannot be sealed")

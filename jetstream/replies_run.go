package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/state"
)

// A place says where the replies to a task are.
type place struct {
	subject string // of those in StreamReply, and of the announcement of the run's
	ofRun   string // of the run's, in the stream of BucketState; "": people have no runs
}

func (r *Replies) place(entity, taskID string) (place, error) {
	subj, err := r.m.Reply(entity, taskID)
	if err != nil {
		return place{}, err
	}
	if subject.IsPerson(entity) {
		return place{subject: subj}, nil
	}
	return place{subj, strings.TrimSuffix(allRunReplies(r.m), ">") + stateKey(state.ID{Entity: entity, Run: state.RunID(entity, taskID)})}, nil
}

// runReply marks the Seq of a run's reply, which is of another stream: it is after all
// that [StreamReply] has.
const runReply = 1 << 63

// ofRun returns the reply of the task's run, or [natsjs.ErrMsgNotFound].
func (r *Replies) ofRun(ctx context.Context, at place) (Message, error) {
	if at.ofRun == "" {
		return Message{}, natsjs.ErrMsgNotFound
	}
	msg, err := api.NewestPublished(ctx, r.js, r.records(), at.ofRun)
	msg.Seq |= runReply
	return msg, err
}

// records is the stream of the runs' records.
func (r *Replies) records() string { return "KV_" + BucketState + r.m.Suffix() }

// Announce sends the reply of a run to its current subscribers. The reply must be stored already:
// by [States.Reply], or as part of the document that ends the run. The announcement itself is not
// stored: StreamReply captures its subject, but refuses it because the message expects the stream
// of the records.
//
// It adds to reply.Header, which must have no header that begins with Nats-.
func (r *Replies) Announce(reply Reply) error {
	subj, err := r.m.Reply(reply.Entity, reply.TaskID)
	if err != nil {
		return fmt.Errorf("announce a reply: %w", err)
	}
	if reply.Header == nil {
		reply.Header = nats.Header{}
	}
	reply.Header[natsjs.MsgIDHeader] = []string{reply.MsgID}
	reply.Header[natsjs.ExpectedStreamHeader] = []string{r.records()}
	msg := &nats.Msg{Subject: subj, Data: reply.Data, Header: reply.Header}
	return api.Explain(r.js.Conn(), r.js.Conn().PublishMsg(msg), "announce a reply on %s", msg.Subject)
}

// Answered is a task with a reply.
type Answered struct{ Entity, TaskID string }

// OfRun returns the tasks of an entity, "" for all, that have a reply in [StreamReply] and whose run
// has or would have an id that begins with run. It is for tasks that were answered before a worker
// began them. The names of all replies of the entity are read.
func (r *Replies) OfRun(ctx context.Context, entity, run string) (found []Answered, err error) {
	filter := r.m.AllReplies()
	if entity != "" {
		if filter, err = r.m.RepliesTo(entity); err != nil {
			return nil, err
		}
	}
	names, err := api.Subjects(ctx, r.js, r.name(), filter)
	if err != nil {
		return nil, api.Explain(r.js.Conn(), err, "list the replies")
	}
	for subj := range names {
		if a, err := r.m.Parse(subj); err == nil && a.Kind == subject.Reply && strings.HasPrefix(state.RunID(a.Entity, a.ID), strings.ToLower(run)) {
			found = append(found, Answered{a.Entity, a.ID})
		}
	}
	return found, nil
}

// ofRuns returns the entities whose run has replied to a task with this id. The id of a
// run follows from the entity and the task's id. The names of all replies are read only
// where no entity of [BucketLanes] has one.
func (r *Replies) ofRuns(ctx context.Context, taskID string) ([]string, error) {
	prefix := strings.TrimSuffix(allRunReplies(r.m), ">")
	of := func(entity string) string {
		return prefix + stateKey(state.ID{Entity: entity, Run: state.RunID(entity, taskID)})
	}
	known, err := lastByEntity(ctx, r.js, r.m, r.records(), func(entity string) []string { return []string{of(entity)} })
	if err != nil {
		return nil, fmt.Errorf("find the replies to task %q: %w", taskID, err)
	}
	names := map[string]int{}
	for _, m := range known {
		names[m.Subject] = 1
	}
	if len(names) == 0 {
		names, err = api.Subjects(ctx, r.js, r.records(), prefix+">")
	}
	switch {
	case errors.Is(err, ErrDenied), errors.Is(err, natsjs.ErrStreamNotFound):
		return nil, nil // the user may not list them
	case err != nil:
		return nil, fmt.Errorf("find the replies to task %q: %w", taskID, err)
	}
	runs := map[string]string{} // of the task, by entity
	found := map[string]bool{}
	for subj := range names {
		id, err := stateID(strings.TrimPrefix(subj, prefix))
		if err != nil {
			continue
		}
		if runs[id.Entity] == "" {
			runs[id.Entity] = state.RunID(id.Entity, taskID)
		}
		if runs[id.Entity] == id.Run {
			found[id.Entity] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

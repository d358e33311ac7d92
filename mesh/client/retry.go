package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// ErrNoReply: no reply to the retry of a dead letter can come.
var ErrNoReply = errors.New("no reply to it can come")

// Retry retries a dead letter as [jetstream.Dead.Retry] does, and waits for the terminal envelope
// of the retry as [Client.Perform] does. Until then the reply of the failed attempt stays the
// task's result; Retry does not take it for the reply of the retry. receipt.Seq is 0 if the letter
// was not retried. Retry fails with [ErrNoReply], and retries nothing, if the letter's message has
// no id that could be answered.
func (c *Client) Retry(ctx context.Context, seq uint64, opts ResultOptions) (receipt jetstream.Submitted, reply *envelope.Envelope, err error) {
	d := c.cfg.Stores
	if d == nil {
		return receipt, nil, sender.ErrLiveOnly
	}
	letter, err := d.Dead.Get(ctx, seq)
	if err != nil {
		return receipt, nil, err
	}
	reader, old, err := c.retried(ctx, letter, opts)
	if err != nil {
		return receipt, nil, fmt.Errorf("retry dead letter %d: %w", seq, err)
	}
	follower, err := d.Replies.Open(reader.entity, reader.taskID)
	if err != nil {
		return receipt, nil, err
	}
	defer follower.Close()
	if receipt, err = d.Dead.Retry(ctx, seq); err != nil {
		return receipt, nil, err
	}
	reply, err = reader.readUntilEnd(ctx, follower.Messages(ctx, jetstream.FollowOptions{Old: old}))
	return receipt, reply, err
}

// retried returns the reader of the replies to the retry of a letter, and the function that
// recognizes replies of earlier attempts: by their epoch, or, for a message that was refused, by
// its sequence in the queue. So it also recognizes a reply that the worker stores late.
func (c *Client) retried(ctx context.Context, letter jetstream.DeadLetter, opts ResultOptions) (*replyReader, func(nats.Header) bool, error) {
	task, _, err := wire.Decode(&nats.Msg{Data: letter.Data, Header: letter.Header}, c.s.Answers.Limits)
	if err != nil || task.ID != letter.TaskID {
		return nil, nil, fmt.Errorf("its message is not a task with an id: %w", ErrNoReply)
	}
	reader := c.readerFor(task, opts)
	reader.entity = letter.Entity
	handed, _, _ := delegated.Read(requires.Member(task, requires.Handoff), task)
	if handed != nil {
		reader.entity, reader.taskID, reader.caller, reader.digest = handed.Links.First().From, handed.Task, handed.Caller, handed.Digest
	}
	var run state.Header // its epoch is 0 if none has begun
	rec, err := c.cfg.Stores.States.Get(ctx, state.ID{Entity: letter.Entity, Run: cmp.Or(letter.Run, state.RunID(letter.Entity, task.ID))})
	if err == nil {
		run, err = rec.Header()
	}
	switch {
	case err != nil && !errors.Is(err, state.ErrNotFound):
		return nil, nil, err
	case letter.Run == "" && run.Epoch > 0:
		return nil, nil, fmt.Errorf("the id %s belongs to the run of another task: %w", task.ID, ErrNoReply)
	case run.Epoch > 0 && run.Status != aaif.RunFailed:
		run.Epoch-- // it was retried already
	}
	last := handed.RunEpoch(run.Epoch)
	return reader, func(h nats.Header) bool {
		if was := h.Get(wire.HeaderEpoch); was != "" {
			return !wire.OlderEpoch(last, was)
		}
		return answers.RefusedBy(h, letter.Work)
	}, nil
}

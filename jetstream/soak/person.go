package soak

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh"
)

// answers answers the person's tasks until ctx ends.
func (c *clients) answers(ctx context.Context) {
	for pause.For(ctx, c.lease/2) {
		looking, done := context.WithTimeout(ctx, 5*time.Second)
		asks, err := c.node.PersonTasks(looking, person)
		done()
		if err != nil {
			continue // the next look may find them
		}
		for _, ask := range asks {
			c.seen.asked(ask.Task)
			if ask.State != mesh.AskOpen {
				continue
			}
			answering, done := context.WithTimeout(ctx, c.lease)
			err := c.node.AnswerPersonTask(answering, ask, ask.Task.Reply(envelope.TypeResult, json.RawMessage(`{"text":"it may"}`)))
			done()
			c.seen.commanded("answer of a person", err)
		}
	}
}

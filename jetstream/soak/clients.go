package soak

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// Entity is the agent that the workers of a soak host: a Go handler that commits
// its own steps.
const Entity = "agent.soak_chain"

// order is the payload of a task: a chain of steps.
type order struct {
	Steps int  `json:"steps"`
	Once  bool `json:"once"` // the effects are not safe to repeat
}

// clients submit tasks as `nats pub` does: an envelope on the work subject. Each
// has one task under way, and begins the next when that is answered.
type clients struct {
	conn *nats.Conn
	m    subject.Map
	n    int
	seed uint64
	seen *observer
}

// run submits until stop ends, and returns when all tasks are answered, or ctx
// ends.
func (c *clients) run(ctx, stop context.Context) error {
	js, err := natsjs.New(c.conn)
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	for i := range c.n {
		rng := rand.New(rand.NewPCG(c.seed, uint64(i)))
		wait.Go(func() {
			for stop.Err() == nil && ctx.Err() == nil {
				c.one(ctx, js, rng)
			}
		})
	}
	wait.Wait()
	return nil
}

var priorities = []envelope.Priority{envelope.PriorityLow, envelope.PriorityNormal, envelope.PriorityHigh, envelope.PriorityUrgent}

// one submits a task until it is accepted, and waits for the reply. What was
// never acknowledged is submitted again under the same id, so that it is one
// task however often it arrived.
func (c *clients) one(ctx context.Context, js natsjs.JetStream, rng *rand.Rand) {
	o := order{Steps: 1 + rng.IntN(4), Once: rng.IntN(3) == 0}
	var effects []expected
	for i := range o.Steps {
		effects = append(effects, expected{Step: i, Once: o.Once})
	}
	payload, _ := json.Marshal(o)
	env := envelope.New(envelope.TypeTask, "service.soak", Entity, "soak.chain", payload)
	env.Priority = priorities[rng.IntN(len(priorities))]
	data, err := env.AppendJSON(nil)
	if err != nil {
		panic(err) // made of our own parts
	}
	to, err := c.m.Work(string(env.Priority), Entity)
	if err != nil {
		panic(err)
	}
	answered := c.seen.submitting(env.ID, Entity, effects)
	if err := poll(ctx, 50*time.Millisecond, func() error {
		once, done := context.WithTimeout(ctx, 2*time.Second)
		defer done()
		_, err := js.Publish(once, to, data, natsjs.WithMsgID(env.ID))
		return err
	}); err != nil {
		return
	}
	c.seen.accepted(env.ID)
	select {
	case <-answered:
	case <-ctx.Done():
	}
}

package soak

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// loopEffects are those of a task of the model's agents; see loop.yaml. A step is
// ten times the turn and the call's number.
var loopEffects = []expected{{Step: 11}, {Step: 21}, {Step: 22, Once: true}, {Step: 31, Once: true}}

// clients submit tasks as `nats pub` does: an envelope on the work subject. Each
// has one task under way, and begins the next when that is answered. Some tasks
// are paused, moved or cancelled on their way.
type clients struct {
	conn  *nats.Conn
	m     subject.Map
	n     int
	seed  uint64
	lease time.Duration
	seen  *observer
	away  string // the URL of the second system; "": there is none

	js   natsjs.JetStream
	node *mesh.Node
}

// sender is who submits.
const sender = "service.soak"

// run submits until stop ends, and returns when all tasks are answered, or ctx
// ends.
func (c *clients) run(ctx, stop context.Context) error {
	var err error
	if c.js, err = natsjs.New(c.conn); err != nil {
		return err
	}
	_, verifier, err := keys(firstSystem)
	if err != nil {
		return err
	}
	if c.node, err = mesh.New(c.conn, mesh.Config{Entity: sender, Heartbeat: -1, Durable: lane(c.js, c.m), Verifier: verifier}); err != nil {
		return err
	}
	var wait sync.WaitGroup
	for i := range c.n {
		rng := rand.New(rand.NewPCG(c.seed, uint64(i)))
		wait.Go(func() {
			for stop.Err() == nil && ctx.Err() == nil {
				c.one(ctx, rng)
			}
		})
	}
	answering, enough := context.WithCancel(ctx)
	var people sync.WaitGroup
	people.Go(func() { c.answers(answering) })
	wait.Wait()
	enough()
	people.Wait()
	return nil
}

var priorities = []envelope.Priority{envelope.PriorityLow, envelope.PriorityNormal, envelope.PriorityHigh, envelope.PriorityUrgent}

// one submits a task until it is accepted, and waits for the reply. What was
// never acknowledged is submitted again under the same id, so that it is one
// task however often it arrived.
func (c *clients) one(ctx context.Context, rng *rand.Rand) {
	entity, effects, payload := draw(rng)
	env := envelope.New(envelope.TypeTask, sender, entity, "soak.task", payload)
	env.Priority = priorities[rng.IntN(len(priorities))]
	data, err := env.AppendJSON(nil)
	if err != nil {
		panic(err) // made of our own parts
	}
	to, err := c.m.Work(string(env.Priority), entity)
	if err != nil {
		panic(err)
	}
	meddle := meddling(rng.IntN(20))
	answered := c.seen.submitting(env.ID, entity, effects, meddle == cancels)
	if err := poll(ctx, 50*time.Millisecond, func() error {
		once, done := context.WithTimeout(ctx, 2*time.Second)
		defer done()
		_, err := c.js.Publish(once, to, data, natsjs.WithMsgID(env.ID))
		return err
	}); err != nil {
		return
	}
	c.seen.accepted(env.ID)
	meddled, done := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() { c.meddle(meddled, entity, env.ID, meddle, rng) })
	if entity == SettleEntity {
		wait.Go(func() { c.settle(meddled, env.ID) })
	}
	select {
	case <-answered:
	case <-ctx.Done():
	}
	done()
	wait.Wait()
}

// meddling is what a client does to its task while it runs: of twenty, three are
// moved to another worker, two are paused and resumed, one is cancelled. Where there is
// a second system six of those whose agent is no team are moved to it, and two of them
// are paused and resumed there.
type meddling int

const (
	cancels  meddling = 0
	pauses   meddling = 2  // and below
	migrates meddling = 5  // and below
	visits   meddling = 7  // and below: to the second system, and paused
	departs  meddling = 11 // and below: to the second system
)

// meddle gives a task commands until it is answered. Each may come too late, or
// not arrive: then nothing must be different.
func (c *clients) meddle(ctx context.Context, entity, id string, what meddling, rng *rand.Rand) {
	order := func(cmd intents.Command) {
		pause(ctx, time.Duration(rng.Int64N(int64(c.lease/4))))
		if ctx.Err() != nil {
			return
		}
		once, done := context.WithTimeout(ctx, c.lease)
		defer done()
		_, err := c.node.Command(once, entity, cmd)
		c.seen.commanded(cmd.CommandIntent(), err)
	}
	target := intents.Target{ID: id, Durable: true}
	switch {
	case what == cancels:
		order(intents.CancelTask{ID: id, Durable: true})
	case what <= pauses:
		// A pause that nobody answered may be obeyed later than a resume that
		// was sent after it.
		order(intents.PauseTask{Target: target})
		for ctx.Err() == nil {
			order(intents.ResumeTask{Target: target})
		}
	case what <= migrates:
		order(intents.MigrateTask{Target: target, To: "any"})
	case what <= departs && c.away != "" && members[entity] == 0:
		order(intents.MigrateTask{Target: target, To: c.away})
		if what > visits {
			return
		}
		order(intents.PauseTask{Target: target})
		for ctx.Err() == nil {
			order(intents.ResumeTask{Target: target})
		}
	}
}

// settle says of calls whose outcome nobody knows that they have failed, until the
// task is answered.
func (c *clients) settle(ctx context.Context, id string) {
	for pause(ctx, c.lease/4) {
		if !c.seen.awaiting(id) {
			continue
		}
		once, done := context.WithTimeout(ctx, c.lease)
		_, err := c.node.Command(once, SettleEntity, intents.SettleTask{Target: intents.Target{ID: id, Durable: true}, Outcome: intents.OutcomeFailed, Error: "nobody knows"})
		done()
		c.seen.commanded(intents.TaskSettle, err)
	}
}

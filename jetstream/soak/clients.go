package soak

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// loopEffects are the expected effects of a task of the model agents; see loop.yaml. A
// step is ten times the turn plus the number of the call.
var loopEffects = []expected{{Step: 11}, {Step: 21}, {Step: 22, Once: true}, {Step: 31, Once: true}}

// clients submit tasks as `nats pub` does: an envelope on the work subject. Each client
// has one task under way, and submits the next one when it has the reply. Some tasks are
// paused, moved or cancelled while they run.
type clients struct {
	conn  *nats.Conn
	m     subject.Map
	n     int
	seed  uint64
	lease time.Duration
	to    []string // the agents that get tasks; empty: all
	seen  *observer
	away  string // the URL of the second system; "": there is none
	moves int    // runs that are transferred at once; 0: the tasks are of all kinds

	js   natsjs.JetStream
	node *mesh.Node
}

// sender is the entity that submits the tasks.
const sender = "service.soak"

// run submits tasks until stop ends, and returns when all have a reply, or when ctx ends.
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
	if c.moves > 0 {
		c.n = 0
		wait.Go(func() { c.waves(ctx, stop) })
	}
	for i := range c.n {
		rng := rand.New(rand.NewPCG(c.seed, uint64(i)))
		first := c.to // an agent of its own, so that each gets a task however few there are
		if len(first) == 0 {
			first = []string{asked[i%len(asked)]}
		}
		wait.Go(func() {
			for to := first; stop.Err() == nil && ctx.Err() == nil; to = c.to {
				c.one(ctx, rng, to)
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

// submit submits a task until it is acknowledged; ok is false if ctx has ended before.
// A task without an acknowledgement is submitted again with the same id, so that it is one
// task however often it arrived. The channel is closed when the task has its reply. again
// submits it once more.
func (c *clients) submit(ctx context.Context, env *envelope.Envelope, effects []expected, cancelled bool) (answered <-chan struct{}, again func(), ok bool) {
	data, err := env.AppendJSON(nil)
	if err != nil {
		panic(err) // made of our own parts
	}
	to, err := c.m.Work(string(env.Priority), env.To)
	if err != nil {
		panic(err)
	}
	answered = c.seen.submitting(env.ID, env.To, effects, cancelled)
	if err := poll(ctx, 50*time.Millisecond, func() error {
		once, done := context.WithTimeout(ctx, 2*time.Second)
		defer done()
		_, err := c.js.Publish(once, to, data, natsjs.WithMsgID(env.ID))
		return err
	}); err != nil {
		return answered, nil, false
	}
	c.seen.accepted(env.ID)
	return answered, func() { c.again(ctx, to, data) }, true
}

// one submits a task for one of the agents to, or of all if to is empty, and waits for the
// reply.
func (c *clients) one(ctx context.Context, rng *rand.Rand, to []string) {
	entity, effects, payload := draw(rng)
	for len(to) > 0 && !slices.Contains(to, entity) {
		entity, effects, payload = draw(rng)
	}
	env := envelope.New(envelope.TypeTask, sender, entity, "soak.task", payload)
	env.Priority = priorities[rng.IntN(len(priorities))]
	meddle := meddling(rng.IntN(20))
	answered, again, ok := c.submit(ctx, env, effects, meddle == cancels)
	if !ok {
		return
	}
	meddled, done := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() { c.meddle(meddled, entity, env.ID, meddle, again, rng) })
	if entity == SettleEntity {
		wait.Go(func() { c.settle(meddled, env.ID) })
	}
	select {
	case <-answered:
	case <-ctx.Done():
	}
	done()
	wait.Wait()
	if meddle <= resends {
		again()
	}
}

// again submits a task once more, as a client does that knows nothing of the first time:
// without the id by which the queue drops the second copy. It is the same run. To lose
// this copy breaks no promise.
func (c *clients) again(ctx context.Context, to string, data []byte) {
	once, done := context.WithTimeout(ctx, c.lease)
	defer done()
	_, _ = c.js.Publish(once, to, data)
}

// meddling is what a client does to its task while it runs: of twenty tasks, three are
// moved to another worker, two are paused and resumed, one is cancelled. If there is a
// second system, six of those whose agent is not a team are transferred to it, and two of
// these six are paused and resumed there.
type meddling int

const (
	cancels  meddling = 0
	pauses   meddling = 2  // up to this number
	migrates meddling = 5  // up to this number
	resends  meddling = 5  // up to this number: its message comes again after its end; that of a paused one, while it is paused, too
	visits   meddling = 7  // up to this number: transferred to the second system, and paused there
	departs  meddling = 11 // up to this number: transferred to the second system
)

// meddle sends a task commands until it has its reply. Each command may come too late or
// get lost: then it must have no effect.
func (c *clients) meddle(ctx context.Context, entity, id string, what meddling, again func(), rng *rand.Rand) {
	order := func(cmd intents.Command) {
		pause.For(ctx, time.Duration(rng.Int64N(int64(c.lease/4))))
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
		// A pause without an answer may be carried out after a resume that was sent
		// later, so the client keeps sending resumes.
		order(intents.PauseTask{Target: target})
		once, done := context.WithTimeout(ctx, c.lease/2)
		if poll(once, c.lease/100, func() error { return c.seen.paused(id) }) == nil {
			again()
		}
		done()
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

// settle reports calls with an unknown outcome as failed, until the task has its reply.
func (c *clients) settle(ctx context.Context, id string) {
	for pause.For(ctx, c.lease/4) {
		if !c.seen.awaiting(id) {
			continue
		}
		once, done := context.WithTimeout(ctx, c.lease)
		_, err := c.node.Command(once, SettleEntity, intents.SettleTask{Target: intents.Target{ID: id, Durable: true}, Outcome: intents.OutcomeFailed, Error: "nobody knows"})
		done()
		c.seen.commanded(intents.TaskSettle, err)
	}
}

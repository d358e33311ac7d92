package soak

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/intents"
)

// kills are the kinds of faults of a soak with [Options].Moves, unless Only says others.
var kills = []Kind{WorkerKill, ServerKill, NodeKill, SecondWorkerKill, SecondServerKill, ReceiverKill}

// waves has many runs transferred at once, again and again until stop ends.
func (c *clients) waves(ctx, stop context.Context) {
	rng := rand.New(rand.NewPCG(c.seed, 0x3a7e))
	for stop.Err() == nil && ctx.Err() == nil {
		c.wave(ctx, rng)
	}
}

// wave submits c.moves tasks, waits until their runs have begun, has all of them
// transferred at once, and waits for their replies. Every second one is for the second
// system if there is one, the others for another worker of the first.
func (c *clients) wave(ctx context.Context, rng *rand.Rand) {
	var begun, ended sync.WaitGroup
	begun.Add(c.moves)
	for i := range c.moves {
		o := order{Steps: 3, Once: rng.IntN(3) == 0, Wait: true}
		payload, err := json.Marshal(o)
		if err != nil {
			panic(err) // made of our own parts
		}
		env := envelope.New(envelope.TypeTask, sender, Entity, "soak.task", payload)
		env.Priority = priorities[rng.IntN(len(priorities))]
		to := intents.MigrateAny
		if c.away != "" && i%2 == 1 {
			to = c.away
		}
		ended.Go(func() {
			answered, _, ok := c.submit(ctx, env, o.effects(), false)
			if ok {
				_ = poll(ctx, 20*time.Millisecond, func() error { return c.seen.waits(env.ID) })
			}
			begun.Done()
			begun.Wait()
			if ok {
				c.transfer(ctx, env.ID, to, answered)
			}
		})
	}
	ended.Wait()
}

// transfer asks for the transfer of a run until a worker accepts the request, and waits
// for the reply to its task.
func (c *clients) transfer(ctx context.Context, id, to string, answered <-chan struct{}) {
	for {
		once, cancel := context.WithTimeout(ctx, c.lease)
		_, err := c.node.Command(once, Entity, intents.MigrateTask{Target: intents.Target{ID: id, Durable: true}, To: to})
		cancel()
		c.seen.commanded(intents.TaskMigrate, err)
		if err == nil {
			break
		}
		select {
		case <-answered:
			return
		default:
		}
		if !pause.For(ctx, c.lease/4) {
			return
		}
	}
	select {
	case <-answered:
	case <-ctx.Done():
	}
}

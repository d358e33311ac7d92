package platform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// ReceiverOptions configure [Platform.Receiver], which accepts runs from other platforms.
type ReceiverOptions struct {
	// Handoffs stores the records of transfers; see jetstream.NewHandoffs. Required.
	Handoffs state.Store
	// Platform is the name that tokens must be for. Default: the node's, Durable.Platform
	// of package mesh.
	Platform string
	// Issuers are patterns of the entities that may transfer any agent's runs, besides
	// the agent itself. Default none.
	Issuers []string
	// Agents maps agent_id to entity for agents that may have no worker now. Agents with
	// workers are found without it.
	Agents map[string]string
	// Registered returns the entity for which an agent_id is registered, "" if none. It
	// takes precedence over the workers' own statements. nil: there is no registry.
	Registered func(ctx context.Context, agentID string) (entity string, err error)
	// AnyVersion accepts runs of any version of their agent (agent_version). Without it
	// the run and a worker of the agent must have the same major version, if both state
	// one.
	AnyVersion bool
	// Codec returns how an entity's documents are stored. Default: the node's for all.
	Codec func(entity string) state.Codec

	Share   int64 // as in handoff.ReceiverConfig
	Observe func(ctx context.Context, phase state.Phase, done bool)
}

// Receiver makes a receiver of runs that other platforms transfer to the agents of this
// mesh. Receiver itself does no I/O. The receiver accepts signatures by the keys that the
// node trusts.
func (p *Platform) Receiver(opts ReceiverOptions) (*handoff.Receiver, error) {
	d := p.cfg.Stores
	if d == nil {
		return nil, sender.ErrLiveOnly
	}
	if opts.Handoffs == nil {
		return nil, errors.New("handoff receiver: Handoffs is needed")
	}
	opts.Platform = cmp.Or(opts.Platform, p.cfg.Name)
	if opts.Codec == nil {
		opts.Codec = func(string) state.Codec { return d.Codec }
	}
	keys := p.cfg.Answers.Verifier.Ring
	if keys == nil {
		keys = new(sign.Ring)
	}
	var tidy func(context.Context) error
	if store, ok := opts.Handoffs.(jetstream.Sweeper); ok {
		tidy = func(ctx context.Context) error {
			_, err := store.Sweep(ctx, jetstream.SweepOptions{})
			return err
		}
	}
	served := &served{workers: discoverBy(p.cfg.Client), workersOf: askBy(p.cfg.Client), known: opts.Agents, registered: opts.Registered, codec: opts.Codec}
	fits := served.fits
	if opts.AnyVersion {
		fits = nil
	}
	return handoff.NewReceiver(handoff.ReceiverConfig{
		Platform: opts.Platform, Keys: keys, Issuers: opts.Issuers, Agent: served.entity, Fits: fits,
		Handoffs: opts.Handoffs, States: d.States, Codec: opts.Codec,
		Kick: func(ctx context.Context, c *state.Checkpoint) error {
			_, err := client.Requeue(ctx, d.Queue, c)
			return err
		},
		MayKick: p.mayQueue,
		Replies: followed{p}, Forward: p.forward,
		Now: p.serverTime, Share: opts.Share, Tidy: tidy, Observe: opts.Observe, Logger: p.cfg.Answers.Log,
	})
}

// mayQueue returns an error if the task of a run from elsewhere cannot be queued here.
func (p *Platform) mayQueue(c *state.Checkpoint) error {
	return client.CheckRequeue(p.cfg.Stores.Queue, c, p.cfg.Answers.Limits)
}

// followed reads replies for a receiver.
type followed struct{ p *Platform }

// Follow yields the replies to a task by their numbers, see [handoff.Replies].
func (f followed) Follow(ctx context.Context, entity, taskID string, after uint64) iter.Seq2[handoff.Reply, error] {
	return func(yield func(handoff.Reply, error) bool) {
		for msg, err := range f.p.cfg.Stores.Replies.Follow(ctx, entity, taskID, jetstream.FollowOptions{}) {
			if err != nil {
				yield(handoff.Reply{}, err)
				return
			}
			seq, err := strconv.ParseUint(msg.Header.Get(jetstream.HeaderSeq), 10, 64)
			if err != nil {
				continue // no worker of this mesh wrote it
			}
			e, _, err := wire.Decode(&nats.Msg{Data: msg.Data, Header: msg.Header}, f.p.cfg.Answers.Limits)
			if err != nil {
				continue
			}
			reply := handoff.Reply{Seq: seq, Data: msg.Data, Last: e.Type != envelope.TypeStream}
			if kind := msg.Header[wire.HeaderContentType]; kind != nil {
				reply.Header = map[string][]string{wire.HeaderContentType: slices.Clone(kind)}
			}
			if (seq > after || reply.Last) && !yield(reply, nil) {
				return
			}
		}
	}
}

// forward sends a command from another platform to the workers of the run's entity. If
// no worker answers, the command is not queued: its id was chosen by the peer, so its
// stored answer could be among the replies to a task with that id.
func (p *Platform) forward(ctx context.Context, entity string, command []byte) ([]byte, error) {
	e, err := envelope.ParseLimits(command, p.cfg.Answers.Limits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transfer.ErrStream, err)
	}
	if e.To != entity {
		return nil, envelope.Errorf(envelope.CodeWrongRecipient, "the command is for another entity than the run's, %s", entity)
	}
	reply, err := p.cfg.Client.TryCommand(ctx, e)
	if client.IsUnanswered(err) {
		err = envelope.Errorf(envelope.CodeUnavailable, "no worker of %s answers for the run now: send the command again", entity)
	}
	if err != nil {
		// An error is an answer to the command, too.
		reply = e.Reply(envelope.TypeError, fault.ForPeer(err).Payload())
	}
	return json.Marshal(reply)
}

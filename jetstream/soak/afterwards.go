package soak

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// leftOver finds messages that are still queued after all tasks have replies.
func (s *soak) leftOver(ctx context.Context, js natsjs.JetStream) []Violation {
	var left []Violation
	for _, name := range []string{jetstream.StreamWork, jetstream.StreamSchedule} {
		ctx, cancel := context.WithTimeout(ctx, s.Patience)
		if err := poll(ctx, 100*time.Millisecond, func() error {
			stream, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			n := stream.CachedInfo().State.Msgs
			if n > 0 && s.hasStruck(ServerFull) {
				passed, err := passedOver(ctx, stream)
				if err != nil {
					return err
				}
				n -= passed
			}
			if n > 0 {
				return fmt.Errorf("%d messages are left in %s", n, name)
			}
			return nil
		}); err != nil {
			left = append(left, Violation{Rule: RuleLeftOver, Detail: err.Error() + whichLeft(js, name)})
		}
		cancel()
	}
	return left
}

// whichLeft describes the first messages of a stream, and how far its consumers are.
func whichLeft(js natsjs.JetStream, name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return "; " + err.Error()
	}
	var text strings.Builder
	for msg, err := range messages(ctx, stream) {
		if err != nil || text.Len() >= 1000 {
			break // those that cannot be read are left out
		}
		fmt.Fprintf(&text, "; %d of %s on %s", msg.Sequence, msg.Time.Format(time.StampMilli), msg.Subject)
	}
	all := stream.ListConsumers(ctx)
	for i := range all.Info() {
		fmt.Fprintf(&text, "; consumer of %s: all up to %d acknowledged, %d after that are not, %d wait, delivered up to %d by %d deliveries, %d requests", i.Config.FilterSubject, i.AckFloor.Stream, i.NumAckPending, i.NumPending,
			i.Delivered.Stream, i.Delivered.Consumer, i.NumWaiting)
		if c := i.Cluster; c != nil { // the consumer delivers only messages that most of its servers have recorded
			fmt.Fprintf(&text, ", leader %s", c.Leader)
			for _, r := range c.Replicas {
				fmt.Fprintf(&text, ", %s current %t lag %d active %v", r.Name, r.Current, r.Lag, r.Active)
			}
		}
	}
	return text.String()
}

// passedOver counts the messages of a work queue that its consumers never deliver again: they
// come before what was acknowledged last, and are not being delivered. A server whose disk was
// full leaves such messages: it could not write that they are removed, or it wrote one that it
// never acknowledged.
func passedOver(ctx context.Context, stream natsjs.Stream) (n uint64, err error) {
	floors := map[string]uint64{}
	all := stream.ListConsumers(ctx)
	for info := range all.Info() {
		floors[info.Config.FilterSubject] = info.AckFloor.Stream
	}
	if err := all.Err(); err != nil {
		return 0, err
	}
	for msg, err := range messages(ctx, stream) {
		if err != nil {
			return 0, err
		}
		if msg.Sequence <= floors[msg.Subject] {
			n++
		}
	}
	return n, nil
}

// messages yields the messages of a stream. An error is the last element.
func messages(ctx context.Context, stream natsjs.Stream) iter.Seq2[*natsjs.RawStreamMsg, error] {
	return func(yield func(*natsjs.RawStreamMsg, error) bool) {
		for seq := uint64(1); ; {
			msg, err := stream.GetMsg(ctx, seq, natsjs.WithGetMsgSubject(">"))
			if errors.Is(err, natsjs.ErrMsgNotFound) || !yield(msg, err) || err != nil {
				return
			}
			seq = msg.Sequence + 1
		}
	}
}

// hasStruck reports whether a fault of a kind has struck.
func (s *soak) hasStruck(kind Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.strikes, func(f Strike) bool { return f.Kind == kind })
}

// deafAgents finds agents of workers that do not accept durable tasks after all faults have
// ended.
func (s *soak) deafAgents(ctx context.Context, conn *nats.Conn, ws *workers) []Violation {
	ctx, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	node, err := mesh.New(conn, mesh.Config{Entity: sender, Heartbeat: -1})
	if err == nil {
		err = poll(ctx, 100*time.Millisecond, func() error {
			all, err := node.Discover(ctx, "", time.Second)
			if err != nil {
				return err
			}
			taking, want := 0, len(entities)*ws.living()
			for _, i := range all {
				if i.Info.Metadata[mesh.MetaDurable] == mesh.DurableOn {
					taking++
				}
			}
			if taking < want {
				return fmt.Errorf("%d of %d agents of workers take durable tasks", taking, want)
			}
			return nil
		})
	}
	if err != nil {
		return []Violation{{Rule: RuleLane, Detail: err.Error()}}
	}
	return nil
}

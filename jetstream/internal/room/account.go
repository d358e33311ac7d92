package room

import (
	"context"
	"fmt"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// Need is how much storage new streams reserve on each replica, in files and in memory, and how
// many streams are created.
type Need struct {
	File, Memory int64
	Streams      int
	Replicas     int64
}

// ErrAccountLimit is an [api.ErrNoRoom]: the account may not have that many streams.
var ErrAccountLimit error = accountLimit{}

type accountLimit struct{}

func (accountLimit) Error() string        { return "the account's limit is too low" }
func (accountLimit) Is(target error) bool { return target == api.ErrNoRoom }

// InAccount fails with [api.ErrNoRoom] if the limits of the account are too low. It returns nil if
// it may not ask, or gets no answer: then the first stream that does not fit reports it.
func InAccount(ctx context.Context, js natsjs.JetStream, n Need) error {
	tier, tiered, err := Tier(ctx, js, n.Replicas)
	if err != nil {
		return nil
	}
	replicas := n.Replicas
	if tiered {
		replicas = 1 // a tier counts each replica set once
	} else if max(tier.Limits.MaxStore, tier.Limits.MaxMemory) > 0 {
		file, memory := MoreReplicas(ctx, js)
		tier.ReservedStore, tier.ReservedMemory = tier.ReservedStore+file, tier.ReservedMemory+memory
	}
	if most := tier.Limits.MaxStreams; most > 0 && tier.Streams+n.Streams > most {
		return fmt.Errorf("the account may have %d streams and has %d, and %d are to be made: nothing was done: %w", most, tier.Streams, n.Streams, ErrAccountLimit)
	}
	for _, part := range []struct {
		what        string
		bytes, most int64
		reserved    uint64
	}{{"storage", n.File, tier.Limits.MaxStore, tier.ReservedStore}, {"memory", n.Memory, tier.Limits.MaxMemory, tier.ReservedMemory}} {
		if left := part.most - int64(part.reserved); part.most > 0 && part.bytes*replicas > left {
			return Missing("the account", part.what, part.bytes*replicas, max(left, 0))
		}
	}
	return nil
}

// Tier returns the usage and limits of the account for streams with that many replicas, and
// whether these have a tier of their own.
func Tier(ctx context.Context, js natsjs.JetStream, replicas int64) (natsjs.Tier, bool, error) {
	var info natsjs.AccountInfo
	if err := api.Request(ctx, js, "INFO", nil, &info); err != nil {
		return natsjs.Tier{}, false, err
	}
	if t, tiered := info.Tiers[fmt.Sprintf("R%d", replicas)]; tiered {
		return t, true, nil
	}
	return info.Tier, false, nil
}

// Missing is the [api.ErrNoRoom] of an account or a server that has less left of its storage or
// memory than is needed, in bytes.
func Missing(who, what string, need, left int64) error {
	const mib = 1 << 20
	return fmt.Errorf("%s has room for %d MiB more of %s, and %d MiB are needed: nothing was done: %w", who, left/mib, what, (need+mib-1)/mib, api.ErrNoRoom)
}

package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/room"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// need is how much storage a plan reserves on each replica, in files and in memory, and
// how many streams it creates.
type need struct {
	file, memory int64
	streams      int
	replicas     int64
}

func needOf(plan []Change) need {
	n := need{replicas: 1}
	for _, c := range plan {
		if c.Kind == KindConsumer || c.Action != ActionCreate && c.Action != ActionUpdate {
			continue
		}
		if c.Action == ActionCreate {
			n.streams++
		}
		n.replicas = max(n.replicas, int64(c.want.Replicas))
		if c.want.Storage == natsjs.MemoryStorage {
			n.memory += c.Reserves
		} else {
			n.file += c.Reserves
		}
	}
	return n
}

// haveRoom fails with [ErrNoRoom] if the account or the server has less storage than the
// plan reserves. It runs before anything is created: otherwise the first streams would
// use up the storage that the others need. If it cannot find out, it returns no error,
// and [Apply] stops at the first stream that does not fit.
//
// Another process may be applying at the same time and may have reserved the missing
// storage. So haveRoom plans again after a pause, and returns the new plan if there is
// less to do.
func haveRoom(ctx context.Context, js natsjs.JetStream, opts Options, plan []Change) ([]Change, error) {
	for {
		n := needOf(plan)
		err := roomFor(ctx, js, opts, n, false)
		if err == nil || !pause.For(ctx, roomPause) {
			return plan, err
		}
		again, planErr := Plan(ctx, js, opts)
		if planErr != nil {
			return nil, planErr
		}
		if needOf(again) == n {
			if err := roomFor(ctx, js, opts, n, true); err != nil {
				return nil, err
			}
			return again, nil // there is enough room now
		}
		plan = again
	}
}

// roomPause is how long the plan must stay the same before room is reported as missing.
const roomPause = 300 * time.Millisecond

// roomFor reports whether there is room; with exactly its error says how much there is.
func roomFor(ctx context.Context, js natsjs.JetStream, opts Options, n need, exactly bool) error {
	if n.streams == 0 || n.file <= 0 && n.memory <= 0 {
		return nil // at most existing streams grow: the error of that update says so
	}
	if err := accountRoom(ctx, js, opts, n); err != nil {
		return err
	}
	// In a cluster no server knows what the others have reserved at this moment. A leaf node that
	// stands alone gives its own name as that of its cluster.
	cluster := js.Conn().ConnectedClusterName()
	if cluster != "" && (cluster != js.Conn().ConnectedServerName() || js.Options().Domain != "") {
		return nil
	}
	for _, part := range []struct {
		bytes   int64
		storage natsjs.StorageType
	}{{n.file, natsjs.FileStorage}, {n.memory, natsjs.MemoryStorage}} {
		if part.bytes <= 0 {
			continue
		}
		if err := serverRoom(ctx, js, opts, part.bytes, part.storage, exactly); err != nil {
			return err
		}
	}
	return nil
}

// accountRoom compares the plan with the account's limits.
func accountRoom(ctx context.Context, js natsjs.JetStream, opts Options, n need) error {
	ctx, cancel := opts.bound(ctx)
	defer cancel()
	tier, tiered, err := accountTier(ctx, js, n.replicas)
	if err != nil {
		return nil // without permission or an answer, the first stream that does not fit reports it
	}
	replicas := n.replicas
	if tiered {
		replicas = 1 // a tier counts each replica set once
	} else if max(tier.Limits.MaxStore, tier.Limits.MaxMemory) > 0 {
		file, memory := room.MoreReplicas(ctx, js)
		tier.ReservedStore, tier.ReservedMemory = tier.ReservedStore+file, tier.ReservedMemory+memory
	}
	if most := tier.Limits.MaxStreams; most > 0 && tier.Streams+n.streams > most {
		return fmt.Errorf("the account may have %d streams and has %d, and %d are to be made: nothing was done: %w", most, tier.Streams, n.streams, ErrAccountLimit)
	}
	for _, part := range []struct {
		what        string
		bytes, most int64
		reserved    uint64
	}{{"storage", n.file, tier.Limits.MaxStore, tier.ReservedStore}, {"memory", n.memory, tier.Limits.MaxMemory, tier.ReservedMemory}} {
		if left := part.most - int64(part.reserved); part.most > 0 && part.bytes*replicas > left {
			return noRoom("the account", part.what, part.bytes*replicas, max(left, 0))
		}
	}
	return nil
}

// accountTier returns the usage and limits of the account for streams with that many replicas,
// and whether these have a tier of their own.
func accountTier(ctx context.Context, js natsjs.JetStream, replicas int64) (natsjs.Tier, bool, error) {
	var info natsjs.AccountInfo
	if err := api.Request(ctx, js, "INFO", nil, &info); err != nil {
		return natsjs.Tier{}, false, err
	}
	if t, tiered := info.Tiers[fmt.Sprintf("R%d", replicas)]; tiered {
		return t, true, nil
	}
	return info.Tier, false, nil
}

// allowed lowers the consumers of a stream's spec to what the account allows: the server refuses a
// stream with a higher limit. have is the limit of the existing stream. Without permission to ask
// for the account's limits allowed changes nothing.
func allowed(ctx context.Context, js natsjs.JetStream, spec Spec, replicas, have int) Spec {
	if spec.Config.MaxConsumers <= max(have, 0) {
		return spec
	}
	if tier, _, err := accountTier(ctx, js, int64(replicas)); err == nil && tier.Limits.MaxConsumers > 0 {
		spec.Config.MaxConsumers = min(spec.Config.MaxConsumers, tier.Limits.MaxConsumers)
	}
	return spec
}

func noRoom(who, what string, need, left int64) error {
	return fmt.Errorf("%s has room for %d MiB more of %s, and %d MiB are needed: nothing was done: %w", who, left/mib, what, (need+mib-1)/mib, ErrNoRoom)
}

// serverRoom asks a single server whether it can reserve that many bytes. Without permission
// to delete streams, serverRoom does not ask.
func serverRoom(ctx context.Context, js natsjs.JetStream, opts Options, bytes int64, storage natsjs.StorageType, exactly bool) error {
	p := room.Probe{JS: js, Name: "AEE_ROOM" + opts.Map.Suffix(), Storage: storage}
	switch {
	case p.Fits(ctx, bytes):
		return nil
	case !exactly:
		return ErrNoRoom
	case storage == natsjs.MemoryStorage:
		return noRoom("the server", "memory", bytes, p.Left(ctx, bytes))
	}
	return noRoom("the server", "storage", bytes, p.Left(ctx, bytes))
}

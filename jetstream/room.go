package jetstream

import (
	"context"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/room"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// needOf returns what a plan reserves and creates.
func needOf(plan []Change) room.Need {
	n := room.Need{Replicas: 1}
	for _, c := range plan {
		if c.Kind == KindConsumer || c.Action != ActionCreate && c.Action != ActionUpdate {
			continue
		}
		if c.Action == ActionCreate {
			n.Streams++
		}
		n.Replicas = max(n.Replicas, int64(c.want.Replicas))
		if c.want.Storage == natsjs.MemoryStorage {
			n.Memory += c.Reserves
		} else {
			n.File += c.Reserves
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
func roomFor(ctx context.Context, js natsjs.JetStream, opts Options, n room.Need, exactly bool) error {
	if n.Streams == 0 || n.File <= 0 && n.Memory <= 0 {
		return nil // at most existing streams grow: the error of that update says so
	}
	asking, cancel := opts.bound(ctx)
	err := room.InAccount(asking, js, n)
	cancel()
	if err != nil {
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
	}{{n.File, natsjs.FileStorage}, {n.Memory, natsjs.MemoryStorage}} {
		if part.bytes <= 0 {
			continue
		}
		if err := serverRoom(ctx, js, opts, part.bytes, part.storage, exactly); err != nil {
			return err
		}
	}
	return nil
}

// allowed lowers the consumers of a stream's spec to what the account allows: the server refuses a
// stream with a higher limit. have is the limit of the existing stream. Without permission to ask
// for the account's limits allowed changes nothing.
func allowed(ctx context.Context, js natsjs.JetStream, spec Spec, replicas, have int) Spec {
	if spec.Config.MaxConsumers <= max(have, 0) {
		return spec
	}
	if tier, _, err := room.Tier(ctx, js, int64(replicas)); err == nil && tier.Limits.MaxConsumers > 0 {
		spec.Config.MaxConsumers = min(spec.Config.MaxConsumers, tier.Limits.MaxConsumers)
	}
	return spec
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
		return room.Missing("the server", "memory", bytes, p.Left(ctx, bytes))
	}
	return room.Missing("the server", "storage", bytes, p.Left(ctx, bytes))
}

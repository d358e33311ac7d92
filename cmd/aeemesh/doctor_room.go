package main

import (
	"context"
	"fmt"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
)

// room tells of the streams that refuse when they are full, and nearly are:
// before that, nobody hears of it, and then tasks are refused or stand still.
func (d *doctor) room(ctx context.Context, js natsjs.JetStream, streams []jetstream.Change) {
	for _, c := range streams {
		prefix, ok := map[jetstream.Kind]string{jetstream.KindStream: "", jetstream.KindBucket: "KV_", jetstream.KindObjects: "OBJ_"}[c.Kind]
		if !ok || c.Action == jetstream.ActionCreate {
			continue
		}
		stream, err := js.Stream(ctx, prefix+c.Name)
		if err != nil {
			continue // it has been looked at above
		}
		info := stream.CachedInfo()
		limit, holds := info.Config.MaxBytes, info.State.Bytes
		if info.Config.Discard != natsjs.DiscardNew || limit <= 0 || !tight(holds, uint64(limit)) {
			continue
		}
		name := strings.TrimSuffix(c.Name, d.subjects.Suffix())
		d.tell("room", "warn", fmt.Sprintf("What does not fit is refused. \"aeemesh apply --limit %s=max_bytes:%dKiB\" makes it twice as large; docs/operations.md says what grows.", name, limit>>9),
			"%s holds %s of %s", c.Name, bytesText(holds), bytesText(uint64(limit)))
	}
}

// tight is four fifths: workers make room in the bucket of runs at three
// quarters, so that there is more in it only where they cannot.
func tight(holds, limit uint64) bool { return holds >= limit/5*4 }

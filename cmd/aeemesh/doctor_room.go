package main

import (
	"context"
	"fmt"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream"
)

// room warns of streams that are almost full and refuse messages when they are:
// otherwise it becomes visible only when tasks are refused or stop.
func (d *doctor) room(ctx context.Context, js natsjs.JetStream, streams []jetstream.Change) {
	for _, c := range streams {
		prefix, ok := map[jetstream.Kind]string{jetstream.KindStream: "", jetstream.KindBucket: "KV_", jetstream.KindObjects: "OBJ_"}[c.Kind]
		if !ok || c.Action == jetstream.ActionCreate {
			continue
		}
		stream, err := js.Stream(ctx, prefix+c.Name)
		if err != nil {
			continue // checked above
		}
		info := stream.CachedInfo()
		limit, holds := info.Config.MaxBytes, info.State.Bytes
		if info.Config.Discard != natsjs.DiscardNew || limit <= 0 || !tight(holds, uint64(limit)) {
			continue
		}
		name := strings.TrimSuffix(c.Name, d.subjects.Suffix())
		d.tell("room", "warn", fmt.Sprintf("What does not fit is refused. \"aeemesh apply --limit %s=max_bytes:%dKiB\" makes it twice as large; docs/operations.md says what grows.", name, limit>>9),
			"%s holds %s of %s", c.Name, term.Size(holds), term.Size(uint64(limit)))
	}
}

// tight reports whether a stream is four fifths full. Workers delete old runs
// at three quarters, so more than that means that they cannot.
func tight(holds, limit uint64) bool { return holds >= limit/5*4 }

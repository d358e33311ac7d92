package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
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

// storage reports how much of the account's storage is used, and what holds the
// most of it: streams without a limit of their own, too. An account may have limits for
// each number of replicas instead.
func (d *doctor) storage(ctx context.Context, js natsjs.JetStream, acc *natsjs.AccountInfo) {
	d.storageOf(ctx, js, acc.Tier, "")
	for _, name := range slices.Sorted(maps.Keys(acc.Tiers)) {
		d.storageOf(ctx, js, acc.Tiers[name], " with "+name)
	}
}

func (d *doctor) storageOf(ctx context.Context, js natsjs.JetStream, tier natsjs.Tier, which string) {
	if tier.Limits.MaxStore <= 0 {
		return
	}
	limit, verdict, hint := uint64(tier.Limits.MaxStore), "ok", ""
	switch {
	case tier.Store >= limit/20*19:
		verdict = "fail"
	case tight(tier.Store, limit):
		verdict = "warn"
	}
	found := fmt.Sprintf("%s of %s that the account may store%s", term.Size(tier.Store), term.Size(limit), which)
	if verdict != "ok" {
		hint = "When it is full nothing durable works, and no limit of a stream helps. Raise the account's max_file, or remove what is not needed."
		found += ": " + largest(ctx, js)
	}
	d.tell("storage", verdict, hint, "%s", found)
}

// largest names the streams of the account that hold the most.
func largest(ctx context.Context, js natsjs.JetStream) string {
	list := js.ListStreams(ctx)
	var all []*natsjs.StreamInfo
	for info := range list.Info() {
		if info.Config.Storage == natsjs.FileStorage {
			all = append(all, info)
		}
	}
	if err := list.Err(); err != nil {
		return "what holds it cannot be listed: " + outcome.Text(err)
	}
	slices.SortFunc(all, func(a, b *natsjs.StreamInfo) int { return cmp.Compare(b.State.Bytes, a.State.Bytes) })
	var names []string
	for _, info := range all[:min(3, len(all))] {
		names = append(names, info.Config.Name+" holds "+term.Size(info.State.Bytes))
	}
	return strings.Join(names, ", ")
}

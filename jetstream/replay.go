package jetstream

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/replay"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ReplayOptions say what to replay.
type ReplayOptions struct {
	Map subject.Map

	// Since is the time of the first message. Zero: all stored messages.
	Since time.Time

	// Subjects are full NATS patterns, with the prefix. Nil: all broadcasts and all
	// inboxes. A pattern that no replayed stream captures is an error.
	Subjects []string

	// Follow continues with new messages after the stored ones, without a gap and without
	// repeating a message.
	Follow bool
}

// replayed lists the streams that Replay reads.
var replayed = []string{StreamBus, StreamHuman}

// Replay reads the stored broadcasts and inboxes in the order of time. The sequence ends
// at the last message stored at the time when it is reached, or with ctx; after an error
// it yields nothing more. Messages of one stream keep their order. With Follow it also
// subscribes, and reads each published message from the stream. Any replica may answer,
// so a message may arrive a moment late. It fails when the connection is closed for good.
//
// It creates no consumer. It needs permission for $JS.API.DIRECT.GET of its streams, and
// with Follow to subscribe to the subjects.
func Replay(ctx context.Context, js natsjs.JetStream, opts ReplayOptions) iter.Seq2[Message, error] {
	filters, err := opts.filters()
	if err != nil {
		return func(yield func(Message, error) bool) { yield(Message{}, err) }
	}
	return replay.Messages(ctx, js, replay.Options{Filters: filters, Since: opts.Since, Follow: opts.Follow})
}

// filters returns the patterns to read from each stream.
func (o ReplayOptions) filters() (map[string][]string, error) {
	filters := map[string][]string{}
	captured := make([]bool, len(o.Subjects))
	for _, spec := range Topology() {
		if !slices.Contains(replayed, spec.Name) {
			continue
		}
		for _, s := range spec.subjects(o.Map) {
			if o.Subjects == nil {
				filters[spec.FullName(o.Map)] = append(filters[spec.FullName(o.Map)], s)
			}
			for i, want := range o.Subjects {
				if !subject.Overlap(s, want) {
					continue
				}
				captured[i] = true
				if subject.Covers(want, s) {
					want = s
				}
				name := spec.FullName(o.Map)
				filters[name] = subject.Union(filters[name], []string{want})
			}
		}
	}
	if i := slices.Index(captured, false); i >= 0 {
		return nil, fmt.Errorf("replay %s: nothing of it is stored; stored are %s and %s", o.Subjects[i], o.Map.AllBus(), o.Map.AllHuman())
	}
	return filters, nil
}

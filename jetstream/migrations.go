package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/jetstream/internal/chunks"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Migration leads from the previous version of the topology to its own.
//
// New streams, and settings that a server can change, need no code here: [Plan] finds
// them by comparing streams with their [Spec]s. Step is for the rest, such as moving
// messages from one stream to another. To write the next migration:
//
//  1. change [Topology], and raise [TopologyVersion];
//  2. run the tests with -update: testdata/topology-v<n>.json records what the
//     new version makes. The files of older versions stay as they are;
//  3. add a Migration. Its Step must do no harm when it runs twice, when it was
//     interrupted, and when several nodes run it at once, and must not delete
//     anything before it is stored elsewhere;
//  4. add a test that begins with the file of the version before, puts something
//     into its streams, applies, and finds it again.
//
// A release does not touch a topology newer than its own. So while the nodes of a mesh
// are updated one after another, the updated ones maintain it.
type Migration struct {
	Version int    // the version that it leads to
	About   string // one line, for those who run `aeemesh plan`

	// Step does what a comparison cannot. Nil: nothing.
	Step func(ctx context.Context, js natsjs.JetStream, opts Options) error
}

// Migrations returns all migrations, oldest first.
func Migrations() []Migration {
	return []Migration{
		{Version: 2, About: "streams and buckets for durable tasks and the checkpoints of their runs"},
		{Version: 3, About: "a stream of counters, for budgets and rate limits"},
		{Version: 4, About: "a bucket of agents' definitions, by which teams find their members"},
		{Version: 5, About: "documents of runs below their entity, buckets without roll-ups, inboxes that acknowledge, more than 250 durable agents, heartbeats that leave the history of broadcasts after a minute; stop all workers first", Step: fence},
		{Version: 6, About: "the reply of a run beside its record, so that the end of a task of one step is one write; a bucket of the entities that have a durable lane, so that agents without tasks need no consumers"},
		{Version: 7, About: "a bucket of schema templates, and of what agents learn from payloads that fit none of their keys"},
		{Version: 8, About: "consumers that refuse workers from before topology 6, which would do tasks again that have ended with their reply alone"},
		{Version: 9, About: "a work queue that takes tasks of the four priorities alone"},
	}
}

// fence moves documents of runs to subjects below their entity, where workers that are
// permitted their own entity alone can read them.
func fence(ctx context.Context, js natsjs.JetStream, opts Options) error {
	err := chunks.New(js, ObjectsState+opts.Map.Suffix()).Move(ctx)
	if errors.Is(err, ErrNotFound) {
		return nil // an older topology had none
	}
	return err
}

// VersionOf returns the version of the topology that a plan found on the server: the
// oldest of all streams; 0 if there is none.
func VersionOf(plan []Change) int {
	version := 0
	for _, c := range plan {
		if c.Kind != KindConsumer && c.Version > 0 && (version == 0 || c.Version < version) {
			version = c.Version
		}
	}
	return version
}

// migrate runs the steps from the version that was found to TopologyVersion.
func migrate(ctx context.Context, js natsjs.JetStream, opts Options, plan []Change) error {
	from := VersionOf(plan)
	newer := slices.ContainsFunc(plan, func(c Change) bool { return c.Action == ActionNewer })
	if from == 0 || newer {
		return nil
	}
	for _, m := range Migrations() {
		if m.Version <= from || m.Step == nil {
			continue
		}
		if err := m.Step(ctx, js, opts); err != nil {
			return fmt.Errorf("migrate the topology to version %d: %w", m.Version, err)
		}
	}
	return nil
}

package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Migration leads from the version of the topology before it to its own.
//
// What [Plan] sees by comparing streams with their [Spec]s needs no code here:
// new streams, and settings that a server can change. Step is for the rest,
// such as moving what a stream holds to another one. To write the next one:
//
//  1. change [Topology], and raise [TopologyVersion];
//  2. run the tests with -update: testdata/topology-v<n>.json records what the
//     new version makes. The files of older versions stay as they are;
//  3. add a Migration. Its Step must do no harm when it runs twice, when it was
//     interrupted, and when several nodes run it at once, and must not take
//     anything away before it is somewhere else;
//  4. add a test that begins with the file of the version before, puts something
//     into its streams, applies, and finds it again.
//
// A release that is older than the topology that it finds leaves it alone, so a
// mesh whose nodes are updated one after another is looked after by the new
// ones.
type Migration struct {
	Version int    // that it leads to
	About   string // one line, for those who run `aeemesh plan`

	// Step does what a comparison cannot. Nil: there is nothing.
	Step func(ctx context.Context, js natsjs.JetStream, opts Options) error
}

// Migrations are all of them, oldest first.
func Migrations() []Migration {
	return []Migration{
		{Version: 2, About: "streams and buckets for durable tasks and the checkpoints of their runs"},
		{Version: 3, About: "a stream of counters, for budgets and rate limits"},
		{Version: 4, About: "a bucket of agents' definitions, by which teams find their members"},
		{Version: 5, About: "documents of runs below their entity, buckets without roll-ups, inboxes that acknowledge, more than 250 durable agents, heartbeats that leave the history of broadcasts after a minute", Step: fence},
	}
}

// fence moves documents of runs below their entity, where workers read them with
// permissions for their own entity alone.
func fence(ctx context.Context, js natsjs.JetStream, opts Options) error {
	err := NewStates(js, opts.Map).moveObjects(ctx)
	if errors.Is(err, ErrNotFound) {
		return nil // an older topology had none
	}
	return err
}

// VersionOf is the version of the topology that a plan found on the server: the
// oldest of what is there; 0 if nothing is.
func VersionOf(plan []Change) int {
	version := 0
	for _, c := range plan {
		if c.Kind != KindConsumer && c.Version > 0 && (version == 0 || c.Version < version) {
			version = c.Version
		}
	}
	return version
}

// migrate takes the steps from the version that was found to ours.
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

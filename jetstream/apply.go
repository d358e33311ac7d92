package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/copies"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// Apply creates and updates streams, buckets and consumers as [Plan] says, and returns
// what it did: in the report "create" means created. It needs permission to publish to
// $JS.API.STREAM.{INFO,CREATE,UPDATE}.<name> and, for consumers, to
// $JS.API.CONSUMER.{INFO,CREATE}.<stream>.<name>.>. To name the stream or consumer at
// fault when subjects collide it also needs $JS.API.STREAM.NAMES and
// $JS.API.CONSUMER.LIST.<stream>.
//
// If the account, or a single server, has not enough storage for the whole plan, Apply
// changes nothing and fails with [ErrNoRoom]. To find that out it needs permission for
// $JS.API.INFO and, if the account has streams with several replicas, $JS.API.STREAM.LIST,
// and to create and delete a stream AEE_ROOM; without it, Apply stops at the first stream
// that does not fit.
//
// If streams of another JetStream domain already store this mesh's tasks, as in a hub and its leaf
// nodes, Apply does not create a second [StreamWork]: it changes nothing and fails with
// [ErrElsewhere]. To find that out it publishes a message to the work queue that every stream
// refuses, and needs permission for $JS.API.STREAM.NAMES.
//
// Apply continues past a stream that is in conflict and reports all conflicts in the
// error, an [ErrConflict]. It stops when a request fails. The changes made until then stay, and the next
// call finds them done.
func Apply(ctx context.Context, js natsjs.JetStream, opts Options) ([]Change, error) {
	plan, err := Plan(ctx, js, opts)
	if err != nil {
		return nil, err
	}
	if err := oldServer(js, plan); err != nil {
		return nil, err
	}
	if plan, err = haveRoom(ctx, js, opts, plan); err != nil {
		return nil, err
	}
	if err := oneDomain(ctx, js, opts, plan); err != nil {
		return nil, err
	}
	if err := migrate(ctx, js, opts, plan); err != nil {
		return nil, err
	}
	// First the changes that free storage.
	sorted.By(plan, func(a, b Change) int { return cmp.Compare(min(a.Reserves, 0), min(b.Reserves, 0)) })
	var report []Change
	var conflicts []error
	for _, c := range plan {
		if c.Kind == KindConsumer {
			c, err = applyConsumer(ctx, js, opts, c)
		} else {
			c, err = applyStream(ctx, js, opts, c)
		}
		if err != nil {
			return report, errors.Join(append(conflicts, err)...)
		}
		if c.Action == ActionConflict {
			conflicts = append(conflicts, errors.New(c.String()))
		}
		if report = append(report, c); opts.Done != nil {
			opts.Done(c)
		}
	}
	if len(conflicts) > 0 {
		return report, conflict{errors.Join(conflicts...)}
	}
	return report, nil
}

// conflict is an [ErrConflict] that lists the conflicts.
type conflict struct{ error }

func (conflict) Is(target error) bool { return target == ErrConflict }

// oldServer refuses servers that are too old: they would ignore settings that they do not
// know.
func oldServer(js natsjs.JetStream, plan []Change) error {
	var major, minor int
	version := js.Conn().ConnectedServerVersion()
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return nil // not connected at the moment, or not a release: the server will refuse what it cannot do
	}
	need, what := 11, "the time to live of a message"
	if slices.ContainsFunc(plan, func(c Change) bool { return c.want.AllowMsgSchedules }) {
		need, what = 12, "delayed tasks"
	}
	if major < 2 || major == 2 && minor < need {
		return fmt.Errorf("nats-server %s is too old: the mesh needs 2.%d or newer, for %s", version, need, what)
	}
	return nil
}

// oneDomain fails with [ErrElsewhere] if the plan is to create the work queue in one JetStream
// domain while that of another takes the tasks: each task would be done twice.
func oneDomain(ctx context.Context, js natsjs.JetStream, opts Options, plan []Change) error {
	if !slices.ContainsFunc(plan, func(c Change) bool { return c.spec.Name == StreamWork && c.Action == ActionCreate }) {
		return nil
	}
	to, err := copies.Subject(opts.Map)
	if err != nil {
		return err
	}
	ctx, cancel := opts.bound(ctx)
	defer cancel()
	if copies.Elsewhere(ctx, js, to) {
		return fmt.Errorf("create %s: %w: with a second one each would be done twice: nothing was done", StreamWork+opts.Map.Suffix(), ErrElsewhere)
	}
	return nil
}

func applyStream(ctx context.Context, js natsjs.JetStream, opts Options, c Change) (Change, error) {
	ctx, cancel := opts.bound(ctx)
	defer cancel()
	if c.Action == ActionCreate {
		err := create(ctx, js, c.want)
		if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) {
			// Another node created it first, perhaps with other options: plan it again as
			// an existing stream.
			if c, err = planOne(ctx, js, opts, c.spec); err != nil {
				return c, err
			}
		} else if err != nil {
			return c, api.Explain(js.Conn(), withStreamNames(ctx, js, c, err), "create %s%s", c.Name, c.reserves(err))
		}
	}
	if c.Action == ActionUpdate {
		if _, err := js.UpdateStream(ctx, c.want); err != nil {
			return c, api.Explain(js.Conn(), withStreamNames(ctx, js, c, err), "update %s%s", c.Name, c.reserves(err))
		}
	}
	return c, nil
}

// create creates a stream and tries again when the server says that it has no room. The
// stream may exist already (a server checks for room before it checks whether the stream
// exists), or another process may hold the room for a moment with its room probe. It also
// tries again when the stream's directory cannot be created: a server that has deleted
// its last stream, as after a room probe, removes the directory of streams a moment
// later.
func create(ctx context.Context, js natsjs.JetStream, cfg natsjs.StreamConfig) error {
	for tries := 0; ; tries++ {
		_, err := js.CreateStream(ctx, cfg)
		if !api.HasNoRoom(err) && !api.HasCode(err, api.CreateFailed) {
			return err
		}
		if _, looked := js.Stream(ctx, cfg.Name); looked == nil {
			return natsjs.ErrStreamNameAlreadyInUse
		}
		if tries == roomTries || !pause.For(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// roomTries is how often create tries again.
const roomTries = 10

// reserves says how much room the change needs, for an error about missing room.
func (c Change) reserves(err error) string {
	if !api.HasNoRoom(err) && !api.HasCode(err, api.AccountExceeded) || c.want.MaxBytes <= 0 {
		return ""
	}
	return fmt.Sprintf(", which reserves %d MiB", c.want.MaxBytes/mib)
}

// jsSubjectsOverlap is nats-server's code for subjects that another stream captures.
const jsSubjectsOverlap natsjs.ErrorCode = 10065

// withStreamNames adds to an error about overlapping subjects the names of the streams
// that capture them.
func withStreamNames(ctx context.Context, js natsjs.JetStream, c Change, err error) error {
	if !api.HasCode(err, jsSubjectsOverlap) {
		return err
	}
	var names []string
	for _, s := range c.want.Subjects {
		list := js.StreamNames(ctx, natsjs.WithStreamListSubject(s))
		for name := range list.Name() {
			if name != c.want.Name && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%s captured by %s already: %w", strings.Join(c.want.Subjects, " "), strings.Join(names, ", "), err)
}

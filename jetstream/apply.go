package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Apply creates and updates streams, buckets and consumers as [Plan] says, and
// returns what it did: in the report "create" means created. It needs permission
// to publish to $JS.API.STREAM.{INFO,CREATE,UPDATE}.<name>, for consumers to
// $JS.API.CONSUMER.{INFO,CREATE}.<stream>.<name>.>, and, to name what is at
// fault when subjects collide, to $JS.API.STREAM.NAMES and
// $JS.API.CONSUMER.LIST.<stream>.
//
// Where the account, or a server that stands alone, has not the storage for all
// that is to be made, it makes nothing and fails with [ErrNoRoom]. To find that
// out it needs permission for $JS.API.INFO, and to create and delete a stream
// AEE_ROOM; without it, it stops at the stream that does not fit.
//
// It goes on past a stream that is in conflict and reports all of them in the
// error; it stops where a request fails. What it did until then is done, and is
// found done when it is called again.
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
	if err := migrate(ctx, js, opts, plan); err != nil {
		return nil, err
	}
	// What gives room first.
	slices.SortStableFunc(plan, func(a, b Change) int { return cmp.Compare(min(a.Reserves, 0), min(b.Reserves, 0)) })
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
	return report, errors.Join(conflicts...)
}

// oldServer refuses servers that would drop the settings that they do not
// know.
func oldServer(js natsjs.JetStream, plan []Change) error {
	var major, minor int
	version := js.Conn().ConnectedServerVersion()
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return nil // not connected just now, or not a release: the server will say
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

func applyStream(ctx context.Context, js natsjs.JetStream, opts Options, c Change) (Change, error) {
	ctx, cancel := opts.bound(ctx)
	defer cancel()
	if c.Action == ActionCreate {
		err := create(ctx, js, c.want)
		if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) {
			// Another node was faster, with other options. What it made is now
			// a stream that exists.
			if c, err = planOne(ctx, js, opts, c.spec); err != nil {
				return c, err
			}
		} else if err != nil {
			return c, explain(js.Conn(), named(ctx, js, c, err), "create %s%s", c.Name, c.reserves(err))
		}
	}
	if c.Action == ActionUpdate {
		if _, err := js.UpdateStream(ctx, c.want); err != nil {
			return c, explain(js.Conn(), named(ctx, js, c, err), "update %s%s", c.Name, c.reserves(err))
		}
	}
	return c, nil
}

// create makes a stream. Where there is no room, another process may have made it
// (a server looks for room before it looks whether the stream is there), or may
// have set room aside just now to ask whether it is there: that is given back at
// once. A server that has just deleted its last stream, as after that question,
// removes the directory of streams a moment later, and may do so while the next one
// is made.
func create(ctx context.Context, js natsjs.JetStream, cfg natsjs.StreamConfig) error {
	for tries := 0; ; tries++ {
		_, err := js.CreateStream(ctx, cfg)
		if !hasNoRoom(err) && !hasCode(err, jsCreateFailed) {
			return err
		}
		if _, looked := js.Stream(ctx, cfg.Name); looked == nil {
			return natsjs.ErrStreamNameAlreadyInUse
		}
		if tries == roomTries || !pause(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// roomTries is how often a stream is tried again that finds no room or no directory.
const roomTries = 10

// reserves says how much room was asked for, where there was not enough.
func (c Change) reserves(err error) string {
	if !hasNoRoom(err) && !hasCode(err, jsAccountExceeded) || c.want.MaxBytes <= 0 {
		return ""
	}
	return fmt.Sprintf(", which reserves %d MiB", c.want.MaxBytes/mib)
}

// jsSubjectsOverlap is nats-server's code for subjects that another stream has.
const jsSubjectsOverlap natsjs.ErrorCode = 10065

// named adds to an error about overlapping subjects which streams have them.
func named(ctx context.Context, js natsjs.JetStream, c Change, err error) error {
	var api *natsjs.APIError
	if !errors.As(err, &api) || api.ErrorCode != jsSubjectsOverlap {
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

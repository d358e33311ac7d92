package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Apply creates and updates streams and buckets as [Plan] says, and returns
// what it did: in the report "create" means created. It needs permission to
// publish to $JS.API.STREAM.{INFO,CREATE,UPDATE}.<name>, for consumers to
// $JS.API.CONSUMER.{INFO,CREATE}.<stream>.<name>.>, and, to name what is at
// fault when subjects collide, to $JS.API.STREAM.NAMES and
// $JS.API.CONSUMER.LIST.<stream>.
//
// It goes on past a stream that is in conflict and reports all of them in the
// error; it stops where a request fails.
func Apply(ctx context.Context, js natsjs.JetStream, opts Options) ([]Change, error) {
	if err := oldServer(js); err != nil {
		return nil, err
	}
	consumers, err := opts.consumers()
	if err != nil {
		return nil, err
	}
	var report []Change
	var conflicts []error
	done := func(c Change) {
		if c.Action == ActionConflict {
			conflicts = append(conflicts, errors.New(c.String()))
		}
		report = append(report, c)
	}
	for _, spec := range Topology() {
		if opts.Only != nil && !slices.Contains(opts.Only, spec.Name) {
			continue
		}
		c, err := applyOne(ctx, js, opts, spec)
		if err != nil {
			return report, errors.Join(append(conflicts, err)...)
		}
		done(c)
	}
	for _, spec := range consumers {
		c, err := applyConsumer(ctx, js, opts, spec)
		if err != nil {
			return report, errors.Join(append(conflicts, err)...)
		}
		done(c)
	}
	return report, errors.Join(conflicts...)
}

// oldServer refuses servers that would drop the settings that they do not
// know.
func oldServer(js natsjs.JetStream) error {
	var major, minor int
	version := js.Conn().ConnectedServerVersion()
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return nil // not connected just now, or not a release: the server will say
	}
	if major < 2 || major == 2 && minor < 11 {
		return fmt.Errorf("nats-server %s is too old: the mesh needs 2.11 or newer, for the time to live of a message", version)
	}
	return nil
}

func applyOne(ctx context.Context, js natsjs.JetStream, opts Options, spec Spec) (Change, error) {
	c, err := planOne(ctx, js, opts, spec)
	if err != nil {
		return c, err
	}
	if c.Action == ActionCreate {
		_, err = js.CreateStream(ctx, c.want)
		if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) {
			// Another node was faster, with other options. What it made is now
			// a stream that exists.
			if c, err = planOne(ctx, js, opts, spec); err != nil {
				return c, err
			}
		} else if err != nil {
			return c, explain(js.Conn(), named(ctx, js, c, err), "create %s", c.Name)
		}
	}
	if c.Action == ActionUpdate {
		if _, err := js.UpdateStream(ctx, c.want); err != nil {
			return c, explain(js.Conn(), named(ctx, js, c, err), "update %s", c.Name)
		}
	}
	return c, nil
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

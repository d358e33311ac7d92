package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
)

// laneFlags are a worker's flags for the durable lane.
type laneFlags struct {
	durable   string
	lease     time.Duration
	noCreate  bool
	fenced    bool
	operators []string
	timeout   time.Duration
	remotes   remoteFlags
}

func (f *laneFlags) add(a *session.App, flags *pflag.FlagSet) {
	flags.StringVar(&f.durable, "durable", "auto", "take durable tasks: on, off, or auto (as soon as JetStream has the streams; on fails at once where it has not)")
	flags.DurationVar(&f.lease, "lease", mesh.DefaultLease, "for how long a durable task belongs to a worker that gives no sign of life (at least 1s)")
	flags.DurationVar(&f.timeout, "max-durable-timeout", mesh.DefaultRunTimeout, "the longest that a durable task may take, waiting included, whatever it asks for")
	flags.BoolVar(&f.noCreate, "no-create", false, "make no consumers; an operator has made them (\"aeemesh apply --entity …\")")
	flags.BoolVar(&f.fenced, "fenced", false, "the NATS user has what \"auth perms\" prints and no more: ask the server for nothing else")
	flags.StringArrayVar(&f.operators, "operator", nil, "`PATTERN` of who may cancel, pause, resume, steer and settle the runs of others (default human.>); repeatable")
	a.AddStateFlags(flags)
	f.remotes.add(a, flags)
}

// lane adds the durable lane to a worker's node, if the flags want it. With
// auto the worker waits for a missing lane, and serves live tasks meanwhile.
func (a *app) lane(ctx context.Context, cmd *cobra.Command, js natsjs.JetStream, m subject.Map, f *laneFlags, shared *meshCounters, cfg *mesh.Config) error {
	ring, err := a.Keyring(cmd)
	if err != nil {
		return err
	}
	remotes, err := remotesOf(a.App, cmd, &f.remotes)
	if err != nil {
		return err
	}
	if f.durable == "off" {
		return nil
	}
	wait := a.Conn.Wait()
	if f.durable == "auto" {
		wait = min(wait, 2*time.Second) // without permission to ask, there is no answer at all
	}
	looking, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	lacking := jetstream.LaneLacks(looking, js, m, f.fenced)
	if lacking != nil && f.durable == "on" {
		return outcome.Hinted(fmt.Errorf("--durable on: %w", lacking), "\"aeemesh apply\" makes the streams and buckets.")
	}
	d := session.NewLane(jetstream.Gather(js), m)
	d.Slots = jetstream.NewSlots(js, m, max(jetstream.DefaultSlotLease, f.lease))
	if f.fenced {
		d.Fence()
	}
	d.Codec = state.Codec{Seal: ring, AcceptClear: a.AcceptClear}
	d.Lease, d.Create, d.MaxTimeout, d.Operators = f.lease, !f.noCreate, f.timeout, f.operators
	d.Platform, d.Remotes = a.Platform, remotes
	counters := jetstream.NewCounters(js, m)
	cfg.Durable, cfg.Counters = d, counters
	if lacking == nil {
		shared.use(counters)
		return nil
	}
	level := slog.LevelWarn
	if errors.Is(lacking, jetstream.ErrNoLane) {
		level = slog.LevelInfo // so that the operator sees it
	}
	a.Log.Log(ctx, level, "live tasks only, until the durable lane is there (--durable off means that, --durable on insists on both)",
		"err", lacking, "hint", laneHelp(lacking, cfg.Entity))
	var seen *lateSeen
	window := cfg.ReplayWindow
	if cfg.Seen == nil && a.Sign.ReplayScope == "auto" && window > 0 {
		seen = new(lateSeen)
		cfg.Seen = seen
	}
	await := jetstream.AwaitLane(ctx, js, m, f.fenced, laneLook, lacking, func() {
		shared.use(counters)
		if seen != nil {
			seen.look(ctx, a.App, js, m, window)
		}
		a.Log.Warn("the durable lane is there: durable tasks are taken from now on")
	})
	d.Ready, d.Lacks = await.Ready(), await.Lacks
	return nil
}

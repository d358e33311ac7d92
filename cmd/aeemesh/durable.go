package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
)

// laneFlags are a worker's for the durable lane.
type laneFlags struct {
	durable   string
	lease     time.Duration
	noCreate  bool
	operators []string
	timeout   time.Duration
	remotes   remoteFlags
}

func (f *laneFlags) add(a *app, flags *pflag.FlagSet) {
	flags.StringVar(&f.durable, "durable", "auto", "take durable tasks: on, off, or auto (where JetStream has the streams)")
	flags.DurationVar(&f.lease, "lease", mesh.DefaultLease, "for how long a durable task belongs to a worker that gives no sign of life")
	flags.DurationVar(&f.timeout, "max-durable-timeout", mesh.DefaultRunTimeout, "the longest that a durable task may take, waiting included, whatever it asks for")
	flags.BoolVar(&f.noCreate, "no-create", false, "make no consumers; an operator has made them (\"aeemesh apply --entity …\")")
	flags.StringArrayVar(&f.operators, "operator", nil, "`PATTERN` of who may cancel, pause, resume, steer and settle the runs of others (default human.>); repeatable")
	a.addStateKeyFlag(flags)
	f.remotes.add(a, flags)
}

// laneStores are the streams and buckets without which there is no durable lane.
var laneStores = []string{jetstream.StreamWork, jetstream.StreamReply, jetstream.StreamDead, jetstream.StreamSchedule, jetstream.BucketState, jetstream.BucketSlots}

// lane gives a worker's node the durable lane, where it is wanted and there.
func (a *app) lane(ctx context.Context, cmd *cobra.Command, js natsjs.JetStream, m subject.Map, f *laneFlags, cfg *mesh.Config) error {
	if err := oneOf(cmd, "durable", f.durable, "auto", "on", "off"); err != nil {
		return err
	}
	if err := errors.Join(f.tooShort()...); err != nil {
		return usagef(cmd, "%w", err)
	}
	ring, err := a.keyring(cmd)
	if err != nil {
		return err
	}
	remotes, err := a.remotes(cmd, &f.remotes)
	if err != nil {
		return err
	}
	if f.durable == "off" {
		return nil
	}
	wait := a.conn.wait()
	if f.durable == "auto" {
		wait = min(wait, 2*time.Second) // where it may not ask, NATS answers with silence
	}
	looking, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := haveLane(looking, js, m); err != nil {
		if f.durable == "on" {
			return hinted(fmt.Errorf("--durable on: %w", err), "\"aeemesh apply\" makes the streams and buckets.")
		}
		a.liveOnly(ctx, err)
		return nil
	}
	js = jetstream.Gather(js)
	d := newLane(js, m)
	d.Slots = jetstream.NewSlots(js, m, f.lease)
	d.Codec = state.Codec{Seal: ring}
	d.Lease, d.Create, d.MaxTimeout, d.Operators = f.lease, !f.noCreate, f.timeout, f.operators
	d.Platform, d.Remotes = a.platform, remotes
	cfg.Durable = d
	return nil
}

// liveOnly says that a worker takes no durable tasks, and why: to the operator
// who has JetStream and may have meant them. Where it is off, or all of it is
// another's, nobody did.
func (a *app) liveOnly(ctx context.Context, err error) {
	level := slog.LevelWarn
	switch {
	case errors.Is(err, jetstream.ErrUnavailable), errors.Is(err, jetstream.ErrDenied) && errors.Is(err, errNoLane):
		level = slog.LevelInfo
	case errors.Is(err, errNoLane):
		a.term.say("live tasks only: %s", errorText(err))
		a.term.hint("\"aeemesh apply\" makes the streams and buckets for durable tasks, for a worker that is started after it; --durable off means live tasks only.")
		return
	}
	a.log.Log(ctx, level, "no durable lane: the worker takes live tasks only (--durable off means that, --durable on insists on both)", "err", err)
}

// newLane is the durable lane over a mesh's streams and buckets.
func newLane(js natsjs.JetStream, m subject.Map) *mesh.Durable {
	return &mesh.Durable{
		Queue: jetstream.NewQueue(js, m), Replies: jetstream.NewReplies(js, m), Dead: jetstream.NewDead(js, m), Inbox: jetstream.NewInbox(js, m),
		States: jetstream.NewStates(js, m), Clock: jetstream.NewClock(js, m), Slots: jetstream.NewSlots(js, m, 0),
	}
}

// errNoLane is said of a server that has nothing of the durable lane, or nothing
// that this NATS user may see.
var errNoLane = errors.New("there is no durable lane at all")

// haveLane says what the durable lane lacks on the server.
func haveLane(ctx context.Context, js natsjs.JetStream, m subject.Map) error {
	if _, err := jetstream.Plan(ctx, js, jetstream.Options{Map: m, Only: laneStores[:1]}); errors.Is(err, jetstream.ErrDenied) {
		return fmt.Errorf("%w: %w", err, errNoLane)
	}
	plan, err := jetstream.Plan(ctx, js, jetstream.Options{Map: m, Only: laneStores})
	if err != nil {
		return err
	}
	var missing []string
	for _, c := range plan {
		if c.Action == jetstream.ActionCreate || c.Action == jetstream.ActionConflict {
			missing = append(missing, c.Name)
		}
	}
	switch names := strings.Join(missing, ", "); len(missing) {
	case 0:
		return nil
	case len(laneStores):
		return fmt.Errorf("the server has no %s: %w", names, errNoLane)
	default:
		return fmt.Errorf("the server has no %s", names)
	}
}

// laneClient gives the node of a command the durable lane to talk to.
func (a *app) laneClient(cmd *cobra.Command) func(*session, *mesh.Config) error {
	return func(s *session, cfg *mesh.Config) error {
		m, err := a.subjects()
		if err != nil {
			return err
		}
		js, err := a.jetStream(s.conn)
		if err != nil {
			return err
		}
		ring, err := a.keyring(cmd)
		if err != nil {
			return err
		}
		cfg.Durable = newLane(js, m)
		cfg.Durable.Codec = state.Codec{Seal: ring}
		return nil
	}
}

// lane is what a command talks to directly.
func (s *session) lane() (*mesh.Durable, error) {
	m, err := s.app.subjects()
	if err != nil {
		return nil, err
	}
	js, err := s.app.jetStream(s.conn)
	if err != nil {
		return nil, err
	}
	return newLane(js, m), nil
}

// limited ends a command's waiting after --timeout, where that is given.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if d := a.conn.timeout; d > 0 {
		return context.WithTimeout(ctx, d)
	}
	return context.WithCancel(ctx)
}

// laneError says what to do where the lane is not there.
func laneError(err error) error {
	if errors.Is(err, jetstream.ErrNotFound) || errors.Is(err, jetstream.ErrUnavailable) {
		return hinted(err, "Durable tasks need JetStream and its streams: \"aeemesh apply\" makes them, \"aeemesh doctor\" looks.")
	}
	return err
}

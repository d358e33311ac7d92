package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/mesh"
)

// laneFlags are a worker's flags for the durable lane.
type laneFlags struct {
	durable   string
	lease     time.Duration
	noCreate  bool
	keepTasks bool
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
	flags.BoolVar(&f.keepTasks, "keep-tasks", false, "keep the document of every run, with its task: without it a task of one short step leaves its reply alone")
	flags.BoolVar(&f.fenced, "fenced", false, "the NATS user has what \"auth perms\" prints and no more: ask the server for nothing else")
	flags.StringArrayVar(&f.operators, "operator", nil, "`PATTERN` of who may cancel, pause, resume, steer and settle the runs of others (default human.>); repeatable")
	a.AddStateFlags(flags)
	f.remotes.add(a, flags)
}

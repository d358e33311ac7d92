package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
)

// checkWorker says all that is wrong with the values of a worker's flags, before
// anything is opened, started or connected.
func (a *app) checkWorker(cmd *cobra.Command, f *workerFlags, files []string) error {
	var bad []error
	note := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	note(f.command != "" || !cmd.Flags().Changed("exec"), "--exec is empty")
	switch {
	case len(files) == 0 && (f.command == "" || f.as == ""):
		note(false, "a FILE is missing; without one, both --as and --exec are needed")
	case len(files) == 0:
		dead := ofDocuments(cmd)
		note(len(dead) == 0, "%s: only a FILE has a use for this", strings.Join(dead, ", "))
	case len(files) > 1:
		note(f.as == "" && f.command == "", "--as and --exec are for one document, and there are %d", len(files))
	}
	if f.as != "" {
		if err := subject.ValidateServed(f.as); err != nil {
			bad = append(bad, fmt.Errorf("--as: %w", err))
		}
	}
	priorities := []string{string(envelope.PriorityLow), string(envelope.PriorityNormal), string(envelope.PriorityHigh), string(envelope.PriorityUrgent)}
	for _, w := range []struct {
		flag, value string
		allowed     []string
	}{
		{"cap", f.cap, priorities}, {"unknown-cap", f.unknownCap, priorities},
		{"task-events", f.taskEvents, []string{"all", "failures"}},
		{"journal", f.journal, []string{"memory", "jetstream", "auto"}},
		{"replay-scope", a.Sign.ReplayScope, []string{"auto", "process", "mesh"}},
		{"durable", f.lane.durable, []string{"auto", "on", "off"}},
		{"unknown-keys", f.unknownKeys, []string{"other", "refuse"}},
	} {
		if err := outcome.OneOf(cmd, w.flag, w.value, w.allowed...); err != nil {
			bad = append(bad, err)
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"drain", f.drain}, {"max-timeout", f.maxTimeout}} {
		note(d.value > 0, "--%s %v: it must be above 0", d.flag, d.value)
	}
	for _, name := range f.known {
		if err := subject.ValidateEntity(name); err != nil {
			bad = append(bad, fmt.Errorf("--known %q: %w", name, err))
		}
	}
	for _, pattern := range f.lane.operators {
		if err := sign.CheckPattern(pattern); err != nil {
			bad = append(bad, fmt.Errorf("--operator %q: %w", pattern, err))
		}
	}
	prefix := a.Conn.InboxPrefix
	note(prefix == "" || mesh.IsReplyInbox(prefix+"."), "--inbox-prefix %q: it must begin with \"_\", such as _INBOX_ada, because workers answer only on inbox subjects", prefix)
	bad = append(bad, f.lane.tooShort()...)
	for _, n := range []struct {
		flag     string
		negative bool
	}{
		{"queue", f.queue < 0}, {"context-tokens", f.contextTokens < 0}, {"heartbeat", f.heartbeat < 0},
		{"rate", f.quotas.Rate < 0}, {"burst", f.quotas.Burst < 0}, {"unknown-rate", f.quotas.UnknownRate < 0},
		{"unknown-burst", f.quotas.UnknownBurst < 0}, {"urgent-rate", f.quotas.UrgentRate < 0},
		{"replay-window", a.Sign.Window < 0}, {"skew", a.Sign.Skew < 0},
	} {
		note(!n.negative, "--%s %s: it cannot be negative", n.flag, cmd.Flags().Lookup(n.flag).Value)
	}
	note(f.concurrency > 0 || !a.IsSet(cmd, "concurrency"), "--concurrency %d: it must be above 0", f.concurrency)
	note(a.Sign.ReplayScope != "mesh" || !a.IsSet(cmd, "replay-window") || a.Sign.Window != 0, "--replay-scope mesh needs a --replay-window above 0")
	if _, err := sign.ParseMode(a.Sign.Mode); err != nil {
		bad = append(bad, fmt.Errorf("--signatures: %w", err))
	}
	bad = append(bad, a.CheckLog()...)
	bad = append(bad, a.CheckConnection()...)
	bad = append(bad, a.CheckStateKeys()...)
	bad = append(bad, f.lane.remotes.check()...)
	bad = append(bad, f.written(cmd)...)
	if len(bad) == 0 {
		return nil
	}
	return &outcome.UsageError{Err: errors.Join(bad...), Cmd: cmd}
}

// written returns which values do not have the form that their flags need. It does not check
// whether the programs, tools and addresses exist.
func (f *workerFlags) written(cmd *cobra.Command) (bad []error) {
	note := func(err error) {
		if err != nil {
			bad = append(bad, err)
		}
	}
	if f.command != "" {
		if _, err := splitCommand(f.command); err != nil {
			note(fmt.Errorf("--exec: %w", err))
		}
	}
	for _, spec := range f.tools {
		_, _, err := toolCommand(cmd, spec)
		note(err)
	}
	for _, spec := range f.lostCalls {
		_, _, err := lostCall(cmd, spec)
		note(err)
	}
	for _, spec := range f.accept {
		_, err := acceptances(cmd, []string{spec})
		note(err)
	}
	if f.vitals.listen != "" {
		_, port, err := net.SplitHostPort(f.vitals.listen)
		if err == nil {
			_, err = net.LookupPort("tcp", port)
		}
		if err != nil {
			note(fmt.Errorf("--health-listen %q: %w", f.vitals.listen, err))
		}
	}
	return bad
}

// documentFlags are about what documents name, and do nothing without one.
var documentFlags = []string{"tool", "require-tools", "lost-call", "context-tokens", "api-key-env", "work-queue", "allow-deprecated", "accept-unhonoured", "register"}

// ofDocuments are those of documentFlags that the command line gives.
func ofDocuments(cmd *cobra.Command) (out []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && slices.Contains(documentFlags, f.Name) {
			out = append(out, "--"+f.Name)
		}
	})
	return out
}

// tooShort tells which durations no lane can work with.
func (f *laneFlags) tooShort() (bad []error) {
	if f.lease < session.MinLease {
		bad = append(bad, fmt.Errorf("--lease %v: it must be at least %v", f.lease, session.MinLease))
	}
	if f.timeout <= 0 {
		bad = append(bad, fmt.Errorf("--max-durable-timeout %v: it must be above 0", f.timeout))
	}
	return bad
}

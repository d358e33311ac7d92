package topology

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// topologyFlags set how the mesh's streams, buckets and consumers are to be
// configured.
type topologyFlags struct {
	entities, only, limits, tags []string
	replicas                     int
	storage, cluster             string
	lease                        time.Duration
}

func (f *topologyFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVar(&f.entities, "entity", nil, "`entity` whose work consumers to look at too; repeatable")
	flags.StringArrayVar(&f.only, "only", nil, "`NAME` of a stream or bucket to look at, without the prefix's suffix; repeatable (default all)")
	flags.IntVar(&f.replicas, "replicas", 0, "replicas of each, 1, 3 or 5 (default 1 for new ones, and what there is)")
	flags.StringVar(&f.storage, "storage", "file", "storage of new ones: file, or memory, which a restart loses")
	flags.StringArrayVar(&f.limits, "limit", nil, "`NAME=LIMIT:VALUE,...` such as AEE_BUS=max_bytes:1GiB,max_age:14d; \"none\" lifts a limit; repeatable")
	flags.StringVar(&f.cluster, "placement-cluster", "", "`name` of the cluster where they are to be")
	flags.StringArrayVar(&f.tags, "placement-tag", nil, "`tag` of the servers where they are to be; repeatable")
	flags.DurationVar(&f.lease, "lease", 0, "AckWait of the work consumers of --entity (default 3s for new ones, and what there is)")
}

// options returns the options of the flags. It reports all errors.
func (f *topologyFlags) options(cmd *cobra.Command, m subject.Map) (jetstream.Options, error) {
	o := jetstream.Options{Map: m, Replicas: f.replicas, Entities: f.entities, Lease: f.lease}
	if len(f.only) > 0 {
		o.Only = f.only
	}
	if f.lease != 0 && f.lease < session.MinLease {
		return o, outcome.Usagef(cmd, "--lease %v: it must be at least %v", f.lease, session.MinLease)
	}
	if err := outcome.OneOf(cmd, "storage", f.storage, "file", "memory"); err != nil {
		return o, err
	}
	if f.storage == "memory" {
		o.Storage = natsjs.MemoryStorage
	}
	if f.cluster != "" || len(f.tags) > 0 {
		o.Placement = &natsjs.Placement{Cluster: f.cluster, Tags: f.tags}
	}
	for _, l := range f.limits {
		name, limits, err := ParseLimits(l)
		if err != nil {
			return o, outcome.Usagef(cmd, "--limit %q: %w", l, err)
		}
		if o.Limits == nil {
			o.Limits = map[string]jetstream.Limits{}
		}
		have := o.Limits[name]
		if limits.MaxAge != 0 {
			have.MaxAge = limits.MaxAge
		}
		if limits.MaxBytes != 0 {
			have.MaxBytes = limits.MaxBytes
		}
		o.Limits[name] = have
	}
	var bad []error
	for _, of := range []struct {
		flag string
		jetstream.Options
	}{{"entity", jetstream.Options{Entities: o.Entities}}, {"only", jetstream.Options{Only: o.Only}}, {"replicas", jetstream.Options{Replicas: o.Replicas}}, {"limit", jetstream.Options{Limits: o.Limits}}} {
		if err := of.Validate(); err != nil {
			bad = append(bad, fmt.Errorf("--%s: %w", of.flag, err))
		}
	}
	if len(bad) > 0 {
		return o, &outcome.UsageError{Err: errors.Join(bad...), Cmd: cmd}
	}
	return o, nil
}

// ParseLimits parses NAME=max_bytes:1GiB,max_age:7d.
func ParseLimits(s string) (string, jetstream.Limits, error) {
	var l jetstream.Limits
	name, list, ok := strings.Cut(s, "=")
	if !ok || name == "" || list == "" {
		return "", l, fmt.Errorf("it is NAME=LIMIT:VALUE, where LIMIT is max_bytes or max_age")
	}
	for part := range strings.SplitSeq(list, ",") {
		limit, value, _ := strings.Cut(part, ":")
		var err error
		switch limit {
		case "max_bytes":
			l.MaxBytes, err = parseSize(value)
		case "max_age":
			l.MaxAge, err = parseAge(value)
		default:
			err = fmt.Errorf("there is no limit %q; there are max_bytes and max_age", limit)
		}
		if err != nil {
			return "", l, err
		}
	}
	return name, l, nil
}

// sizes are the units of bytes.
var sizes = map[string]int64{
	"": 1, "B": 1, "K": 1 << 10, "KB": 1e3, "KIB": 1 << 10, "M": 1 << 20, "MB": 1e6, "MIB": 1 << 20,
	"G": 1 << 30, "GB": 1e9, "GIB": 1 << 30, "T": 1 << 40, "TB": 1e12, "TIB": 1 << 40,
}

// parseSize parses 512MiB, 1G, 1000000; "none" is -1.
func parseSize(s string) (int64, error) {
	if s == "none" {
		return -1, nil
	}
	digits := strings.TrimRight(s, "BKMGTibkmgt")
	unit, known := sizes[strings.ToUpper(s[len(digits):])]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n <= 0 || n > (1<<62)/unit {
		return 0, fmt.Errorf("%q is no size such as 512MiB or 1GiB, nor \"none\"", s)
	}
	return n * unit, nil
}

// parseAge parses 36h, 7d, 2w; "none" is -1.
func parseAge(s string) (time.Duration, error) {
	if s == "none" {
		return -1, nil
	}
	bad := fmt.Errorf("%q is no age such as 36h, 7d or 2w, nor \"none\"", s)
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if digits, ok := strings.CutSuffix(s, suffix); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil || n <= 0 || n > int64((1<<62)/unit) {
				return 0, bad
			}
			return time.Duration(n) * unit, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, bad
	}
	return d, nil
}

// ApplyTimeout bounds a change of the whole topology; a cluster needs time to
// place replicas.
const ApplyTimeout = time.Minute

// withTopology connects, and calls f with the options of the flags.
func withTopology(a *session.App, ctx context.Context, cmd *cobra.Command, f *topologyFlags, do func(context.Context, natsjs.JetStream, jetstream.Options) error) error {
	m, err := a.Subjects()
	if err != nil {
		return err
	}
	opts, err := f.options(cmd, m)
	if err != nil {
		return err
	}
	opts.Wait = a.Conn.Wait()
	conn, err := a.Connect(ctx, cmd, session.QuietAboutPermissions(session.ConnectionStatus(a.Term, false))) // the command's own errors describe them better
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := a.JetStream(conn)
	if err != nil {
		return err
	}
	if opts.Replicas > 1 && conn.ConnectedClusterName() == "" {
		a.Term.Warn("the server is in no cluster: if it stands alone, it refuses more than one replica")
	}
	return do(ctx, js, opts)
}

// bound returns the context of one operation on the server; the time in which a person answers a
// question is not part of it.
func bound(ctx context.Context, a *session.App) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(ApplyTimeout, a.Conn.Wait()))
}

// A tally counts changes that are planned or were made.
type tally struct {
	create, update, conflict, newer, none int
	reserves                              int64
	from                                  int // the version of the topology on the server
}

// Count counts changes by what they do.
func Count(changes []jetstream.Change) tally {
	t := tally{from: jetstream.VersionOf(changes)}
	for _, c := range changes {
		switch c.Action {
		case jetstream.ActionCreate:
			t.create++
		case jetstream.ActionUpdate:
			t.update++
		case jetstream.ActionConflict:
			t.conflict++
		case jetstream.ActionNewer:
			t.newer++
		default:
			t.none++
		}
		if c.Action == jetstream.ActionCreate || c.Action == jetstream.ActionUpdate {
			t.reserves += c.Reserves
		}
	}
	return t
}

// Migrated returns a note that a store of an older topology was changed; "" if the store was new
// or up to date.
func Migrated(report []jetstream.Change) string {
	t := Count(report)
	if t.from == 0 || t.from >= jetstream.TopologyVersion || t.newer > 0 || t.Todo() == 0 {
		return ""
	}
	return fmt.Sprintf("the store was of topology %d, and is of topology %d now: %d made, %d changed", t.from, jetstream.TopologyVersion, t.create, t.update)
}

func (t tally) Todo() int { return t.create + t.update }

// showChanges prints changes for people, or for machines.
func showChanges(a *session.App, changes []jetstream.Change) error {
	if a.Term.JSON {
		return term.Objects(a.Term, changes)
	}
	var rows [][]string
	for _, c := range changes {
		what := []string{c.About}
		if c.Action == jetstream.ActionCreate && c.Reserves > 0 {
			what[0] += ", up to " + term.Size(uint64(c.Reserves))
		}
		for i, d := range c.Differences {
			text := fmt.Sprintf("%s %s -> %s", d.Field, limitText(d.Field, d.Have), limitText(d.Field, d.Want))
			if d.Kept != "" {
				text = fmt.Sprintf("%s stays %s, not %s: %s", d.Field, limitText(d.Field, d.Have), limitText(d.Field, d.Want), d.Kept)
			}
			if i == 0 {
				what[0] = text
			} else {
				what = append(what, text)
			}
		}
		for i, w := range what {
			if i == 0 {
				rows = append(rows, []string{string(c.Action), string(c.Kind), c.Name, w})
			} else {
				rows = append(rows, []string{"", "", "", w})
			}
		}
	}
	a.Term.Table([]string{"action", "kind", "name", "what"}, rows)
	return nil
}

// limitText formats a limit in bytes for people.
func limitText(field, value string) string {
	if n, err := strconv.ParseInt(value, 10, 64); field == "max_bytes" && err == nil {
		if n < 0 {
			return "no limit"
		}
		return term.Size(uint64(n))
	}
	return value
}

// tellVersions prints the old and the new version of the topology.
func tellVersions(a *session.App, t tally) {
	if t.newer > 0 {
		a.Term.Warn("a newer aeemesh manages this mesh; this one leaves it alone")
		return
	}
	if t.from == 0 || t.from == jetstream.TopologyVersion {
		return
	}
	for _, m := range jetstream.Migrations() {
		if m.Version > t.from {
			a.Term.Say("topology %d -> %d: %s", m.Version-1, m.Version, m.About)
		}
	}
}

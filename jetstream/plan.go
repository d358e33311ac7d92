package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Options say which mesh a topology is for, and on what storage.
type Options struct {
	// Map gives the subjects and, by its prefix, the names. Zero: no prefix.
	Map subject.Map

	// Replicas of each stream: 1, 3 or 5. 0: 1 for a new stream, and as many as
	// there are for one that exists.
	Replicas int

	// Storage of new streams. The zero value is file storage. The storage of a
	// stream that exists cannot be changed.
	Storage natsjs.StorageType

	// Limits by [Spec] name replace those of the topology for new streams, and
	// raise those of streams that exist. A limit that is lower than the
	// stream's is not applied, for it would drop messages: the report says so.
	Limits map[string]Limits

	// Only names the Specs to look at. Nil: all.
	Only []string

	// Entities whose work consumers to look at too, after the streams. Workers
	// make those of their own entities, unless they are told not to.
	Entities []string

	// Lease is the AckWait of new work consumers, and of those that exist. 0:
	// [DefaultLease] for a new one, and what there is for one that exists.
	Lease time.Duration
}

// consumers are the specs of the consumers to look at.
func (o Options) consumers() ([]ConsumerSpec, error) {
	var all []ConsumerSpec
	for _, e := range o.Entities {
		specs, err := Consumers(o.Map, e, o.Lease)
		if err != nil {
			return nil, err
		}
		for _, s := range specs {
			if o.Only == nil || slices.Contains(o.Only, s.Stream) {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// Limits bound a stream. 0 leaves a limit as the topology has it, -1 lifts it.
type Limits struct {
	MaxAge   time.Duration `json:"max_age,omitempty"`
	MaxBytes int64         `json:"max_bytes,omitempty"`
}

// An Action is what is to be done, or was done, about a stream.
type Action string

// The actions of a [Change].
const (
	ActionNone     Action = "none"     // it is as it should be
	ActionCreate   Action = "create"   // it is missing
	ActionUpdate   Action = "update"   // something in it that the mesh relies on differs
	ActionConflict Action = "conflict" // it cannot be mended without destroying something
	ActionNewer    Action = "newer"    // a newer aeemesh made it; it is left alone
)

// A Change is what is to be done, or was done, about one stream, bucket or
// consumer.
type Change struct {
	Name        string       `json:"name"` // with the suffix: AEE_BUS_acme
	Kind        Kind         `json:"kind"`
	About       string       `json:"about"`
	Action      Action       `json:"action"`
	Differences []Difference `json:"differences,omitempty"`

	want     natsjs.StreamConfig
	consumer natsjs.ConsumerConfig
}

// A Difference is one setting that is not as the topology has it.
type Difference struct {
	Field string `json:"field"`
	Have  string `json:"have"`
	Want  string `json:"want"`
	// Kept says why the setting stays as it is. Empty: it is, or was, changed.
	Kept string `json:"kept,omitempty"`
}

// String says it in a line: "update AEE_BUS: no_ack false, should be true".
func (c Change) String() string {
	var b strings.Builder
	b.WriteString(string(c.Action) + " " + c.Name)
	for i, d := range c.Differences {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		fmt.Fprintf(&b, "%s %s, should be %s", d.Field, d.Have, d.Want)
		if d.Kept != "" {
			b.WriteString(" (" + d.Kept + ")")
		}
	}
	return b.String()
}

// Plan compares the topology with the server and changes nothing. It needs
// permission to publish to $JS.API.STREAM.INFO.<name>, and for consumers to
// $JS.API.CONSUMER.INFO.<stream>.<name>.
func Plan(ctx context.Context, js natsjs.JetStream, opts Options) ([]Change, error) {
	consumers, err := opts.consumers()
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, spec := range Topology() {
		if opts.Only != nil && !slices.Contains(opts.Only, spec.Name) {
			continue
		}
		c, err := planOne(ctx, js, opts, spec)
		if err != nil {
			return changes, err
		}
		changes = append(changes, c)
	}
	for _, spec := range consumers {
		c, err := planConsumer(ctx, js, opts, spec)
		if err != nil {
			return changes, err
		}
		changes = append(changes, c)
	}
	return changes, nil
}

func planOne(ctx context.Context, js natsjs.JetStream, opts Options, spec Spec) (Change, error) {
	c := Change{Name: spec.FullName(opts.Map), Kind: spec.Kind, About: spec.About}
	stream, err := js.Stream(ctx, spec.StreamName(opts.Map))
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		c.Action, c.want = ActionCreate, fresh(opts, spec)
		return c, nil
	}
	if err != nil {
		return c, explain(js.Conn(), err, "look at %s", c.Name)
	}
	c.compare(opts, spec, stream.CachedInfo().Config)
	return c, nil
}

// fresh is the configuration of a stream that does not exist yet.
func fresh(opts Options, spec Spec) natsjs.StreamConfig {
	cfg := spec.Config
	cfg.Name = spec.StreamName(opts.Map)
	cfg.Subjects = spec.subjects(opts.Map)
	cfg.Description = "aeemesh: " + spec.About
	cfg.Storage = opts.Storage
	cfg.Replicas = max(opts.Replicas, 1)
	l := opts.Limits[spec.Name]
	switch {
	case l.MaxAge < 0:
		cfg.MaxAge = 0
	case l.MaxAge > 0:
		cfg.MaxAge = l.MaxAge
	}
	if l.MaxBytes != 0 {
		cfg.MaxBytes = l.MaxBytes
	}
	if cfg.MaxAge > 0 {
		cfg.Duplicates = min(cfg.Duplicates, cfg.MaxAge)
	}
	cfg.Metadata = map[string]string{MetaTopology: strconv.Itoa(TopologyVersion)}
	return cfg
}

// compare finds what differs between a stream and its spec, and what may be
// done about it.
func (c *Change) compare(opts Options, spec Spec, have natsjs.StreamConfig) {
	want := fresh(opts, spec)
	next := have // what we would update it to: the operator's settings stay
	if c.newer(have.Metadata) {
		return
	}
	c.conflicts(have, want)
	if len(c.Differences) > 0 {
		c.Action = ActionConflict
		return
	}
	c.version(have.Metadata, &next.Metadata)
	if all := union(have.Subjects, want.Subjects); !slices.Equal(all, have.Subjects) {
		c.differ("subjects", strings.Join(have.Subjects, " "), strings.Join(all, " "), "")
		next.Subjects = all
	}
	c.flag("no_ack", &next.NoAck, want.NoAck)
	c.flag("allow_direct", &next.AllowDirect, want.AllowDirect)
	// What a server cannot turn off again is only ever turned on.
	for _, f := range []struct {
		field      string
		have, want *bool
	}{
		{"allow_rollup_hdrs", &next.AllowRollup, &want.AllowRollup},
		{"deny_delete", &next.DenyDelete, &want.DenyDelete},
		{"allow_msg_ttl", &next.AllowMsgTTL, &want.AllowMsgTTL},
		{"allow_msg_schedules", &next.AllowMsgSchedules, &want.AllowMsgSchedules},
	} {
		if *f.want {
			c.flag(f.field, f.have, true)
		}
	}
	if h, w := have.SubjectDeleteMarkerTTL, want.SubjectDeleteMarkerTTL; w > 0 && h == 0 {
		c.differ("subject_delete_marker_ttl", "none", w.String(), "")
		next.SubjectDeleteMarkerTTL = w
	}
	if have.Discard != want.Discard {
		c.differ("discard", have.Discard.String(), want.Discard.String(), "")
		next.Discard = want.Discard
	}
	c.limits(opts, spec, have, want, &next)
	c.want = next
	c.settle()
}

// newer reports that a newer release made what the metadata is of.
func (c *Change) newer(metadata map[string]string) bool {
	version, _ := strconv.Atoi(metadata[MetaTopology])
	if version <= TopologyVersion {
		return false
	}
	c.Action = ActionNewer
	c.differ("topology", strconv.Itoa(version), strconv.Itoa(TopologyVersion), "a newer aeemesh made it")
	return true
}

// version brings the version in the metadata up to date.
func (c *Change) version(have map[string]string, next *map[string]string) {
	version, _ := strconv.Atoi(have[MetaTopology])
	if version == TopologyVersion {
		return
	}
	was := "none"
	if version > 0 {
		was = strconv.Itoa(version)
	}
	c.differ("topology", was, strconv.Itoa(TopologyVersion), "")
	*next = maps.Clone(have)
	if *next == nil {
		*next = map[string]string{}
	}
	(*next)[MetaTopology] = strconv.Itoa(TopologyVersion)
}

// settle says what is to be done: an update if a difference is not to be kept.
func (c *Change) settle() {
	c.Action = ActionNone
	for _, d := range c.Differences {
		if d.Kept == "" {
			c.Action = ActionUpdate
		}
	}
}

// conflicts notes what cannot be mended.
func (c *Change) conflicts(have, want natsjs.StreamConfig) {
	const kept = "it cannot be changed without making the stream anew"
	if have.Mirror != nil {
		c.differ("mirror", have.Mirror.Name, "none", kept)
	}
	if have.Sealed {
		c.differ("sealed", "true", "false", kept)
	}
	if have.Retention != want.Retention {
		c.differ("retention", have.Retention.String(), want.Retention.String(), kept)
	}
	if have.SubjectDeleteMarkerTTL > 0 && want.SubjectDeleteMarkerTTL == 0 && want.AllowMsgTTL {
		c.differ("subject_delete_marker_ttl", have.SubjectDeleteMarkerTTL.String(), "none", "a marker would look like a message")
	}
	for _, h := range have.Subjects {
		for _, w := range want.Subjects {
			if overlap(h, w) {
				return
			}
		}
	}
	c.differ("subjects", strings.Join(have.Subjects, " "), strings.Join(want.Subjects, " "), "a foreign stream has the name")
}

// limits are the operator's. They change where they were asked for, and where
// that drops nothing.
func (c *Change) limits(opts Options, spec Spec, have, want natsjs.StreamConfig, next *natsjs.StreamConfig) {
	const kept = "lowering it would drop messages; do that with `nats stream edit`"
	l := opts.Limits[spec.Name]
	if l.MaxAge != 0 && have.MaxAge != want.MaxAge {
		d := Difference{Field: "max_age", Have: ageString(have.MaxAge), Want: ageString(want.MaxAge)}
		if have.MaxAge == 0 || want.MaxAge != 0 && want.MaxAge < have.MaxAge {
			d.Kept = kept
		} else {
			next.MaxAge = want.MaxAge
		}
		c.Differences = append(c.Differences, d)
	}
	if l.MaxBytes != 0 && have.MaxBytes != want.MaxBytes {
		d := Difference{Field: "max_bytes", Have: strconv.FormatInt(have.MaxBytes, 10), Want: strconv.FormatInt(want.MaxBytes, 10)}
		if have.MaxBytes < 0 || want.MaxBytes > 0 && want.MaxBytes < have.MaxBytes {
			d.Kept = kept
		} else {
			next.MaxBytes = want.MaxBytes
		}
		c.Differences = append(c.Differences, d)
	}
	if h, w := have.MaxMsgsPerSubject, want.MaxMsgsPerSubject; h > 0 && (w < 0 || w > h) {
		c.differ("max_msgs_per_subject", strconv.FormatInt(h, 10), strconv.FormatInt(w, 10), "")
		next.MaxMsgsPerSubject = w
	}
	if opts.Replicas > 0 && have.Replicas != opts.Replicas {
		c.differ("num_replicas", strconv.Itoa(have.Replicas), strconv.Itoa(opts.Replicas), "")
		next.Replicas = opts.Replicas
	}
	if have.Storage != want.Storage {
		c.differ("storage", have.Storage.String(), want.Storage.String(), "a stream's storage cannot be changed")
	}
}

func (c *Change) flag(field string, have *bool, want bool) {
	if *have != want {
		c.differ(field, strconv.FormatBool(*have), strconv.FormatBool(want), "")
		*have = want
	}
}

func (c *Change) differ(field, have, want, kept string) {
	c.Differences = append(c.Differences, Difference{field, have, want, kept})
}

func ageString(d time.Duration) string {
	if d == 0 {
		return "no limit"
	}
	return d.String()
}

package jetstream

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// fresh is the configuration of a stream that does not exist yet.
func fresh(opts Options, spec Spec) natsjs.StreamConfig {
	cfg := spec.Config
	cfg.Name = spec.StreamName(opts.Map)
	cfg.Subjects = spec.subjects(opts.Map)
	cfg.Description = "aeemesh: " + spec.About
	cfg.Storage = opts.Storage
	cfg.Replicas = max(opts.Replicas, 1)
	cfg.Placement = opts.Placement
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
	cfg.Metadata = map[string]string{MetaTopology: strconv.Itoa(TopologyVersion), MetaWorkers: strconv.Itoa(oldestWorkers)}
	return cfg
}

// compare finds the differences between a stream and its spec, and decides which of them
// can be changed.
func (c *Change) compare(opts Options, spec Spec, info *natsjs.StreamInfo) {
	have := info.Config
	want := fresh(opts, spec)
	next := have // the configuration after the update: the operator's settings stay
	if c.newer(have.Metadata) {
		return
	}
	c.conflicts(have, want)
	if len(c.Differences) > 0 {
		c.Action = ActionConflict
		return
	}
	c.version(have.Metadata, &next.Metadata)
	subjects := have.Subjects
	if spec.Former != nil {
		former := spec.Former(opts.Map)
		subjects = slices.DeleteFunc(slices.Clone(subjects), func(s string) bool { return slices.Contains(former, s) })
	}
	if all := subject.Union(subjects, want.Subjects); !slices.Equal(all, have.Subjects) {
		c.differ("subjects", strings.Join(have.Subjects, " "), strings.Join(all, " "), "")
		next.Subjects = all
	}
	c.permanent(spec, have, &want)
	set(c, "no_ack", &next.NoAck, want.NoAck)
	set(c, "allow_direct", &next.AllowDirect, want.AllowDirect)
	set(c, "allow_rollup_hdrs", &next.AllowRollup, want.AllowRollup)
	if want.MaxConsumers > 0 {
		set(c, "max_consumers", &next.MaxConsumers, max(have.MaxConsumers, want.MaxConsumers))
	}
	// Settings that a server cannot turn off again are only turned on.
	set(c, "deny_delete", &next.DenyDelete, have.DenyDelete || want.DenyDelete)
	set(c, "allow_msg_ttl", &next.AllowMsgTTL, have.AllowMsgTTL || want.AllowMsgTTL)
	set(c, "allow_msg_schedules", &next.AllowMsgSchedules, have.AllowMsgSchedules || want.AllowMsgSchedules)
	if h := have.SubjectDeleteMarkerTTL; h > 0 && (want.AllowMsgTTL || !want.AllowRollup) { // a marker would look like a message, and requires roll-ups
		c.differ("subject_delete_marker_ttl", h.String(), "none", "")
		next.SubjectDeleteMarkerTTL = 0
	}
	if t := have.SubjectTransform; t != nil { // what is published would be stored where it is not looked for
		c.differ("subject_transform", t.Source+" to "+t.Destination, "none", "")
		next.SubjectTransform = nil
	}
	set(c, "discard", &next.Discard, want.Discard)
	if want.Retention != natsjs.WorkQueuePolicy { // a key with a full history could not be written any more
		set(c, "discard_new_per_subject", &next.DiscardNewPerSubject, want.DiscardNewPerSubject)
	}
	// They would remove consumers of idle agents, and refuse those of readers.
	set(c, "consumer_limits.inactive_threshold", &next.ConsumerLimits.InactiveThreshold, 0)
	set(c, "consumer_limits.max_ack_pending", &next.ConsumerLimits.MaxAckPending, 0)
	if spec.Kind == KindStream && !want.NoAck && have.Duplicates < want.Duplicates && (have.MaxAge == 0 || have.MaxAge >= want.Duplicates) {
		set(c, "duplicate_window", &next.Duplicates, want.Duplicates)
	}
	c.limits(opts, spec, info, want, &next)
	c.breaking(spec, next, want)
	c.want = next
	c.Reserves = max(next.MaxBytes, 0) - max(have.MaxBytes, 0)
	c.setAction()
}

// newer reports whether the metadata was written by a newer release.
func (c *Change) newer(metadata map[string]string) bool {
	version, _ := strconv.Atoi(metadata[MetaTopology])
	c.Version = version
	c.workers, _ = strconv.Atoi(metadata[MetaWorkers])
	if version <= TopologyVersion {
		return false
	}
	c.Action = ActionNewer
	c.differ("topology", strconv.Itoa(version), strconv.Itoa(TopologyVersion), "a newer aeemesh made it")
	return true
}

// version updates the topology version in the metadata.
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
	(*next)[MetaTopology], (*next)[MetaWorkers] = strconv.Itoa(TopologyVersion), strconv.Itoa(oldestWorkers)
}

// setAction sets the action: an update if any difference is to be changed.
func (c *Change) setAction() {
	c.Action = ActionNone
	for _, d := range c.Differences {
		if d.Kept == "" {
			c.Action = ActionUpdate
		}
	}
}

// anew says why a setting stays that was fixed when the stream was made.
const anew = "it cannot be changed without making the stream anew"

// conflicts records the differences that cannot be changed on an existing stream, and with which
// the mesh cannot use it.
func (c *Change) conflicts(have, want natsjs.StreamConfig) {
	if have.Mirror != nil {
		c.differ("mirror", have.Mirror.Name, "none", anew)
	}
	if have.Sealed {
		c.differ("sealed", "true", "false", anew)
	}
	if have.Retention != want.Retention {
		c.differ("retention", have.Retention.String(), want.Retention.String(), anew)
	}
	if have.AllowMsgCounter != want.AllowMsgCounter { // a stream that counts refuses what is no number, another one does not add
		c.differ("allow_msg_counter", strconv.FormatBool(have.AllowMsgCounter), strconv.FormatBool(want.AllowMsgCounter), anew)
	}
	for _, h := range have.Subjects {
		for _, w := range want.Subjects {
			if subject.Overlap(h, w) {
				return
			}
		}
	}
	c.differ("subjects", strings.Join(have.Subjects, " "), strings.Join(want.Subjects, " "), "a foreign stream has the name")
}

// limits compares the limits, which belong to the operator. A limit is changed only if
// the options ask for it and no stored message would be dropped: it is lowered if what
// the stream holds fits.
func (c *Change) limits(opts Options, spec Spec, info *natsjs.StreamInfo, want natsjs.StreamConfig, next *natsjs.StreamConfig) {
	const kept = ", which lowering it would drop: do that with `nats stream edit`"
	const leaderless = "the stream has no leader at the moment, so it is not known what it holds"
	have, holds := info.Config, info.State
	known := info.Cluster == nil || info.Cluster.Leader != ""
	l := opts.Limits[spec.Name]
	if l.MaxAge != 0 && have.MaxAge != want.MaxAge {
		d := Difference{Field: "max_age", Have: ageString(have.MaxAge), Want: ageString(want.MaxAge), Asked: true}
		oldest := time.Duration(0)
		if holds.Msgs > 0 {
			oldest = info.TimeStamp.Sub(holds.FirstTime)
		}
		switch lower := have.MaxAge == 0 || want.MaxAge != 0 && want.MaxAge < have.MaxAge; {
		case lower && !known:
			d.Kept = leaderless
		case lower && oldest > want.MaxAge-min(lowerMargin, want.MaxAge/10):
			d.Kept = "it holds messages of " + oldest.Round(time.Millisecond).String() + kept
		default:
			next.MaxAge = want.MaxAge
			if want.MaxAge > 0 {
				next.Duplicates = min(next.Duplicates, want.MaxAge)
			}
		}
		c.Differences = append(c.Differences, d)
	}
	if l.MaxBytes != 0 && have.MaxBytes != want.MaxBytes {
		d := Difference{Field: "max_bytes", Have: strconv.FormatInt(have.MaxBytes, 10), Want: strconv.FormatInt(want.MaxBytes, 10), Asked: true}
		switch lower := have.MaxBytes < 0 || want.MaxBytes > 0 && want.MaxBytes < have.MaxBytes; {
		case lower && !known:
			d.Kept = leaderless
		case lower && holds.Bytes > uint64(want.MaxBytes):
			d.Kept = fmt.Sprintf("it holds %d bytes%s", holds.Bytes, kept)
		default:
			next.MaxBytes = want.MaxBytes
		}
		c.Differences = append(c.Differences, d)
	}
	if h, w := have.MaxMsgsPerSubject, want.MaxMsgsPerSubject; h > 0 && (w < 0 || w > h) && want.Retention != natsjs.WorkQueuePolicy {
		set(c, "max_msgs_per_subject", &next.MaxMsgsPerSubject, w)
	}
	if opts.Replicas > 1 && have.PersistMode == natsjs.AsyncPersistMode {
		c.Differences = append(c.Differences, Difference{Field: "num_replicas", Have: strconv.Itoa(have.Replicas), Want: strconv.Itoa(opts.Replicas), Asked: true, Kept: "persist_mode async allows no replicas"})
	} else if opts.Replicas > 0 {
		set(c, "num_replicas", &next.Replicas, opts.Replicas)
	}
	if p := opts.Placement; p != nil && placementString(p) != placementString(have.Placement) {
		c.differ("placement", placementString(have.Placement), placementString(p), "")
		next.Placement = p
	}
	if have.Storage != want.Storage {
		c.Differences = append(c.Differences, Difference{Field: "storage", Have: have.Storage.String(), Want: want.Storage.String(), Asked: opts.Storage == natsjs.MemoryStorage,
			Kept: "a stream's storage cannot be changed: it would have to be deleted and made anew"})
	}
}

// lowerMargin is how much older than now messages may become without being dropped when
// the maximum age is lowered, so that none expires while the change is made. It is at
// most a tenth of the new age.
const lowerMargin = time.Minute

// permanent records settings that an operator has chosen, that break a promise of the mesh,
// and that no server changes back. It takes from want what the server refuses with them.
func (c *Change) permanent(spec Spec, have natsjs.StreamConfig, want *natsjs.StreamConfig) {
	const kept = "a server does not turn it off again: "
	if have.AllowMsgSchedules && !want.AllowMsgSchedules {
		c.breaks("allow_msg_schedules", "true", "false", kept+"with it come roll-ups, by which a user who may publish one message purges the whole stream")
		want.AllowRollup, want.Discard = true, natsjs.DiscardOld
	}
	if have.DenyPurge {
		want.AllowRollup = false
		if spec.Kind != KindStream {
			c.breaks("deny_purge", "true", "false", kept+"nothing in it can be removed for good")
		}
	}
	if have.PersistMode == natsjs.AsyncPersistMode && !want.NoAck {
		c.breaks("persist_mode", "async", "default", anew+": what was acknowledged is lost if the server is killed")
	}
	if have.DenyDelete && (spec.Name == StreamWork || spec.Name == StreamDead) {
		c.breaks("deny_delete", "true", "false", kept+"none of its tasks can be removed by hand")
	}
}

// breaking records settings of the operator's that break a promise of the mesh, and that are not
// changed: limits that make the server drop or refuse what was accepted, and messages that leave or
// enter the stream without the permissions of the mesh.
func (c *Change) breaking(spec Spec, have, want natsjs.StreamConfig) {
	const dropped = "its operator's: tasks beyond it are dropped without notice"
	limit := func(field string, have int64, kept string) {
		if have > 0 {
			c.breaks(field, strconv.FormatInt(have, 10), "no limit", kept)
		}
	}
	if have.MaxAge > 0 && spec.Kind == KindObjects {
		c.breaks("max_age", have.MaxAge.String(), "no limit", "its operator's: large checkpoints of runs that go on are dropped without notice")
	}
	if want.Retention == natsjs.WorkQueuePolicy {
		if have.MaxAge > 0 {
			c.breaks("max_age", have.MaxAge.String(), "no limit", dropped)
		}
		if want.Discard == natsjs.DiscardOld {
			limit("max_bytes", have.MaxBytes, dropped)
			limit("max_msgs", have.MaxMsgs, dropped)
		}
		if !have.DiscardNewPerSubject { // else a task beyond it is refused
			limit("max_msgs_per_subject", have.MaxMsgsPerSubject, dropped)
		}
	}
	limit("max_msg_size", int64(have.MaxMsgSize), "its operator's: what is larger is refused, also where a task that was accepted needs it")
	if r := have.RePublish; r != nil {
		c.differ("republish", cmp.Or(r.Source, ">")+" to "+r.Destination, "none", "its operator's: all who may subscribe there read what is stored")
	}
	for _, s := range have.Sources {
		c.differ("sources", s.Name, "none", "its operator's: what that stream stores is taken for messages of the mesh")
	}
}

// breaks records a difference that breaks a promise of the mesh, and that [Apply] does not correct.
func (c *Change) breaks(field, have, want, kept string) {
	c.Differences = append(c.Differences, Difference{Field: field, Have: have, Want: want, Kept: kept, Breaks: true})
}

// set changes a setting to what is wanted, and records the difference.
func set[T comparable](c *Change, field string, have *T, want T) {
	if *have != want {
		c.differ(field, fmt.Sprint(*have), fmt.Sprint(want), "")
		*have = want
	}
}

func (c *Change) differ(field, have, want, kept string) {
	c.Differences = append(c.Differences, Difference{Field: field, Have: have, Want: want, Kept: kept})
}

func ageString(d time.Duration) string {
	if d == 0 {
		return "no limit"
	}
	return d.String()
}

// placementString describes where a stream is placed: "cluster east, tags ssd eu".
func placementString(p *natsjs.Placement) string {
	var parts []string
	if p != nil && p.Cluster != "" {
		parts = append(parts, "cluster "+p.Cluster)
	}
	if p != nil && len(p.Tags) > 0 {
		parts = append(parts, "tags "+strings.Join(slices.Sorted(slices.Values(p.Tags)), " "))
	}
	if len(parts) == 0 {
		return "anywhere"
	}
	return strings.Join(parts, ", ")
}

package jetstream

import (
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// TopologyVersion counts the changes of [Topology] that a server must be told
// of. It is in the metadata of every stream, under [MetaTopology].
const TopologyVersion = 1

// MetaTopology is the key of the metadata that holds the topology's version.
const MetaTopology = "aeemesh.topology"

// Names of the streams and buckets, before a prefix's suffix.
const (
	StreamBus     = "AEE_BUS"
	StreamHuman   = "AEE_HUMAN"
	StreamJournal = "AEE_JOURNAL"
	BucketKeys    = "aee_keys"
	BucketSeen    = "aee_seen"
	BucketRefuted = "aee_refuted"
)

// A Spec is one stream or one key-value bucket.
type Spec struct {
	Name   string // "AEE_BUS"; for a bucket its name, "aee_keys"
	Bucket bool
	About  string // one line: what it holds, who reads it

	// Subjects are what a stream captures. Nil for a bucket.
	Subjects func(subject.Map) []string

	// Config has everything but name and subjects. Its MaxAge, MaxBytes and
	// MaxMsgsPerSubject are where a new stream starts; -1 is no limit.
	Config natsjs.StreamConfig
}

const (
	mib = 1 << 20
	day = 24 * time.Hour
)

// Topology returns all streams and buckets of the mesh, in the order in which
// they are applied. The slice is the caller's.
//
// The file storage that they may take together, 736 MiB, is reserved when they
// are made. On a smaller disk give [Options.Limits].
func Topology() []Spec {
	return []Spec{
		{
			Name:     StreamBus,
			About:    "broadcasts, for replay",
			Subjects: func(m subject.Map) []string { return []string{m.AllBus()} },
			Config:   lane(7*day, 256*mib),
		},
		{
			Name:     StreamHuman,
			About:    "people's inboxes",
			Subjects: func(m subject.Map) []string { return []string{m.AllHuman()} },
			Config:   lane(30*day, 64*mib),
		},
		{
			Name:     StreamJournal,
			About:    "envelopes that agents sent and received, for aee.context.fetch",
			Subjects: func(m subject.Map) []string { return []string{m.AllJournal()} },
			Config:   journal(1*day, 256*mib),
		},
		{
			Name: BucketKeys, Bucket: true,
			About:  "public keys by key id, for signatures",
			Config: bucket(0, 16*mib, 8),
		},
		{
			Name: BucketSeen, Bucket: true,
			About:  "ids of envelopes seen, against replays",
			Config: seen(15*time.Minute, 128*mib),
		},
		{
			Name: BucketRefuted, Bucket: true,
			About:  "refutations by envelope id",
			Config: bucket(30*day, 16*mib, 1),
		},
	}
}

// base is a stream that keeps messages within its limits and drops the oldest.
func base(maxAge time.Duration, maxBytes int64) natsjs.StreamConfig {
	return natsjs.StreamConfig{
		Retention: natsjs.LimitsPolicy, Discard: natsjs.DiscardOld,
		MaxAge: maxAge, MaxBytes: maxBytes, MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1, MaxConsumers: -1,
		Duplicates: 2 * time.Minute, AllowDirect: true,
	}
}

// lane is a stream over subjects on which requests may travel: see no_ack in
// the package comment.
func lane(maxAge time.Duration, maxBytes int64) natsjs.StreamConfig {
	c := base(maxAge, maxBytes)
	c.NoAck = true
	return c
}

// journal keeps one message for each envelope.
func journal(maxAge time.Duration, maxBytes int64) natsjs.StreamConfig {
	c := base(maxAge, maxBytes)
	c.MaxMsgsPerSubject = 1
	return c
}

// bucket is what nats.go makes of a key-value bucket (ADR-8), so that every
// NATS tool knows it as one.
func bucket(maxAge time.Duration, maxBytes int64, history int64) natsjs.StreamConfig {
	c := base(maxAge, maxBytes)
	c.Discard = natsjs.DiscardNew
	c.MaxMsgsPerSubject = history
	c.AllowRollup = true
	c.DenyDelete = true
	return c
}

// seen lets each id have its own time to live. It has no delete markers
// (SubjectDeleteMarkerTTL): a marker would look like an id that was seen.
func seen(maxAge time.Duration, maxBytes int64) natsjs.StreamConfig {
	c := bucket(maxAge, maxBytes, 1)
	c.AllowMsgTTL = true
	return c
}

// FullName is the stream's or bucket's name in m's mesh, as the nats CLI takes
// it: AEE_BUS, or AEE_BUS_acme with the prefix acme.
func (s Spec) FullName(m subject.Map) string { return s.Name + m.Suffix() }

// StreamName is the name of the stream in m's mesh; a bucket's stream is
// KV_<bucket>.
func (s Spec) StreamName(m subject.Map) string {
	if s.Bucket {
		return "KV_" + s.FullName(m)
	}
	return s.FullName(m)
}

// subjects are what the stream captures in m's mesh.
func (s Spec) subjects(m subject.Map) []string {
	if s.Bucket {
		return []string{"$KV." + s.FullName(m) + ".>"}
	}
	return s.Subjects(m)
}

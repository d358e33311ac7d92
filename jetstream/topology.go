package jetstream

import (
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/counter"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/state"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// TopologyVersion is raised with every change of [Topology] that must be applied to a
// server.
const TopologyVersion = 9

// oldestWorkers is the oldest topology whose releases may draw durable tasks. It is raised
// with a change of what is stored of a run that older workers would misunderstand:
// workers before topology 6 do not know that a reply alone may end a run, and would do its
// task again.
const oldestWorkers = 6

// The metadata of every stream holds the topology's version under MetaTopology, and under
// MetaWorkers the oldest topology that a worker must know for durable tasks. Releases
// before topology 8 do not look at the latter: see [drawGroup].
const (
	MetaTopology = "aeemesh.topology"
	MetaWorkers  = "aeemesh.workers"
)

// Names of the streams and buckets, without the suffix that a prefix adds.
const (
	StreamBus      = "AEE_BUS"
	StreamHuman    = "AEE_HUMAN"
	StreamJournal  = "AEE_JOURNAL"
	StreamWork     = "AEE_WORK"
	StreamSchedule = "AEE_SCHEDULE"
	StreamReply    = "AEE_REPLY"
	StreamDead     = "AEE_DEAD"
	StreamCount    = counter.Stream
	BucketKeys     = "aee_keys"
	BucketSeen     = seen.Bucket
	BucketRefuted  = "aee_refuted"
	BucketState    = "aee_state"
	BucketSlots    = slot.Bucket
	BucketHandoff  = "aee_handoff"
	BucketAgents   = "aee_agents"
	BucketLanes    = "aee_lanes"
	BucketSDSI     = "aee_sdsi"
	ObjectsState   = "aee_state_objects"
)

// A Kind says whether NATS tools show a stream as a plain stream, a key-value bucket or
// an object store.
type Kind string

// The kinds of a [Spec].
const (
	KindStream  Kind = "stream"
	KindBucket  Kind = "bucket"  // key-value: `nats kv`
	KindObjects Kind = "objects" // object store: `nats object`
)

// A Spec is one stream, key-value bucket or object store.
type Spec struct {
	Name  string // "AEE_BUS"; for a bucket its name, "aee_keys"
	Kind  Kind
	About string // one line: what it holds, who reads it

	// Subjects returns the subjects that a stream captures; of a bucket, those that it
	// captures besides its keys. Nil: none.
	Subjects func(subject.Map) []string

	// Former returns the patterns of earlier versions that [Apply] removes because they capture
	// more than Subjects. nil: there are none.
	Former func(subject.Map) []string

	// Config is the stream's configuration except its name and subjects. Its MaxAge,
	// MaxBytes and MaxMsgsPerSubject are the limits of a new stream; -1 is no limit.
	Config natsjs.StreamConfig
}

const (
	mib = 1 << 20
	day = 24 * time.Hour
)

// Topology returns all streams and buckets of the mesh, in the order in which they are
// applied. The caller may modify the slice.
//
// Creating them reserves 2,200 MiB of file storage, the sum of their limits. Where the
// disk is smaller, set [Options.Limits]. Delayed tasks need storage beyond that: see
// [StreamSchedule] in the package comment.
func Topology() []Spec {
	return []Spec{
		{
			Name: StreamBus, Kind: KindStream,
			About:    "broadcasts, for replay",
			Subjects: func(m subject.Map) []string { return []string{m.AllBus()} },
			Config:   broadcasts(7*day, 256*mib),
		},
		{
			Name: StreamHuman, Kind: KindStream,
			About:    "people's inboxes",
			Subjects: func(m subject.Map) []string { return []string{m.AllHuman()} },
			Config:   base(30*day, 64*mib),
		},
		{
			Name: StreamJournal, Kind: KindStream,
			About:    "envelopes that agents sent and received, for aee.context.fetch",
			Subjects: func(m subject.Map) []string { return []string{m.AllJournal()} },
			Config:   journal(1*day, 256*mib),
		},
		{
			Name: BucketKeys, Kind: KindBucket,
			About:  "public keys by key id, for signatures",
			Config: bucket(0, 16*mib, 8),
		},
		{
			Name: BucketSeen, Kind: KindBucket,
			About:  "ids of envelopes seen, against replays",
			Config: expiring(15*time.Minute, 128*mib, 1),
		},
		{
			Name: BucketRefuted, Kind: KindBucket,
			About:  "refutations by envelope id",
			Config: fenced(30*day, 16*mib, 1),
		},
		{
			Name: StreamWork, Kind: KindStream,
			About:    "durable tasks, until they are done",
			Subjects: subject.Map.AllWorkByPriority,
			Former:   func(m subject.Map) []string { return []string{m.AllWork()} },
			Config:   work(256 * mib),
		},
		{
			Name: StreamSchedule, Kind: KindStream,
			About:    "durable tasks that wait for their time",
			Subjects: func(m subject.Map) []string { return []string{m.AllSchedule(), m.AllDue()} },
			Config:   schedule(),
		},
		{
			Name: StreamReply, Kind: KindStream,
			About:    "what durable tasks stream, and replies of others than runs",
			Subjects: func(m subject.Map) []string { return []string{m.AllReplies()} },
			Config:   base(7*day, 128*mib),
		},
		{
			Name: StreamDead, Kind: KindStream,
			About:    "dead letters: tasks that could not be done",
			Subjects: func(m subject.Map) []string { return []string{m.AllDead()} },
			Config:   base(30*day, 64*mib),
		},
		{
			Name: BucketState, Kind: KindBucket,
			About:    "checkpoints of runs, and their replies",
			Subjects: func(m subject.Map) []string { return []string{allRunReplies(m)} },
			Config:   expiring(30*day, 512*mib, state.HistoryLimit),
		},
		{
			Name: ObjectsState, Kind: KindObjects,
			About:  "checkpoints that are too large for " + BucketState,
			Config: objects(256 * mib),
		},
		{
			Name: BucketSlots, Kind: KindBucket,
			About:  "places for running tasks, of agents with a bound for the whole mesh",
			Config: expiring(time.Hour, 8*mib, 1),
		},
		{
			Name: BucketHandoff, Kind: KindBucket,
			About:  "runs that other platforms hand over, and which tokens were used",
			Config: expiring(30*day, 64*mib, state.HistoryLimit),
		},
		{
			Name: StreamCount, Kind: KindStream,
			About:    "counters: what runs spend, and how often tools are called",
			Subjects: func(m subject.Map) []string { return []string{m.AllCounts()} },
			Config:   counters(7*day, 32*mib),
		},
		{
			Name: BucketAgents, Kind: KindBucket,
			About:  "definitions of agents: who is meant by an agent_id, an entity, an alias, a skill",
			Config: bucket(0, 64*mib, 16),
		},
		{
			Name: BucketLanes, Kind: KindBucket,
			About:  "which entities have a durable lane",
			Config: fenced(0, 16*mib, 1),
		},
		{
			Name: BucketSDSI, Kind: KindBucket,
			About:  "schema templates of agents, whose versions never change, and what was learned from the key \"other\"",
			Config: fenced(0, 64*mib, 1),
		},
	}
}

// base returns the configuration of a stream that drops its oldest messages at its
// limits.
func base(maxAge time.Duration, maxBytes int64) natsjs.StreamConfig {
	return natsjs.StreamConfig{
		Retention: natsjs.LimitsPolicy, Discard: natsjs.DiscardOld,
		MaxAge: maxAge, MaxBytes: maxBytes, MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1, MaxConsumers: -1,
		Duplicates: 2 * time.Minute, AllowDirect: true,
	}
}

// broadcasts has no_ack, because its subjects also carry requests: see the package comment.
// It lets each message have its own time to live, for those that are of no use later.
func broadcasts(maxAge time.Duration, maxBytes int64) natsjs.StreamConfig {
	c := base(maxAge, maxBytes)
	c.NoAck, c.AllowMsgTTL = true, true
	return c
}

// journal keeps the last message of each subject, so one for each envelope.
func journal(maxAge time.Duration, maxBytes int64) natsjs.StreamConfig {
	c := base(maxAge, maxBytes)
	c.MaxMsgsPerSubject = 1
	return c
}

// counters keeps the last message of each counter, which holds its total. A counter that
// is not added to for maxAge starts at zero again.
func counters(maxAge time.Duration, maxBytes int64) natsjs.StreamConfig {
	c := journal(maxAge, maxBytes)
	c.AllowMsgCounter = true
	return c
}

// bucket returns the configuration that nats.go gives a key-value bucket (ADR-8), so that
// every NATS tool recognises it as one.
func bucket(maxAge time.Duration, maxBytes int64, history int64) natsjs.StreamConfig {
	c := base(maxAge, maxBytes)
	c.Discard = natsjs.DiscardNew
	c.MaxMsgsPerSubject = history
	c.AllowRollup = true
	c.DenyDelete = true
	return c
}

// fenced is a bucket that workers write to, each below its own entity. It allows no
// roll-ups: "Nats-Rollup: all" on one subject that a user may publish to purges the whole
// stream, whatever the user's other permissions are. So `nats kv purge` does not work on
// it; `nats stream purge --subject` does.
func fenced(maxAge time.Duration, maxBytes int64, history int64) natsjs.StreamConfig {
	c := bucket(maxAge, maxBytes, history)
	c.AllowRollup = false
	return c
}

// expiring lets each message have its own time to live; of runs, markers of deletions have one.
// It has no delete markers (SubjectDeleteMarkerTTL): one would look like an id that was seen, and
// they require roll-ups.
func expiring(maxAge time.Duration, maxBytes int64, history int64) natsjs.StreamConfig {
	c := fenced(maxAge, maxBytes, history)
	c.AllowMsgTTL = true
	return c
}

// work is a work queue: a message is removed only when it is acknowledged. It has no
// maximum age. When it is full it refuses new messages, so that the submitter of a task
// gets an error.
func work(maxBytes int64) natsjs.StreamConfig {
	c := base(0, maxBytes)
	c.Retention = natsjs.WorkQueuePolicy
	c.Discard = natsjs.DiscardNew
	c.AllowMsgTTL = true
	c.MaxConsumers = maxConsumers
	return c
}

// maxConsumers is how many consumers the streams of durable tasks may have. Each entity
// has four on [StreamWork]. With -1, no limit of the stream itself, nats-server's default
// limit of 1,000 applies.
const maxConsumers = 1_000_000

// schedule is a work queue of scheduled messages. nats-server (2.15) allows them only in
// a stream that discards its oldest messages when it is full, so it has no limit: none
// must be discarded.
func schedule() natsjs.StreamConfig {
	c := work(-1)
	c.Discard = natsjs.DiscardOld
	c.AllowMsgSchedules = true
	c.AllowRollup = true // nats-server requires it for scheduled messages
	return c
}

// objects is an object store (ADR-20) by its name and subjects. It has no maximum age: an
// object is deleted with the last record that refers to it. It allows no roll-ups, like
// the buckets that workers write to.
func objects(maxBytes int64) natsjs.StreamConfig {
	c := base(0, maxBytes)
	c.Discard = natsjs.DiscardNew
	return c
}

// FullName is the stream's or bucket's name in m's mesh, as the nats CLI expects it:
// AEE_BUS, or AEE_BUS_acme with the prefix acme.
func (s Spec) FullName(m subject.Map) string { return s.Name + m.Suffix() }

// StreamName is the name of the stream in m's mesh: KV_<bucket> for a bucket,
// OBJ_<name> for an object store.
func (s Spec) StreamName(m subject.Map) string {
	switch s.Kind {
	case KindBucket:
		return "KV_" + s.FullName(m)
	case KindObjects:
		return "OBJ_" + s.FullName(m)
	}
	return s.FullName(m)
}

// subjects returns the subjects that the stream captures in m's mesh.
func (s Spec) subjects(m subject.Map) []string {
	switch s.Kind {
	case KindBucket:
		subjects := []string{"$KV." + s.FullName(m) + ".>"}
		if s.Subjects != nil {
			subjects = append(subjects, s.Subjects(m)...)
		}
		return subjects
	case KindObjects:
		return []string{"$O." + s.FullName(m) + ".C.>", "$O." + s.FullName(m) + ".M.>"}
	}
	return s.Subjects(m)
}

// repliesBucket is the bucket in whose form the subjects of replies are. There is no such
// bucket: the stream of [BucketState] captures them.
const repliesBucket = "aee_reply"

// allRunReplies is the pattern of the subjects of all stored replies of runs.
func allRunReplies(m subject.Map) string { return "$KV." + repliesBucket + m.Suffix() + ".>" }

// Package jetstream holds everything that the mesh keeps in NATS JetStream: the list of
// its streams and buckets, the code that creates and updates them, and the stores that
// read and write them.
//
// # The topology
//
// [Topology] lists every stream and bucket once. [Plan] compares the list with a server.
// [Apply] creates and updates what differs:
//
//	js, err := jetstream.New(nc, "")
//	report, err := jetstream.Apply(ctx, js, jetstream.Options{Map: m, Replicas: 3})
//	for _, c := range report { fmt.Println(c) } // create AEE_BUS, …
//
// Apply creates missing streams and changes the settings that the mesh relies on
// (subjects, no_ack, …). It never destroys anything: it deletes no stream, and it lowers
// no limit that would make the server drop messages. It keeps the limits of an existing
// stream unless [Options.Limits] names others. Applying twice changes nothing, and
// several nodes may apply at once. The metadata of each stream records the version of the
// topology; Apply does not touch streams of a newer version.
//
//	AEE_BUS            bus.>           7 days    what `watch --since` replays
//	AEE_HUMAN          human.>        30 days    people's inboxes
//	AEE_JOURNAL        aee.journal.>   1 day     envelopes, what aee.context.fetch reads
//	AEE_WORK           aee.work.P.>   no limit   durable tasks, until they are done; P is
//	                                             one of the four priorities
//	AEE_SCHEDULE       aee.schedule.> no limit   durable tasks that wait for their time,
//	                   aee.due.>                 and those whose time has come
//	AEE_REPLY          aee.reply.>     7 days    what durable tasks stream, replies of others than runs
//	AEE_DEAD           aee.dead.>     30 days    tasks that could not be done
//	aee_keys           KV                        public keys by key id
//	aee_seen           KV             15 minutes ids seen, against replays
//	aee_refuted        KV             30 days    refutations by envelope id
//	aee_state          KV             30 days    checkpoints of runs, 64 of each, and their replies
//	aee_state_objects  object store              checkpoints of more than 256 KiB
//	aee_slots          KV              1 hour    slots for running tasks
//	aee_handoff        KV              30 days   runs that other platforms transfer here
//	AEE_COUNT          aee.count.>     7 days    counters
//	aee_agents         KV                        definitions of agents, 16 versions of each
//	aee_lanes          KV                        which entities have a durable lane
//	aee_sdsi           KV                        schema templates, and pools of what fits no key
//
// AEE_WORK is a work queue: a task stays until it is acknowledged, however long that
// takes. When the stream is full it refuses new tasks, and the submitter gets an error.
// nats-server allows no scheduled messages in a stream that refuses new ones (2.15.2:
// "message scheduling cannot use discard new"), and a stream that discards old ones would
// drop tasks at its limit. So delayed tasks have a stream of their own without limits,
// AEE_SCHEDULE. When a task falls due, the server republishes it from
// aee.schedule.<entity>.<id> to aee.due.<priority>.<entity>, and a worker moves it from
// there to AEE_WORK.
//
// A prefix is put in front of the subjects and, as a suffix, behind the names: with
// prefix "acme.eu" they are acme.eu.bus.> and AEE_BUS_acme_eu.
//
// Only AEE_SCHEDULE, aee_keys and aee_agents allow roll-ups, because "Nats-Rollup: all" on
// one subject purges the whole stream. nats-server requires roll-ups for the scheduled
// messages of AEE_SCHEDULE. Every subject of an agent contains its entity, so that NATS
// permissions can restrict ("fence") a worker to its own entities. Package mesh/perms
// generates these permissions; docs/threat-model.md says what they prevent.
//
// AEE_BUS is no_ack. A stream that acknowledges also answers requests on the subjects
// that it captures, and its answer would race with the real responder's. So a publisher
// never learns whether a broadcast was stored; it is, unless JetStream is down or the
// stream is at its limits. For the same reason no other stream may capture the subjects
// of live tasks; package jetstream/inspect looks for such streams.
//
// A released version of the topology never changes. A [Migration] leads from one version
// to the next; its comment says how to write one. docs/operations.md is the page for
// operators.
//
// # Consumers, and how an idle worker sleeps
//
// With a [Notifier] a lane draws only from the priorities that have tasks. It creates a
// consumer when the first task of its priority comes, and nothing removes it again, for
// four reasons. A consumer that is made anew forgets how often it delivered a message, and
// up to which message all are acknowledged ([Lane.Gone]). It forgets a lease that an
// operator has set. It is younger than the tasks that wait, so that it cannot prove a first
// delivery ([Delivery.First]). And each creation costs the server milliseconds. So
// consumers have no inactive_threshold. An agent that has had no task has none:
// [BucketLanes] records that it has a durable lane ([Queue.Served]). Where that bucket does
// not exist, or may not be written, the consumer of normal priority is created at the start.
//
// Lanes without a notifier, such as those of releases before, create all five at the start
// and draw from all; both kinds may serve one entity.
//
// [Consumers] lists the work consumers of an agent in the same way. Plan and Apply check
// them for the entities in [Options.Entities]. Workers create their own with
// [EnsureConsumer], unless the operator forbids it, as for every fenced user: a user who
// may create consumers can make the server publish on any subject.
//
// # The durable lane
//
// [Queue] accepts tasks, [Lane] draws them for a worker, [Replies] stores the replies,
// [Dead] the dead letters, package slot limits how many tasks of an entity run at once, and
// [Clock] gives the server's time, by which deadlines are measured:
//
//	lane, err := queue.Lane("agent.x", jetstream.LaneOptions{Create: true})
//	go lane.Run(ctx, room, func(d *jetstream.Delivery) { … d.Ack() … lane.Wake() })
//
//	f, err := replies.Open("agent.x", id) // before the task is submitted
//	_, err = queue.Submit(ctx, jetstream.Submission{Entity: "agent.x", ID: id, Data: envelope})
//	for msg, err := range f.Messages(ctx, jetstream.FollowOptions{Fresh: true}) { … }
//
// A body is enough to submit a task: `nats pub aee.work.normal.agent.x '{…}'` works, but
// without an id the server cannot recognise duplicates.
//
// A task is delivered at least once. The server redelivers it when a worker has not
// acknowledged it or renewed its lease within [Delivery.Lease], when a lane had no room
// for it, and when its consumer was recreated. The server accepts a late acknowledgement
// from an earlier worker too. So ownership is decided elsewhere, by compare-and-swap on
// the run's record, and only the owner acknowledges.
//
// [Lane.Health] reports what keeps a lane from receiving tasks, since when, and how far
// the lane lags behind. The lane detects a deleted consumer, a lost leader, a server
// restart and missing permissions by an answer of the server or by two and a half missed
// heartbeats, and a paused consumer within [LaneOptions.Check]. Where workers may not
// create consumers, their health says that they wait for the operator.
//
// A body is at most as large as the server's max_payload; a larger one is refused with
// [ErrTooLarge].
//
// # The stores
//
// [Journal], [Records] (keys) and [Refutations] are handles without state of their own. Creating
// one does no I/O; their methods may be called concurrently. [Open] returns all stores of a mesh
// at once. [Replay] reads what the streams hold, in the order of time.
//
// [States] stores the checkpoints of runs. Each write is a compare-and-swap, so a
// worker that has lost the run is refused. [States.Open] lists the runs that have not
// ended, and [States.Sweep] deletes old runs before a full bucket would stop all work.
// [States.Shares] says how much of the bucket each entity uses: while the bucket is
// fuller than [CrowdedFrom] and one entity has more than [FairShare] of it, or more than
// what is free, that entity's workers start no new runs. Only a user with permission to purge can sweep.
//
// There is no index of runs by status or by corr, because every task would pay for lists that
// people read rarely. An index by corr is one more stored message for each tree, and most trees
// are one short task, which stores two. Instead each document has its status and the digest of its
// corr in headers ([HeaderStatus], [HeaderCorr]: 28 bytes, no message). A list begins at the end
// of the stream ([States.Latest], [States.Recent]), which people read most often. For the rest it
// reads the headers of the last documents, or of those stored since a time ([States.Documents]),
// and then only the documents that match. Runs without a document are completed, and are left out
// by their subject. docs/performance.md has the costs.
//
// Documents above [MaxInline] are stored as chunks in aee_state_objects, on
// $O.aee_state_objects.C.<entity>.<run>.<token>.<n>. nats.go's layout of objects (ADR-20)
// is not used because its subjects do not contain the entity.
//
// NATS does not check reply subjects, so a user can make the server send an answer to any
// subject of the account. All readers here skip such messages; [Published] lets
// subscribers skip them too.
//
// [Agents] stores the definitions of agents; it implements the registry of package
// agents/registry.
//
// [Gather] makes one connection cheaper for many goroutines that publish: pass it to all
// stores of a node.
//
// # Guarantees
//
// When a write returns nil, the data is as safe as the server's fsync setting and the number of
// replicas make it (see package natsd). A method that fails with [ErrUncertain] may or may not
// have had its effect. A request without an answer times out after 5 s, or when its ctx ends. One
// request may take 30 s: the first of a reader of the newest message of each run, because the
// server searches the files of the whole stream.
//
// # Errors
//
// [ErrUnavailable], [ErrDenied], [ErrNotFound], [ErrExists], [ErrChanged], [ErrFull],
// [ErrTooLarge], [ErrNoRoom], [ErrElsewhere] and [ErrUncertain] are for errors.Is. A server does not answer a request
// that permissions forbid. ErrDenied is returned when a request timed out and the
// connection was told of a permissions violation: for a write, of one on the very subject. Else
// the write is uncertain.
package jetstream

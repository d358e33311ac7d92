// Package jetstream is what the mesh keeps in NATS JetStream: its streams and
// buckets as data, and the stores over them.
//
// # The topology
//
// [Topology] lists every stream and bucket once. [Plan] compares the list with
// a server, [Apply] makes it so:
//
//	js, err := natsjs.New(nc)
//	report, err := jetstream.Apply(ctx, js, jetstream.Options{Map: m, Replicas: 3})
//	for _, c := range report { fmt.Println(c) } // create AEE_BUS, …
//
// Apply creates what is missing and mends what the mesh relies on (subjects,
// no_ack, …). It never destroys: it deletes nothing, and it lowers no limit
// that would make the server drop messages. Limits of a stream that exists are
// its operator's, unless [Options.Limits] asks for larger ones. Applying
// twice changes nothing, and several nodes may apply at once. The version of
// the topology is recorded in the metadata of each stream; a newer one is left
// alone.
//
//	AEE_BUS            bus.>           7 days    what `watch --since` replays
//	AEE_HUMAN          human.>        30 days    people's inboxes
//	AEE_JOURNAL        aee.journal.>   1 day     envelopes, what aee.context.fetch reads
//	AEE_WORK           aee.work.>     no limit   durable tasks, until they are done
//	AEE_SCHEDULE       aee.schedule.> no limit   durable tasks that wait for their time,
//	                   aee.due.>                 and those whose time has come
//	AEE_REPLY          aee.reply.>     7 days    replies to durable tasks
//	AEE_DEAD           aee.dead.>     30 days    tasks that could not be done
//	aee_keys           KV                        public keys by key id
//	aee_seen           KV             15 minutes ids seen, against replays
//	aee_refuted        KV             30 days    refutations by envelope id
//	aee_state          KV             30 days    checkpoints of runs, 64 of each
//	aee_state_objects  object store              checkpoints of more than 256 KiB
//	aee_slots          KV              1 hour    places for running tasks
//	aee_handoff        KV              30 days   runs that other platforms hand over
//	AEE_COUNT          aee.count.>     7 days    counters
//	aee_agents         KV                        definitions of agents, 16 versions of each
//
// AEE_WORK is a work queue: a task stays until it is acknowledged, however
// long. When it is full it refuses new tasks, and whoever submits one hears of
// it. nats-server has no schedules in a stream that refuses (2.15.2: "message
// scheduling cannot use discard new"), and one that does not would drop the
// oldest tasks at a limit. So delayed tasks are in a stream of their own without
// limits, AEE_SCHEDULE: the server republishes each at its time from
// aee.schedule.<entity>.<id> to aee.due.<priority>.<entity>, and a worker
// moves it from there to AEE_WORK.
//
// A prefix goes in front of the subjects and behind the names: with prefix
// "acme.eu" they are acme.eu.bus.> and AEE_BUS_acme_eu.
//
// What workers write to takes no roll-ups, but AEE_SCHEDULE, which nats-server wants
// them for: "Nats-Rollup: all" on one subject purges the whole stream. All of what is an
// agent's stands below its entity, so that permissions can fence its workers: mesh has
// them, and docs/threat-model.md says what they keep apart.
//
// AEE_BUS is no_ack. A stream that acknowledges also answers
// requests on the subjects it captures, racing whoever was asked. So
// the server never tells a publisher whether a broadcast was stored: it is,
// unless JetStream is down or the stream is at its limits. For the same reason
// the subjects of live tasks must be in no other stream; [Inspect] looks for
// those.
//
// A version of the topology that was released does not change. What leads from
// one to the next is a [Migration]; its comment says how the next one is
// written. docs/operations.md is the operators' page.
//
// An agent's work consumers are data, too: [Consumers]. Plan and Apply look at
// them for the entities that they are given, and workers make their own with
// [EnsureConsumer], unless an operator forbade it, as for each user that is fenced:
// who makes a consumer has the server publish anywhere.
//
// # The durable lane
//
// [Queue] takes tasks, [Lane] draws them for a worker, [Replies] has the
// answers, [Dead] the tasks that could not be done, [Slots] bounds how many of
// an entity run at once, and [Clock] tells the time by which deadlines count:
//
//	lane, err := queue.Lane("agent.x", jetstream.LaneOptions{Create: true})
//	go lane.Run(ctx, room, func(d *jetstream.Delivery) { … d.Ack() … lane.Wake() })
//
//	f, err := replies.Open("agent.x", id) // before the task is submitted
//	_, err = queue.Submit(ctx, jetstream.Submission{Entity: "agent.x", ID: id, Data: envelope})
//	for msg, err := range f.Messages(ctx, jetstream.FollowOptions{Fresh: true}) { … }
//
// Nothing but a body is needed to submit one: nats pub aee.work.normal.agent.x
// '{…}' does, without an id against doubles.
//
// A task is delivered at least once. The server hands it out again when a
// worker has been silent about it for a lease ([Delivery.Lease]), when a lane had no
// room for it, and when its consumer was made anew; a late acknowledgement of a
// former holder counts. So who runs it is decided elsewhere, by
// compare-and-swap on the run's record, and only that one acknowledges.
//
// A lane that cannot hear says so: [Lane.Health] has what is the matter and
// since when, and how far the lane lags. A consumer that is deleted, a lost
// leader, a restart, missing permissions are seen by an answer of the server or
// by two and a half missed heartbeats, a pause within [LaneOptions.Check]. An
// operator who allows workers to make nothing sees them wait.
//
// A body is at most the server's max_payload; a larger one is refused with
// [ErrTooLarge].
//
// # The stores
//
// [Journal], [Records] (keys), [Refutations] and [Seen] are handles without
// state of their own. Making one does no I/O; its methods may be called at
// once. [Replay] reads what the streams hold, in the order of time.
//
// [States] keeps the checkpoints of runs: a compare-and-swap for each, so that
// whoever holds the last revision owns the run. [States.Open] lists the runs
// that have not ended, [States.Resolve] finishes a write that had no answer, and
// [States.Sweep] makes room before a full bucket would stop all work. [States.Shares]
// tells how much of it an entity holds: while a store is fuller than [CrowdedFrom], and
// more than [FairShare] of it is one entity's, that entity's workers begin no new runs.
// Only a user who may purge sweeps.
//
// Documents above [MaxInline] are chunks in aee_state_objects, on
// $O.aee_state_objects.C.<entity>.<run>.<token>.<n>: nats.go's layout of objects (ADR-20)
// names no entity.
//
// NATS does not check reply subjects, so a user may have answers of the server put on any
// subject of the account. All readers here pass over them; [Published] does so for
// subscriptions.
//
// [Agents] keeps the definitions of agents: a registry of package
// agents/registry.
//
// [Gather] makes one connection cheaper for many goroutines that publish: give
// it to all stores of a node.
//
// # Guarantees
//
// What a method has returned nil for is stored as safely as the server's fsync
// class and the stream's replicas make it (package natsd says how safe that
// is). A method that fails with [ErrUncertain] may or may not have had its
// effect. A request that is not answered ends after 5 s, or with its ctx.
//
// # Errors
//
// [ErrUnavailable], [ErrDenied], [ErrNotFound], [ErrExists], [ErrChanged],
// [ErrFull], [ErrTooLarge] and [ErrUncertain] are for errors.Is. A server answers a request that it does
// not permit with silence; ErrDenied is that silence together with the
// violation that the connection was told of.
package jetstream

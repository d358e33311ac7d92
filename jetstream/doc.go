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
//	AEE_BUS        bus.>           7 days    what `watch --since` replays
//	AEE_HUMAN      human.>        30 days    people's inboxes
//	AEE_JOURNAL    aee.journal.>   1 day     envelopes, what aee.context.fetch reads
//	aee_keys       KV                        public keys by key id
//	aee_seen       KV             15 minutes ids seen, against replays
//	aee_refuted    KV             30 days    refutations by envelope id
//
// A prefix goes in front of the subjects and behind the names: with prefix
// "acme.eu" they are acme.eu.bus.> and AEE_BUS_acme_eu.
//
// AEE_BUS and AEE_HUMAN are no_ack. A stream that acknowledges also answers
// requests on the subjects it captures, racing the agent that was asked. So
// the server never tells a publisher whether a broadcast was stored: it is,
// unless JetStream is down or the stream is at its limits. For the same reason
// the subjects of live tasks must be in no other stream; [Inspect] looks for
// those.
//
// # The stores
//
// [Journal], [Records] (keys, refutations) and [Seen] are handles without
// state of their own. Making one does no I/O; its methods may be called at
// once. [Replay] reads what the streams hold, in the order of time.
//
// # Guarantees
//
// What a method has returned nil for is stored as safely as the server's fsync
// class and the stream's replicas make it (package natsd says how safe that
// is). A method that fails with [ErrUncertain] may or may not have had its
// effect. Where ctx has no deadline, each request has one of 5 s.
//
// # Errors
//
// [ErrUnavailable], [ErrDenied], [ErrNotFound], [ErrExists], [ErrChanged] and
// [ErrUncertain] are for errors.Is. A server answers a request that it does
// not permit with silence; ErrDenied is that silence together with the
// violation that the connection was told of.
package jetstream

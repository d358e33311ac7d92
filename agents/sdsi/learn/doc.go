// Package learn follows what clients put into the key "other" of an agent's schema
// templates, and lets keys come of it (SDSI 6.2). Package intents/template/evolve has the
// rules; this package embeds texts, stores the pools in JetStream and makes keys with the
// agent's model or by rules.
//
//	desk, err := sdsi.NewDesk(sdsi.DeskConfig{Entity: "agent.flights", Templates: templates})
//	learner, err := learn.New(learn.Config{Entity: "agent.flights", Templates: desk.Current(), Pools: pools, Embedder: ngrams.Embedder{}})
//	desk.Learn(learner)
//	go learner.Run(ctx)
//
// # Several workers, one pool
//
// The workers of an agent share a pool for each scenario (and cohort). Each change is a
// compare-and-swap of the pool; one that meets another's change is made again on what is
// there now. So each step of a key's life happens once. Payloads that arrive while a swap is
// under way are put into the next one together.
//
// The result of an exchange waits until what the client has put into "other" is stored: a
// worker that is killed loses nothing that it has answered for. If the store does not
// answer within [Config.Patience], the result does not wait any longer, and the worker tries
// again. What is only counted (payloads without a learned key) is stored within a second.
//
// # Personal data
//
// [Config.Scrub] cleans each text before it is embedded or stored; see [Scrub]. Clients are
// stored by a hash of their names.
package learn

// Package learn collects the texts that clients put into the key "other" of an agent's schema
// templates, and makes new keys from them (SDSI 6.2). Package intents/template/evolve has the
// rules. This package embeds the texts, stores the pools in JetStream, and makes keys with the
// agent's model or by rules.
//
//	desk, err := sdsi.NewDesk(sdsi.DeskConfig{Entity: "agent.flights", Templates: templates})
//	learner, err := learn.New(learn.Config{Entity: "agent.flights", Templates: desk.Current(), Pools: pools, Embedder: ngrams.Embedder{}})
//	desk.Learn(learner)
//	go learner.Run(ctx)
//
// # Several workers, one pool
//
// The workers of an agent share one pool for each scenario and cohort. Each change is a
// compare-and-swap of the pool. If another worker has changed the pool meanwhile, the change is
// applied again to the new state. So each step of a key's life happens once. Payloads that arrive
// during a swap are stored together by the next one.
//
// The result of an exchange is sent after the texts of "other" are stored, so a worker that is
// killed loses no text of an exchange that it has answered. If the store does not answer within
// [Config.Patience], the result is sent anyway, and the worker retries. Payloads that are only
// counted, because they have no learned key, are stored within a second.
//
// # Personal data
//
// [Config.Scrub] cleans each text before it is embedded or stored; see [Scrub]. Clients are
// stored by a hash of their names.
package learn

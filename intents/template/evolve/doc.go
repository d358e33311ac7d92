// Package evolve adds keys to schema templates according to their use (SDSI 6.2). A [Pool], one for
// each scenario, collects the texts that clients put into the key "other". Texts that recur become
// a key on trial, which becomes stable if clients use it. Keys that clients do not use are
// withdrawn.
//
// The package is pure: it does no I/O, starts no goroutine and reads no clock. A caller stores the
// pool ([Pool.Encode], [Decode]) and replaces it by compare-and-swap, so that each step of a key's
// life happens once, however many workers share the pool.
//
// # From a wish to a key
//
//	p.Observe(o, now)      fragments join clusters; votes and heat are counted
//	p.Ripe(now)            clusters with enough heat and enough clients
//	p.Claim(id, now)       this worker makes a key of the cluster
//	p.Propose(c, key, …)   the key is on trial, waits for a place, or for an operator
//	p.Advance(now)         keys become stable, deprecated, withdrawn
//	p.Refit(base, now)     refinements of descriptions that the template does not have any more end
//	p.Patches(t, client)   what a client is told
//
// # Who counts
//
// A client has one vote a day for a cluster ([Config.VoteEvery]): further votes count neither for
// the heat nor for the gates. So a single client cannot cause a key that others see. An attacker
// with many identities can; if that is possible in a mesh, raise [Config.MinClients] or set
// [Config.Approve].
//
// # Whose words others read
//
// The models of other clients read the description of a key. It contains only words that several
// clients have used ([Config.Anonymity]), so that neither personal data nor instructions of one
// client reach another.
//
// # What is stored
//
// A pool is at most [Config.MaxBytes] long. If it is too large, clusters are removed: first those
// with the votes of a single client, of the client with the most such clusters, then the coldest.
// [Pool.Encode] describes what else is removed. Clients are stored by a hash of their names;
// [Pool.Forget] removes a client from the whole pool.
package evolve

// Package evolve lets schema templates grow out of their use (SDSI 6.2). What clients put
// into the key "other" is collected in a [Pool], one for each scenario. What recurs there
// becomes a key on trial, and, if clients use it, a stable one. Keys that clients do not
// use are withdrawn.
//
// The package is pure: it does no I/O, starts no goroutine and asks no clock. A caller
// stores the pool ([Pool.Encode], [Decode]) and replaces it by compare-and-swap, so that
// each step of a key's life happens once, however many workers share the pool.
//
// # From a wish to a key
//
//	p.Observe(o, now)      fragments join clusters; votes and heat are counted
//	p.Ripe(now)            clusters with enough heat and enough clients
//	p.Claim(id, now)       this worker makes a key of the cluster
//	p.Propose(id, key, …)  the key is on trial, waits for a place, or for an operator
//	p.Advance(now)         keys become stable, deprecated, withdrawn
//	p.Patches(t, client)   what a client is told
//
// # Who counts
//
// A vote is a client's, and a client has one vote a day for a cluster ([Config.VoteEvery]):
// neither heat nor the gates count the others. So no client alone can bring about a key
// that others see. An owner who may make many identities can; [Config.MinClients] and
// [Config.Approve] are the answer where that is possible.
//
// # Whose words others read
//
// The description of a key is read by the models of other clients. It has only words that
// several clients have said ([Config.Anonymity]), so that neither personal data nor orders
// of one client reach another.
//
// # What is stored
//
// A pool is at most [Config.MaxBytes] long. What does not fit goes: first clusters that one
// client alone feeds, of the client that has most of them, then the coldest; see [Pool.Encode]
// for a pool that is full of keys. Clients are stored by a hash of their names; [Pool.Forget]
// removes one from all that is stored.
package evolve

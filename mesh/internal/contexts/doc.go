// Package contexts handles the earlier envelopes that tasks refer to (AEE, "The payload.references
// Array", aee.context.fetch and aee.context.refute): it fetches them, returns them to entities
// that may read them, and stores their refutations.
//
// Ids are public on the bus, so an id is not enough to read an envelope: an entity must be
// the envelope's from or to, or must name its hash, which it can only know from a reference
// by one of these two.
//
// It stands mainly on the journal, the verifier and the payload types of the two intents. The
// caller signs and sends the fetch ([Config].Ask).
package contexts

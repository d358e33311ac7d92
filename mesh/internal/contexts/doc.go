// Package contexts is what an agent knows of earlier envelopes that tasks refer to (AEE,
// "The payload.references Array", aee.context.fetch and aee.context.refute): it fetches them,
// hands them out to those that may read them, and keeps who has refuted them.
//
// Ids are public on the bus, so an id is not enough to read an envelope: an entity must be
// the envelope's from or to, or must name its hash, which it can only know from a reference
// by one of these two.
//
// It stands mainly on the journal, the verifier and the payload types of the two intents. How a
// fetch is signed and sent is for its caller ([Config].Ask).
package contexts

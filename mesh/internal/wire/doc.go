// Package wire converts between envelopes and the messages of NATS: the names of headers,
// the two encodings, signatures, and what is left of an envelope that cannot be read. It
// needs no connection and no node; limits and signers are arguments.
package wire

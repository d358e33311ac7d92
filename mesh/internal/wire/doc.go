// Package wire converts between envelopes and the messages of NATS: the names of headers, the two
// encodings, signatures, and the readable fields of an invalid envelope. It needs no connection
// and no node; limits and signers are arguments.
package wire

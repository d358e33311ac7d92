// Package envelopes has the commands of "aeemesh envelope", which make, check, sign
// and convert envelopes without a server, and what they share with the commands that
// send: [MessageFlags] make an envelope, [Each] reads them, [Print] prints one.
package envelopes

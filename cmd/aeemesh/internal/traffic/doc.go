// Package traffic shows what goes on in a mesh: "aeemesh watch" prints the
// envelopes that pass, "aeemesh tree" who works for whom on one task.
//
// A [Sighting] is one envelope that was seen; a [Voucher] tells whether its
// signature was verified. A [StreamView] prints the text that an agent streams.
package traffic

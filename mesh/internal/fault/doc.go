// Package fault decides what a peer may read of an error, and which errors cannot be sent.
package fault

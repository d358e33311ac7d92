// Package quorum says which servers of a cluster keep a stream, and whether enough of them
// are there to store messages.
package quorum

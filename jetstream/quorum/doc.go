// Package quorum reports which servers of a cluster have replicas of a stream, and whether enough
// of them are online to store messages.
package quorum

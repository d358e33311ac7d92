// Package seen is the replay window of a mesh, over the bucket [Bucket]: for a window of
// time it remembers which ids an entity has seen, for all its workers.
//
// The errors are those of package jetstream: jetstream.ErrExists, jetstream.ErrUncertain,
// jetstream.ErrUnavailable for a mesh without the bucket, and so on.
package seen

// Package slot limits how many tasks of an entity run at once in the whole mesh
// (runtime.concurrency of an AAIF document). A slot is a key of the bucket [Bucket],
// <entity>.<n>, with a time to live. Its holder renews it; when the holder crashes, the
// key expires and the slot is free again.
//
// If every holder that loses a slot stops its task, there are never more holders than the
// limit. Workers of an entity may know different limits: then the smallest of the
// caller's limit and those of the current holders counts. While limits change, slightly
// more tasks than the smallest may run for a moment, but never more than the largest.
//
// The errors are those of package jetstream: jetstream.ErrChanged, jetstream.ErrNotFound
// for a mesh without the bucket, and so on.
package slot

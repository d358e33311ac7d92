// Package chunks stores documents that are too large for a bucket, as objects in chunks.
// Each chunk is a message on a subject of its own below the run's entity, so that
// permissions can restrict who may read and write it:
//
//	$O.<bucket>.C.<entity>.<run>.<token>.<number>
//
// The object store of nats.go (ADR-20) puts all chunks of an object on one subject that
// contains neither the run nor its entity. [Store.Move] rewrites the objects of releases
// that used it.
package chunks

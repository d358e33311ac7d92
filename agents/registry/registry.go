package registry

import (
	"context"
	"errors"
	"time"
)

// Errors for errors.Is.
var (
	// ErrNotFound: nothing is registered under the key, or no such revision of it
	// is kept.
	ErrNotFound = errors.New("not registered")
	// ErrChanged: the key is not at the revision that the writer knows.
	ErrChanged = errors.New("the registration has changed meanwhile")
)

// MaxHistory is how many versions of a record a registry keeps.
const MaxHistory = 16

// Entry is what a registry has under a key at one revision.
type Entry struct {
	Key      string
	Revision uint64
	Time     time.Time // when the registry took it, by its own clock
	Removed  bool      // by this revision; there is no record then
	Record   Record
	// Err says why what is stored is no record; the record is then empty.
	// Somebody else wrote it, or a newer release.
	Err error
}

// Registry keeps definitions by key.
//
// Implementers must:
//
//   - make every Put and Remove atomic: of several after the same revision
//     exactly one succeeds, the others fail with ErrChanged;
//   - give each change a revision greater than 0 and greater than all before it,
//     of whatever key;
//   - return documents byte for byte;
//   - keep the newest [MaxHistory] versions of each key, removals included;
//   - refuse records that [Record.Validate] refuses, and keys that no record has,
//     with an error that is none of the sentinels;
//   - give out what is stored and is no record as an Entry with Err;
//   - keep nothing of what they are given, and give out what nobody else
//     writes to;
//   - be safe for concurrent use.
type Registry interface {
	// Put registers a record in place of the one at revision after, and returns
	// the new revision. With 0 there must be none, or it was removed. Otherwise it
	// fails with ErrChanged.
	Put(ctx context.Context, rec Record, after uint64) (revision uint64, err error)

	// Get returns what is registered under a key now, or ErrNotFound.
	Get(ctx context.Context, key string) (Entry, error)

	// At returns one revision of a key, or ErrNotFound where it is not one of that
	// key's, is a removal, or is no longer kept.
	At(ctx context.Context, key string, revision uint64) (Entry, error)

	// History returns what is kept of a key, oldest first; it fails with
	// ErrNotFound where that is nothing.
	History(ctx context.Context, key string) ([]Entry, error)

	// Remove takes a registration at a revision away; the history stays. It fails
	// with ErrChanged where the key is not at it.
	Remove(ctx context.Context, key string, revision uint64) error

	// List returns all that are registered now, in the order of their revisions.
	List(ctx context.Context) ([]Entry, error)

	// Watch calls changed with all that are registered, then ready once, and then
	// changed with every change, removals too, in the order of each key's
	// revisions, until ctx is done; then it returns nil. Changes that follow one
	// another quickly may be left out, but never the newest. The functions are
	// called from one goroutine at a time. Ready may be nil.
	//
	// Watch outlives a lost connection; what was told before may then be told
	// again. It returns an error only where it cannot begin, or where there is
	// nothing to watch for good.
	Watch(ctx context.Context, changed func(Entry), ready func()) error
}

package registry

import (
	"context"
	"errors"
	"time"
)

// Errors for errors.Is.
var (
	// ErrNotFound: nothing is registered under the key, or the revision is not
	// kept.
	ErrNotFound = errors.New("not registered")
	// ErrChanged: the key is not at the revision that the writer expects.
	ErrChanged = errors.New("the registration has changed meanwhile")
	// ErrAbsent: there is no registry, or this program may not read it. Any other error of List
	// may be temporary.
	ErrAbsent = errors.New("no registry")
)

// MaxHistory is how many versions of a record a registry keeps.
const MaxHistory = 16

// Entry is the content of a key at one revision.
type Entry struct {
	Key      string
	Revision uint64
	Time     time.Time // when the registry stored it, by the registry's clock
	Removed  bool      // this revision is a removal; there is no record
	Record   Record
	// Err says why the stored value is not a valid record; Record is then
	// empty. Another program wrote it, or a newer release.
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
//   - return a stored value that is not a valid record as an Entry with Err;
//   - keep no reference to their arguments, and return values that nothing
//     else writes to;
//   - be safe for concurrent use.
type Registry interface {
	// Put stores a record in place of the one at revision after, and returns
	// the new revision. If after is 0, no record may exist, or it must have
	// been removed. Otherwise Put fails with ErrChanged.
	Put(ctx context.Context, rec Record, after uint64) (revision uint64, err error)

	// Get returns the current entry of a key, or ErrNotFound.
	Get(ctx context.Context, key string) (Entry, error)

	// At returns one revision of a key, or ErrNotFound if it is not a revision
	// of that key, is a removal, or is no longer kept.
	At(ctx context.Context, key string, revision uint64) (Entry, error)

	// History returns the kept entries of a key, oldest first. It fails with
	// ErrNotFound if there are none.
	History(ctx context.Context, key string) ([]Entry, error)

	// Remove removes a registration that is at a revision; the history stays.
	// It fails with ErrChanged if the key is at another revision.
	Remove(ctx context.Context, key string, revision uint64) error

	// List returns all current registrations, in the order of their revisions.
	// It fails with ErrAbsent if there can be none.
	List(ctx context.Context) ([]Entry, error)

	// Watch calls changed with every current registration, then ready once, and
	// then changed with every change, including removals, in the order of each
	// key's revisions. When ctx ends, it returns nil. Of several quick changes
	// of a key, all but the newest may be left out. The functions are called
	// from one goroutine at a time. Ready may be nil.
	//
	// Watch continues after a lost connection; changed may then be called again
	// with the same entries. It returns an error only if it cannot start, or if
	// there is permanently nothing to watch.
	Watch(ctx context.Context, changed func(Entry), ready func()) error
}

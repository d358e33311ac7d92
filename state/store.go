package state

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
)

// HistoryLimit is the most revisions of a run that a store keeps.
const HistoryLimit = 64

// ID names a run in a store.
type ID struct {
	Entity string
	Run    string
}

// A Record is one stored checkpoint of one run: the bytes that a [Codec] wrote.
type Record struct {
	ID       ID
	Data     []byte
	Revision uint64
	Time     time.Time // when it was stored, by the store's clock

	// Over is the revision that the record replaced (prev of [Store.Put]). Swapped says
	// that the store has compared it at the write: so an earlier record that is copied
	// and stored again has another Over. Over of a run's first record may be the revision
	// of an earlier run's deletion.
	Over    uint64
	Swapped bool

	// TTL is how long the store keeps the record unless another replaces it; 0: as long as it
	// keeps others.
	TTL time.Duration

	// Replied says that the store has the run's reply, too, which ends the run: see
	// the store's Reply. Revision is the reply's then.
	Replied bool
	// Corr is the digest of the corr of the run's task, if the store knows it without the
	// document.
	Corr string
	// End is set if the run has no document: Data is its terminal envelope.
	End *End
}

// Errors for errors.Is.
var (
	// ErrNotFound: there is no such run, or the revision is no longer stored.
	ErrNotFound = errors.New("no such run")
	// ErrChanged: the run is not at the revision that the writer expects. Another worker
	// owns it now, or the writer itself has written since.
	ErrChanged = errors.New("the run has changed meanwhile")
	// ErrUncertain: no answer came, so the write may or may not have happened. The caller
	// has to read the run to find out.
	ErrUncertain = errors.New("no answer, so it may or may not be stored")
)

// Store keeps the checkpoints of runs. It does not interpret their content.
//
// Implementers must:
//
//   - make every Put atomic: it happens completely or not at all, and of several with the
//     same prev exactly one succeeds, whichever processes make them. This alone decides
//     who owns a run;
//   - give each stored checkpoint a revision greater than 0 and greater than every
//     earlier one of the same run, deletions included: a run that was deleted and created
//     again does not reuse one. Revisions of different runs need not be comparable;
//   - return what was written byte for byte, of any length from 1 byte to at least 2 MiB,
//     for any run id of 1 to 128 bytes and any entity that envelope/subject accepts, and
//     never confuse two of them, whatever characters they contain. Refuse other ids with
//     an error that is none of the sentinels;
//   - return with each record the revision that it replaced (Record.Over), if the write
//     was compared with that; no other writer of the store may be able to forge it;
//   - see their own writes: after a Put has returned, Get returns that record or a newer
//     one;
//   - keep the newest revisions of each run for History: at least the last 8, never more
//     than [HistoryLimit];
//   - return errors that wrap ErrNotFound, ErrChanged and ErrUncertain where this
//     documentation names them, and the context's error if a context ended a read. If no
//     answer comes, or the context ends, during a write that may have happened, return
//     ErrUncertain, never ErrChanged and never success;
//   - not keep the bytes that they are given after a call has returned, and return bytes
//     that the caller may modify;
//   - be safe for concurrent use.
type Store interface {
	// Put stores a checkpoint in place of the one at revision prev and returns its
	// revision. With prev 0 the run must not exist. Otherwise it fails with ErrChanged,
	// also if the run was deleted, and nothing has changed.
	Put(ctx context.Context, id ID, prev uint64, data []byte) (revision uint64, err error)

	// Get returns the newest checkpoint of a run, or ErrNotFound.
	Get(ctx context.Context, id ID) (Record, error)

	// At returns the checkpoint at a revision, or ErrNotFound: it never was a revision of
	// this run, or is no longer stored.
	At(ctx context.Context, id ID, revision uint64) (Record, error)

	// History returns the stored checkpoints of a run, oldest first. It fails with
	// ErrNotFound if there is none.
	History(ctx context.Context, id ID) ([]Record, error)

	// List yields the newest checkpoint of each run of an entity, or of all for "", in no
	// particular order. A run that is written meanwhile is yielded once, old or new; one
	// that is created or deleted meanwhile, at most once. An error is the last element
	// that is yielded.
	List(ctx context.Context, entity string) iter.Seq2[Record, error]

	// Delete deletes a run, and its history as far as the store can. It is no error if
	// there is none. A Put with prev 0 creates the run again.
	Delete(ctx context.Context, id ID) error
}

// MaxRun is the longest run id in bytes.
const MaxRun = 128

// Validate reports whether every store accepts the id: an entity that envelope/subject
// accepts, and a run of 1 to [MaxRun] arbitrary bytes.
func (id ID) Validate() error {
	if err := subject.ValidateEntity(id.Entity); err != nil {
		return err
	}
	if n := len(id.Run); n == 0 || n > MaxRun {
		return fmt.Errorf("run id: it has %d bytes, must have 1 to %d", n, MaxRun)
	}
	return nil
}

package state

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
)

// HistoryLimit is how many revisions of a run a store keeps at most.
const HistoryLimit = 64

// ID names a run in a store.
type ID struct {
	Entity string
	Run    string
}

// A Record is one checkpoint of one run as it is stored: the bytes that a
// [Codec] wrote.
type Record struct {
	ID       ID
	Data     []byte
	Revision uint64
	Time     time.Time // when the store took it, by the store's clock

	// Over is the revision that the writer wrote it over (prev of [Store.Put]), and
	// Swapped that the store has held the write to that: so a record that is taken
	// from before, and stored again, has another Over. Where there was none, and the
	// run was deleted before, Over may be the deletion's.
	Over    uint64
	Swapped bool
}

// Errors for errors.Is.
var (
	// ErrNotFound: there is no such run, or no such revision of it any more.
	ErrNotFound = errors.New("no such run")
	// ErrChanged: the run is not at the revision that the writer knows.
	// Somebody else owns it now, or the writer itself has written since.
	ErrChanged = errors.New("the run has changed meanwhile")
	// ErrUncertain: no answer came, so the write may or may not have happened.
	// The caller reads the run to find out: if its data are there, it did.
	ErrUncertain = errors.New("no answer, so it may or may not be stored")
)

// Store keeps the checkpoints of runs. It knows nothing of what is in them.
//
// Implementers must:
//
//   - make every Put atomic: it happens as a whole or not at all, and of
//     several with the same prev exactly one succeeds, whoever makes them and
//     wherever they are. This alone decides who owns a run;
//   - give each stored checkpoint a revision greater than 0 and greater than
//     every earlier one of the same run, deletions included: a run that was
//     deleted and made again does not reuse one. Revisions of different runs
//     may not be compared;
//   - return what was written byte for byte, of any length from 1 byte to at least 2
//     MiB, for any run id of 1 to 128 bytes and any entity that
//     mesh/subject accepts, never mixing up two of them, whatever characters
//     they hold. Other ids are refused with an error that is none of the
//     sentinels;
//   - say of each record, wherever they give it out, over which revision it was
//     written (Record.Over), if they have held the write to that; nobody may be able
//     to make it say otherwise by writing to the store;
//   - see their own writes: after a Put has returned, Get returns it or
//     something newer;
//   - keep the newest revisions of each run, in History, as far as they remember
//     them: at least the last 8, never more than [HistoryLimit];
//   - report errors so that errors.Is finds ErrNotFound, ErrChanged and
//     ErrUncertain where these documents name them, and the context's error
//     where a context ended a read. A failure to answer, the end of the context
//     included, during a write that may have happened is ErrUncertain, never
//     ErrChanged and never success;
//   - keep nothing of the bytes they are given once a call has returned, and
//     give out bytes that nobody else writes to;
//   - be safe for concurrent use.
type Store interface {
	// Put stores a checkpoint in place of the one at revision prev and returns
	// its revision. With prev 0 there must be none. Otherwise it fails with
	// ErrChanged, and nothing has changed; so it does where the run was
	// deleted.
	Put(ctx context.Context, id ID, prev uint64, data []byte) (revision uint64, err error)

	// Get returns the newest checkpoint of a run, or ErrNotFound.
	Get(ctx context.Context, id ID) (Record, error)

	// At returns the checkpoint that a revision names, or ErrNotFound: it was
	// never one of this run, or is no longer kept.
	At(ctx context.Context, id ID, revision uint64) (Record, error)

	// History returns the checkpoints that are kept of a run, oldest first. It
	// fails with ErrNotFound where there is none.
	History(ctx context.Context, id ID) ([]Record, error)

	// List yields the newest checkpoint of each run of an entity, or of all for
	// "", in no order that means anything. A run that is written meanwhile is
	// yielded once, old or new; one that is made or deleted meanwhile, at most
	// once. An error is the last thing that is yielded.
	List(ctx context.Context, entity string) iter.Seq2[Record, error]

	// Watch calls fn with the newest checkpoint of each run that id names, and
	// then with every change, in the order of each run's revisions, until ctx is
	// done; then it returns nil. Run "" names all runs of the entity, and the
	// zero ID all there are; an entity must be given with a run. Changes that
	// follow one another quickly may be left out, but never the newest of a run.
	// A deleted run is reported with no Data (nil), and a revision.
	//
	// fn is called from one goroutine at a time; while it runs, nothing is lost.
	// Watch outlives a lost connection: it returns an error only where it cannot
	// begin, or where what it watches is gone for good. What was reported before
	// an interruption may be reported again, in order.
	Watch(ctx context.Context, id ID, fn func(Record)) error

	// Delete takes a run away, its history too as far as the store can. It is no
	// error if there is none. A Put with prev 0 makes it anew.
	Delete(ctx context.Context, id ID) error
}

// MaxRun is the length of a run's id in bytes, at most.
const MaxRun = 128

// Validate reports whether the name is one that every store accepts: an entity
// that mesh/subject accepts, and a run of 1 to [MaxRun] bytes, whatever they
// are.
func (id ID) Validate() error {
	if err := subject.ValidateEntity(id.Entity); err != nil {
		return err
	}
	if n := len(id.Run); n == 0 || n > MaxRun {
		return fmt.Errorf("run id: it has %d bytes, must have 1 to %d", n, MaxRun)
	}
	return nil
}

// ValidateWatch reports whether the name is one that [Store.Watch] accepts: a
// run, an entity with all its runs, or nothing, which is all there are.
func (id ID) ValidateWatch() error {
	switch {
	case id == ID{}:
		return nil
	case id.Run == "":
		return subject.ValidateEntity(id.Entity)
	}
	return id.Validate()
}

// covers reports whether a watch of id sees the run.
func (id ID) covers(run ID) bool {
	return (id.Entity == "" || id.Entity == run.Entity) && (id.Run == "" || id.Run == run.Run)
}

package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Records are raw records by id in one bucket. The caller defines the content; an id is
// any non-empty string of at most [subject.MaxID] bytes when escaped.
//
// Revisions grow with every change of the bucket. Two writers that both read a record and
// both [Records.Update] it cannot overwrite each other: the second one fails.
type Records struct {
	kvBucket
}

// A Record is one record at one revision.
type Record struct {
	ID       string
	Value    []byte
	Revision uint64
	Time     time.Time // when the server stored it

	// Stray is set if an answer of the server, which a user redirected to the record's
	// subject, covers the record. Value is then not the answer (docs/threat-model.md,
	// "Redirected answers").
	Stray bool
}

// NewKeys returns the public keys of m's mesh, by key id. It does no I/O.
func NewKeys(js natsjs.JetStream, m subject.Map) *Records {
	return &Records{kvBucket{js: js, name: BucketKeys + m.Suffix()}}
}

// Get returns a record, or [ErrNotFound]. If a stray covers the record, Get reads the
// record from the bucket's history and returns it with the stray's revision.
func (r *Records) Get(ctx context.Context, id string) (Record, error) {
	key, err := r.key(id)
	if err != nil {
		return Record{}, err
	}
	e, err := r.last(ctx, key)
	if err == nil && e.stray {
		e, err = r.below(ctx, key, e.revision)
	}
	if err == nil && e.gone {
		err = natsjs.ErrMsgNotFound
	}
	if err != nil {
		return Record{}, r.explain(err, "get %q from %s", id, r.name)
	}
	return recordOf(id, e), nil
}

// Create stores a new record, or fails with [ErrExists].
func (r *Records) Create(ctx context.Context, id string, value []byte) (uint64, error) {
	key, err := r.key(id)
	if err != nil {
		return 0, err
	}
	rev, err := r.create(ctx, key, value)
	return rev, r.written(err, ErrExists, "create %q in %s", id, r.name)
}

// Update replaces the record at a given revision, or fails with [ErrChanged].
func (r *Records) Update(ctx context.Context, id string, value []byte, revision uint64) (uint64, error) {
	key, err := r.key(id)
	if err != nil {
		return 0, err
	}
	rev, err := r.update(ctx, key, value, revision)
	return rev, r.written(err, ErrChanged, "update %q in %s", id, r.name)
}

// below returns the newest revision of a key below a stray, with the stray's revision
// number, or [natsjs.ErrMsgNotFound].
func (r *Records) below(ctx context.Context, key string, stray uint64) (kvEntry, error) {
	kept, err := r.history(ctx, key)
	if err != nil {
		return kvEntry{}, err
	}
	e := kept[len(kept)-1]
	e.revision = stray
	return e, nil
}

// List returns all records, in the order in which they were last written. Strays are
// included, with Stray set.
func (r *Records) List(ctx context.Context) ([]Record, error) {
	var all []Record
	err := r.read(ctx, func(id string, e kvEntry) {
		if e.stray || !e.gone {
			all = append(all, recordOf(id, e))
		}
	})
	return all, err
}

// WatchFrom calls fn with every record that differs from list, which List has returned (nil: with
// every existing record), and from then on with every change, until ctx ends; then it returns nil.
// It polls every two seconds. Calls come one at a time, from the goroutine that called WatchFrom.
//
// WatchFrom survives reconnects, restarts of the server, and the loss and return of the
// bucket. It then reads the whole bucket again, so fn is called with everything that
// changed meanwhile, deletions included, and perhaps again with records that it has seen.
// A deletion is fn(id, nil, true).
//
// WatchFrom fails at once if the bucket does not exist or may not be read, and later only
// when the connection is closed for good.
func (r *Records) WatchFrom(ctx context.Context, list []Record, fn func(id string, record []byte, deleted bool)) error {
	w := r.newWatch(func(id string, e kvEntry) { fn(id, e.value, e.gone) })
	for _, known := range list {
		w.knows(known)
	}
	return w.run(ctx, nil)
}

func recordOf(id string, e kvEntry) Record {
	return Record{ID: id, Value: e.value, Revision: e.revision, Time: e.created, Stray: e.stray}
}

func (r *Records) key(id string) (string, error) {
	key := subject.Escape(id)
	if id == "" || len(key) > subject.MaxID {
		return "", fmt.Errorf("record id of %s: it has %d bytes when escaped, must have 1 to %d", r.name, len(key), subject.MaxID)
	}
	return key, nil
}

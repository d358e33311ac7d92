package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Records are raw records by id in one bucket. What is in a record is the
// caller's business; the id is any string of at most [subject.MaxID] bytes
// when escaped, and not empty.
//
// Revisions grow with every change of the bucket. Two writers that both read a
// record and both [Records.Update] it do not overwrite one another.
type Records struct {
	kvBucket
}

// A Record is one record at one revision.
type Record struct {
	ID       string
	Value    []byte
	Revision uint64
	Time     time.Time // when the server stored it

	// Stray says that an answer of the server's, which a user had sent here, covers the
	// record, and Value is not it (docs/threat-model.md, "Answers sent elsewhere").
	Stray bool
}

// NewKeys returns the public key records of m's mesh, by key id. It does no
// I/O.
func NewKeys(js natsjs.JetStream, m subject.Map) *Records {
	return &Records{kvBucket{js: js, name: BucketKeys + m.Suffix()}}
}

// Get returns a record, or [ErrNotFound]. Below a stray it looks for what the bucket's
// history has of the record, and returns that with the stray's revision.
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

// Put stores a record, whatever was there, and returns its revision.
func (r *Records) Put(ctx context.Context, id string, value []byte) (uint64, error) {
	key, err := r.key(id)
	if err != nil {
		return 0, err
	}
	rev, err := r.put(ctx, key, value)
	return rev, uncertain(r.explain(err, "put %q into %s", id, r.name))
}

// Create stores a record that must not be there yet, or fails with
// [ErrExists].
func (r *Records) Create(ctx context.Context, id string, value []byte) (uint64, error) {
	key, err := r.key(id)
	if err != nil {
		return 0, err
	}
	rev, err := r.create(ctx, key, value)
	if isWrongSequence(err) {
		return 0, fmt.Errorf("create %q in %s: %w", id, r.name, ErrExists)
	}
	return rev, uncertain(r.explain(err, "create %q in %s", id, r.name))
}

// Update stores a record in place of the one at a revision, or fails with
// [ErrChanged].
func (r *Records) Update(ctx context.Context, id string, value []byte, revision uint64) (uint64, error) {
	key, err := r.key(id)
	if err != nil {
		return 0, err
	}
	rev, err := r.update(ctx, key, value, revision)
	if isWrongSequence(err) {
		return 0, fmt.Errorf("update %q in %s: %w", id, r.name, ErrChanged)
	}
	return rev, uncertain(r.explain(err, "update %q in %s", id, r.name))
}

// Delete takes a record away; it is no error if there is none. The bucket's
// history keeps what it was.
func (r *Records) Delete(ctx context.Context, id string) error {
	key, err := r.key(id)
	if err != nil {
		return err
	}
	return uncertain(r.explain(r.remove(ctx, key, 0), "delete %q from %s", id, r.name))
}

// below is the newest revision of a key that a user wrote, as one at the revision of
// the stray that covers it; or [natsjs.ErrMsgNotFound].
func (r *Records) below(ctx context.Context, key string, stray uint64) (kvEntry, error) {
	kept, err := r.history(ctx, key)
	if err != nil {
		return kvEntry{}, err
	}
	e := kept[len(kept)-1]
	e.revision = stray
	return e, nil
}

// List returns all records, in the order in which they were last written, and the
// strays, with Stray set.
func (r *Records) List(ctx context.Context) ([]Record, error) {
	var all []Record
	_, err := r.read(ctx, func(id string, e kvEntry) {
		if e.stray || !e.gone {
			all = append(all, recordOf(id, e))
		}
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Watch calls fn with every record that there is, and from then on with every
// change, until ctx ends; then it returns nil. It looks every two seconds. Calls come
// one at a time, from the goroutine that called Watch.
//
// It survives reconnects, restarts of the server, and the loss and return of
// the bucket: it then reads the bucket anew, so that fn sees what changed
// meanwhile, deletions too, and may see records again that it has seen. A
// record is deleted for fn when it has neither value nor revision any more:
// fn(id, nil, true).
//
// Watch fails at once if the bucket is not there or may not be read, and
// later only when the connection is closed for good.
func (r *Records) Watch(ctx context.Context, fn func(id string, record []byte, deleted bool)) error {
	return r.watch(ctx, func(id string, e kvEntry) { fn(id, e.value, e.gone) }, nil)
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

package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	js     natsjs.JetStream
	bucket string

	mu sync.Mutex
	kv natsjs.KeyValue // a handle, fetched with the first use
}

// A Record is one record at one revision.
type Record struct {
	ID       string
	Value    []byte
	Revision uint64
	Time     time.Time // when the server stored it
}

// NewKeys returns the public key records of m's mesh, by key id. It does no
// I/O.
func NewKeys(js natsjs.JetStream, m subject.Map) *Records {
	return &Records{js: js, bucket: BucketKeys + m.Suffix()}
}

// NewRefuted returns the refutations of m's mesh, by envelope id. It does no
// I/O.
func NewRefuted(js natsjs.JetStream, m subject.Map) *Records {
	return &Records{js: js, bucket: BucketRefuted + m.Suffix()}
}

// Get returns a record, or [ErrNotFound].
func (r *Records) Get(ctx context.Context, id string) (Record, error) {
	kv, key, err := r.open(ctx, id)
	if err != nil {
		return Record{}, err
	}
	e, err := kv.Get(ctx, key)
	if err != nil {
		return Record{}, explain(r.js.Conn(), err, "get %q from %s", id, r.bucket)
	}
	return Record{ID: id, Value: e.Value(), Revision: e.Revision(), Time: e.Created()}, nil
}

// Put stores a record, whatever was there, and returns its revision.
func (r *Records) Put(ctx context.Context, id string, value []byte) (uint64, error) {
	kv, key, err := r.open(ctx, id)
	if err != nil {
		return 0, err
	}
	rev, err := kv.Put(ctx, key, value)
	return rev, uncertain(explain(r.js.Conn(), err, "put %q into %s", id, r.bucket))
}

// Create stores a record that must not be there yet, or fails with
// [ErrExists].
func (r *Records) Create(ctx context.Context, id string, value []byte) (uint64, error) {
	kv, key, err := r.open(ctx, id)
	if err != nil {
		return 0, err
	}
	rev, err := kv.Create(ctx, key, value)
	if errors.Is(err, natsjs.ErrKeyExists) {
		return 0, fmt.Errorf("create %q in %s: %w", id, r.bucket, ErrExists)
	}
	return rev, uncertain(explain(r.js.Conn(), err, "create %q in %s", id, r.bucket))
}

// Update stores a record in place of the one at a revision, or fails with
// [ErrChanged].
func (r *Records) Update(ctx context.Context, id string, value []byte, revision uint64) (uint64, error) {
	kv, key, err := r.open(ctx, id)
	if err != nil {
		return 0, err
	}
	rev, err := kv.Update(ctx, key, value, revision)
	if isWrongSequence(err) {
		return 0, fmt.Errorf("update %q in %s: %w", id, r.bucket, ErrChanged)
	}
	return rev, uncertain(explain(r.js.Conn(), err, "update %q in %s", id, r.bucket))
}

// Delete takes a record away; it is no error if there is none. The bucket's
// history keeps what it was.
func (r *Records) Delete(ctx context.Context, id string) error {
	kv, key, err := r.open(ctx, id)
	if err != nil {
		return err
	}
	return uncertain(explain(r.js.Conn(), kv.Delete(ctx, key), "delete %q from %s", id, r.bucket))
}

// List returns all records, in the order in which they were last written.
func (r *Records) List(ctx context.Context) ([]Record, error) {
	kv, err := r.handle(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	w, err := kv.WatchAll(ctx, natsjs.IgnoreDeletes())
	if err != nil {
		return nil, explain(r.js.Conn(), err, "list %s", r.bucket)
	}
	defer endWatcher(cancel, w)
	var all []Record
	for {
		select {
		case <-ctx.Done():
			return nil, explain(r.js.Conn(), ctx.Err(), "list %s", r.bucket)
		case e, ok := <-w.Updates():
			if !ok {
				return nil, fmt.Errorf("list %s: the server ended it", r.bucket)
			}
			if e == nil {
				return all, nil
			}
			if id, err := subject.Unescape(e.Key()); err == nil {
				all = append(all, Record{ID: id, Value: e.Value(), Revision: e.Revision(), Time: e.Created()})
			}
		}
	}
}

// requestTimeout bounds a request whose context has no deadline, as nats.go
// does.
const requestTimeout = 5 * time.Second

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, requestTimeout)
}

func (r *Records) open(ctx context.Context, id string) (natsjs.KeyValue, string, error) {
	key := subject.Escape(id)
	if id == "" || len(key) > subject.MaxID {
		return nil, "", fmt.Errorf("record id of %s: it has %d bytes when escaped, must have 1 to %d", r.bucket, len(key), subject.MaxID)
	}
	kv, err := r.handle(ctx)
	return kv, key, err
}

func (r *Records) handle(ctx context.Context) (natsjs.KeyValue, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kv == nil {
		kv, err := r.js.KeyValue(ctx, r.bucket)
		if err != nil {
			return nil, explain(r.js.Conn(), err, "open %s", r.bucket)
		}
		r.kv = kv
	}
	return r.kv, nil
}

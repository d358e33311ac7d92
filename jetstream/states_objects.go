package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/chunks"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
)

// MaxInline is the size in bytes of the largest document that is stored in [BucketState]
// itself.
const MaxInline = 256 << 10

// inlineMax is MaxInline, or less if the server's max_payload is smaller.
func inlineMax(conn *nats.Conn) int { return chunks.Most(conn, MaxInline) }

// An upload is the document of a record that is about to be stored.
type upload struct {
	name   string
	digest string
	stored chunks.Progress
	began  time.Time // when the first chunk was stored
	again  bool      // an earlier write may have stored a record that refers to it
}

// age returns how old the first chunk is, by the monotonic or the wall clock, whichever says more:
// the monotonic clock stops while a machine is suspended.
func (u upload) age() time.Duration {
	return max(time.Since(u.began), time.Now().Round(0).Sub(u.began.Round(0)))
}

// anew makes the next attempt store the whole document again, under the same name: a record may
// refer to it, and a sweep may have deleted it.
func (u *upload) anew() { u.stored, u.began = chunks.Progress{}, time.Now() }

// uploadAge is how long an upload whose record could not be stored is used for the next try. A
// sweep deletes objects that nothing refers to when they are ten minutes old.
const uploadAge = 5 * time.Minute

// putObject stores the document of a message as an object, and replaces it in the message by a
// reference. Each object has a random name, so writers cannot overwrite each other's. A retried
// write continues the object of the attempt before, which a fenced worker could not delete.
func (s *States) putObject(ctx context.Context, id state.ID, msg *nats.Msg, note Note) (upload, error) {
	key := stateKey(id)
	o := state.Object{Size: int64(len(msg.Data)), Digest: note.Digest}
	if o.Digest == "" {
		o.Digest = api.Digest(msg.Data)
	}
	u := s.uploads.take(key)
	switch old := u.age() > s.uploads.age; {
	case u.digest != o.Digest || old && !u.again:
		u = upload{name: s.object + key + "/" + rand.Text(), digest: o.Digest, began: time.Now()}
	case old:
		u.anew()
	}
	o.Name = u.name
	var err error
	uploading, cancel := context.WithDeadline(ctx, u.began.Add(s.uploads.age)) // before a sweep deletes the first chunk
	defer cancel()
	if u.stored, err = s.objects.WriteFrom(uploading, o.Name, msg.Data, u.stored); err != nil {
		s.uploads.keep(key, u)
		return u, api.Explain(s.js.Conn(), err, "store the document of run %s of %s", id.Run, id.Entity)
	}
	msg.Header[HeaderObject] = []string{o.Digest + " " + strconv.FormatInt(o.Size, 10) + " " + o.Name}
	if note.Header != nil {
		msg.Data, err = note.Header.Refer(o)
	} else {
		msg.Data, err = state.Refer(msg.Data, o)
	}
	if err != nil { // not a document of ours: the header is the only reference
		msg.Data = []byte("{}")
	}
	msg.Header.Set("Content-Type", "application/json")
	return u, nil
}

// storeAgain stores the document again if its record was stored late: while this process was
// suspended, a sweep may have found that nothing refers to the object. A sweep deletes no chunk
// that is stored after it has begun.
func (u upload) storeAgain(ctx context.Context, s *States, id state.ID, data []byte) error {
	err := s.objects.Write(ctx, u.name, data)
	return api.Uncertain(api.Explain(s.js.Conn(), err, "store the document of run %s of %s again", id.Run, id.Entity))
}

// settle keeps the upload of a record for the next try if the record could not be stored for now,
// and deletes it if no record refers to it. A write that was denied may be permitted the next time.
func (s *States) settle(ctx context.Context, id state.ID, u upload, err error) {
	switch {
	case err != nil && !errors.Is(err, state.ErrChanged) && (Away(err) || errors.Is(err, ErrDenied)):
		u.again = true
		if u.age() > s.uploads.age {
			u.anew()
		}
		s.uploads.keep(stateKey(id), u)
	case err != nil && !u.again:
		s.dropObject(ctx, u.name)
	}
}

// uploads are those of records that could not be stored for now, by key.
type uploads struct {
	mu   sync.Mutex
	kept map[string]upload
	age  time.Duration // [uploadAge]
}

// take returns the upload of a key that was kept, and forgets it.
func (u *uploads) take(key string) upload {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.kept[key]
	delete(u.kept, key)
	return one
}

func (u *uploads) keep(key string, one upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.kept, func(_ string, old upload) bool { return old.age() > u.age })
	if u.kept == nil {
		u.kept = map[string]upload{}
	}
	u.kept[key] = one
}

// objectOf returns the object that a message refers to.
func objectOf(h nats.Header) (state.Object, bool) {
	digest, rest, _ := strings.Cut(h.Get(HeaderObject), " ")
	size, name, ok := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(size, 10, 64)
	return state.Object{Name: name, Size: n, Digest: digest}, ok && err == nil && n >= 0 && name != "" && digest != ""
}

// dropObject deletes an object that no record refers to. If it fails, as without the
// permission, a sweep deletes the object later.
func (s *States) dropObject(ctx context.Context, name string) {
	if s.fenced.Load() {
		return
	}
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	_ = s.objects.Delete(ctx, name, 0)
}

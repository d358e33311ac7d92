package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/chunks"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
)

// Limits of the refutations of one envelope: their number (the newest ones that fit a message are
// kept) and the bytes of each.
const (
	MaxRefutations    = 32
	maxRefutationSize = 8 << 10
)

// Refutations stores, for all workers of an entity, the refutations of envelopes that it
// received: a short list of JSON values by envelope id, in [BucketRefuted], below the
// entity.
type Refutations struct{ kvBucket }

// NewRefutations returns the refutations of m's mesh. It does no I/O.
func NewRefutations(js natsjs.JetStream, m subject.Map) *Refutations {
	return &Refutations{kvBucket{js: js, name: BucketRefuted + m.Suffix()}}
}

// AddRefutation appends a refutation, a JSON value, to a list of them, and keeps the newest
// [MaxRefutations]. If it names its sender in "by", it replaces an earlier one of that sender, but one
// that was not "verified" none that was. The list is changed.
func AddRefutation(list []json.RawMessage, refutation []byte) []json.RawMessage {
	if one := refuterOf(refutation); one.By != "" {
		list = slices.DeleteFunc(list, func(r json.RawMessage) bool {
			old := refuterOf(r)
			return old.By == one.By && (one.Verified || !old.Verified)
		})
	}
	list = append(list, refutation)
	return list[max(0, len(list)-MaxRefutations):]
}

// A refuter is the sender of a refutation, and whether its signature was verified.
type refuter struct {
	By       string
	Verified bool // earlier releases did not write it, and ignore it
}

// refuterOf returns the sender of a refutation; "" if it names none.
func refuterOf(refutation []byte) (r refuter) {
	_ = json.Unmarshal(refutation, &r) // a value of another form names none
	return r
}

// Add adds a refutation to those that the entity received for an envelope id, as [AddRefutation]
// does. Concurrent writers do not overwrite each other.
func (r *Refutations) Add(ctx context.Context, entity, id string, refutation []byte) error {
	if len(refutation) > maxRefutationSize {
		return fmt.Errorf("refutation of %q has %d bytes, at most %d are kept", id, len(refutation), maxRefutationSize)
	}
	key := refutedKey(entity, id)
	for wait := time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		have, err := r.last(ctx, key)
		if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) {
			return r.explain(err, "read the refutations of %q", id)
		}
		var list []json.RawMessage
		if !have.gone {
			list, _ = decodeList(have.value) // a value that is not a list is not ours: replace it
		}
		list = AddRefutation(list, refutation)
		raw, err := json.Marshal(list)
		for most := chunks.Most(r.js.Conn(), math.MaxInt); err == nil && len(raw) > most && len(list) > 1; {
			list = list[1:]
			raw, err = json.Marshal(list)
		}
		if err != nil {
			return fmt.Errorf("refutation of %q: %w", id, err)
		}
		if _, err = r.update(ctx, key, raw, have.revision); !api.IsWrongSequence(err) {
			return api.Uncertain(r.explain(err, "store a refutation of %q", id))
		}
		if !pause.For(ctx, wait) { // another writer was faster, or a replica is behind
			return fmt.Errorf("store a refutation of %q: %w", id, ctx.Err())
		}
	}
}

// List returns the refutations of an envelope id that the entity received, the oldest
// first; nil if there are none.
func (r *Refutations) List(ctx context.Context, entity, id string) ([][]byte, error) {
	have, err := r.get(ctx, refutedKey(entity, id))
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, r.explain(err, "read the refutations of %q", id)
	}
	list, err := decodeList(have.value)
	if err != nil {
		return nil, fmt.Errorf("refutations of %q: %w", id, err)
	}
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = raw
	}
	return out, nil
}

// refutedKey returns the key of an envelope's refutations. An id that is too long for a
// key is hashed.
func refutedKey(entity, id string) string {
	token := subject.Escape(id)
	if len(token) > subject.MaxID {
		sum := sha256.Sum256([]byte(id))
		token = "=" + hex.EncodeToString(sum[:])
	}
	return subject.Escape(entity) + "." + token
}

func decodeList(raw []byte) (list []json.RawMessage, err error) {
	if len(raw) > 0 {
		err = json.Unmarshal(raw, &list)
	}
	return list, err
}

package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/mesh/subject"
)

// What is kept about one envelope: so many refutations, of which the newest
// stay, each of so many bytes.
const (
	maxRefutations    = 32
	maxRefutationSize = 8 << 10
)

// Refutations remembers, for the whole mesh, what was said against envelopes:
// a short list of JSON values by envelope id, in [BucketRefuted].
type Refutations struct{ records *Records }

// NewRefutations returns the refutations of m's mesh. It does no I/O.
func NewRefutations(js natsjs.JetStream, m subject.Map) *Refutations {
	return &Refutations{NewRefuted(js, m)}
}

// Add appends a JSON value to what was said against the envelope id. Writers
// that add at once do not lose one another's.
func (r *Refutations) Add(ctx context.Context, id string, refutation []byte) error {
	if len(refutation) > maxRefutationSize {
		return fmt.Errorf("refutation of %q has %d bytes, at most %d are kept", id, len(refutation), maxRefutationSize)
	}
	for {
		have, err := r.records.Get(ctx, id)
		missing := errors.Is(err, ErrNotFound)
		if err != nil && !missing {
			return err
		}
		list, err := decodeList(have.Value)
		if err != nil {
			return fmt.Errorf("refutations of %q: %w", id, err)
		}
		list = append(list, refutation)
		raw, err := json.Marshal(list[max(0, len(list)-maxRefutations):])
		if err != nil {
			return fmt.Errorf("refutation of %q: %w", id, err)
		}
		if missing {
			_, err = r.records.Create(ctx, id, raw)
		} else {
			_, err = r.records.Update(ctx, id, raw, have.Revision)
		}
		if !errors.Is(err, ErrExists) && !errors.Is(err, ErrChanged) {
			return err
		}
	}
}

// List returns what was said against the envelope id, the oldest first; nil if
// nothing was.
func (r *Refutations) List(ctx context.Context, id string) ([][]byte, error) {
	have, err := r.records.Get(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := decodeList(have.Value)
	if err != nil {
		return nil, fmt.Errorf("refutations of %q: %w", id, err)
	}
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = raw
	}
	return out, nil
}

func decodeList(raw []byte) (list []json.RawMessage, err error) {
	if len(raw) > 0 {
		err = json.Unmarshal(raw, &list)
	}
	return list, err
}

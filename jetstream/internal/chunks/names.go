package chunks

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// The names of handoff objects begin with HandoffPrefix. In the subjects of their chunks
// handoffMark stands instead: no escaped entity begins with it.
const (
	HandoffPrefix = "handoff/"
	handoffMark   = "=handoff."
)

// chunk returns the subject of one chunk of an object, or with "*" of all its chunks. An
// object has the name <entity>.<run>/<token>, with a prefix for handoffs.
func (s *Store) chunk(name, n string) string {
	if rest, ok := strings.CutPrefix(name, HandoffPrefix); ok {
		name = handoffMark + rest
	}
	return s.prefix() + strings.ReplaceAll(name, "/", ".") + "." + n
}

// NameAt returns the name of the object that a chunk's subject belongs to.
func (s *Store) NameAt(subj string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(subj, s.prefix())
	if !ok {
		return "", false
	}
	i := strings.LastIndexByte(rest, '.')
	if i < 0 {
		return "", false // of a release that stored objects as nats.go does
	}
	if rest = rest[:i]; strings.LastIndexByte(rest, '.') < 0 {
		return "", false
	}
	i = strings.LastIndexByte(rest, '.')
	name = rest[:i] + "/" + rest[i+1:]
	if of, ok := strings.CutPrefix(name, handoffMark); ok {
		name = HandoffPrefix + of
	}
	return name, true
}

// All returns the names of all objects, each with the subject of one of its chunks.
func (s *Store) All(ctx context.Context) (map[string]string, error) {
	subjects, err := api.Subjects(ctx, s.js, s.Stream(), s.prefix()+">")
	if err != nil {
		return nil, fmt.Errorf("list objects: %w", err)
	}
	names := map[string]string{}
	for subj := range subjects {
		if name, ok := s.NameAt(subj); ok {
			names[name] = subj
		}
	}
	return names, nil
}

// Written returns when a chunk was stored, or [natsjs.ErrMsgNotFound].
func (s *Store) Written(ctx context.Context, subj string) (time.Time, error) {
	chunk, err := api.Newest(ctx, s.js, s.Stream(), subj)
	return chunk.Time, err
}

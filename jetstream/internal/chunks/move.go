package chunks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/state"
)

// Move rewrites the objects of releases before topology 5 in the current layout,
// and deletes the old ones.
func (s *Store) Move(ctx context.Context) error {
	metas := "$O." + s.bucket + ".M."
	for m, err := range api.Scan(ctx, s.js, s.Stream(), metas+"*", 1) {
		if err != nil {
			return fmt.Errorf("move objects: %w", err)
		}
		o, ok := oldObject(m.Data)
		if !ok {
			continue // not ours, or deleted
		}
		data, err := s.readOldOfLeader(ctx, o)
		if err != nil {
			return fmt.Errorf("move object %s: %w", o.Name, err)
		}
		if int64(len(data)) == o.Size { // otherwise its writer crashed
			if err := s.Write(ctx, o.Name, data); err != nil {
				return fmt.Errorf("move object %s: %w", o.Name, err)
			}
		}
		for _, filter := range []string{m.Subject, s.prefix() + o.Name[strings.LastIndexByte(o.Name, '/')+1:]} {
			if _, err := (api.Purge{Filter: filter}).Do(ctx, s.js, s.Stream()); err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) {
				return api.Explain(s.js.Conn(), err, "delete the old object %s", o.Name)
			}
		}
	}
	return nil
}

// readOld reads a document of a release before topology 5, which stored objects as
// nats.go does. The migration to topology 5 moves them; until then only a user who may
// read the whole store can read them.
func (s *Store) readOld(ctx context.Context, o state.Object) (data []byte, err error) {
	token := o.Name[strings.LastIndexByte(o.Name, '/')+1:]
	for m, err := range api.Scan(ctx, s.js, s.Stream(), s.prefix()+token, 1) {
		if errors.Is(err, api.ErrDenied) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if data = append(data, m.Data...); int64(len(data)) > o.Size {
			break
		}
	}
	return data, nil
}

// readOldOfLeader is readOld by requests to the stream's leader, which has every chunk that is
// stored.
func (s *Store) readOldOfLeader(ctx context.Context, o state.Object) (data []byte, err error) {
	subj := s.prefix() + o.Name[strings.LastIndexByte(o.Name, '/')+1:]
	for seq := uint64(1); int64(len(data)) <= o.Size; {
		m, err := api.LeaderGet(ctx, s.js, s.Stream(), map[string]any{"seq": seq, "next_by_subj": subj})
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			return data, nil
		}
		if err != nil {
			return nil, api.Explain(s.js.Conn(), err, "read %s", s.Stream())
		}
		if m.Genuine() {
			data = append(data, m.Data...)
		}
		seq = m.Seq + 1
	}
	return data, nil
}

// oldObject decodes the metadata that nats.go's object stores keep of an object.
func oldObject(meta []byte) (state.Object, bool) {
	var info natsjs.ObjectInfo
	if err := json.Unmarshal(meta, &info); err != nil || info.Deleted || !strings.Contains(info.Name, "/") {
		return state.Object{}, false
	}
	return state.Object{Name: info.Name, Size: int64(info.Size)}, true
}

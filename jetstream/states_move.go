package jetstream

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

// moveObjects rewrites the objects of releases before topology 5 in the current layout,
// and deletes the old ones.
func (s *States) moveObjects(ctx context.Context) error {
	metas := "$O." + ObjectsState + s.m.Suffix() + ".M."
	for m, err := range api.Scan(ctx, s.js, s.objectStream(), metas+"*", 1) {
		if err != nil {
			return fmt.Errorf("move objects: %w", err)
		}
		o, ok := oldObject(m.Data)
		if !ok {
			continue // not ours, or deleted
		}
		data, err := s.readOldChunks(ctx, o)
		if err != nil {
			return fmt.Errorf("move object %s: %w", o.Name, err)
		}
		if int64(len(data)) == o.Size { // otherwise its writer crashed
			if err := s.writeObject(ctx, o.Name, data); err != nil {
				return fmt.Errorf("move object %s: %w", o.Name, err)
			}
		}
		for _, filter := range []string{m.Subject, s.chunks() + o.Name[strings.LastIndexByte(o.Name, '/')+1:]} {
			if err := api.Request(ctx, s.js, "STREAM.PURGE."+s.objectStream(), map[string]string{"filter": filter}, nil); err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) {
				return api.Explain(s.js.Conn(), err, "delete the old object %s", o.Name)
			}
		}
	}
	return nil
}

// oldObject decodes the metadata that nats.go's object stores keep of an object.
func oldObject(meta []byte) (state.Object, bool) {
	var info natsjs.ObjectInfo
	if err := json.Unmarshal(meta, &info); err != nil || info.Deleted || !strings.Contains(info.Name, "/") {
		return state.Object{}, false
	}
	return state.Object{Name: info.Name, Size: int64(info.Size)}, true
}

package jetstream

import (
	"context"
	"strings"
)

// heldObjects says which runs have objects.
type heldObjects struct {
	of      map[string]int // how many a run has, by its key
	average uint64         // of the sizes of all objects
	last    uint64         // of what is stored after this sequence nothing is deleted
}

// heldObjects lists the objects of the runs in a store that was looked at before.
func (s *States) heldObjects(ctx context.Context, store usage) (heldObjects, error) {
	names, err := s.objects.All(ctx)
	if err != nil {
		return heldObjects{}, err
	}
	held := heldObjects{of: map[string]int{}, average: store.bytes / uint64(max(1, len(names))), last: store.last}
	for name := range names {
		if key, ours := s.keyOfObject(name); ours {
			held.of[key]++
		}
	}
	return held, nil
}

// keyOfObject returns the key of the run that an object belongs to.
func (s *States) keyOfObject(name string) (key string, ours bool) {
	rest, ours := strings.CutPrefix(name, s.object)
	key, _, _ = strings.Cut(rest, "/")
	_, err := stateID(key)
	return key, ours && err == nil
}

// bytes estimates how many bytes the objects of a run have: most often too many, because
// documents grow.
func (h heldObjects) bytes(m stateMessage) uint64 {
	each := h.average
	if o, ok := objectOf(m.Header); ok {
		each = max(each, uint64(o.Size))
	}
	return uint64(h.of[stateKey(m.id)]) * each
}

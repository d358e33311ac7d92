package state

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/go-json-experiment/json/jsontext"
)

// texts caches what [Codec.Encode] wrote of those parts of a checkpoint that grow large
// and rarely change: from one checkpoint of a run to the next, a conversation gains a
// message or two at its end. A cached text is used only if the part itself is unchanged,
// so no invalidation is needed. Comparing a string that was not replaced only compares
// pointers.
//
// Clones share it, and may be encoded concurrently.
type texts struct {
	mu       sync.Mutex
	messages list[aaif.Message]
	memories list[aaif.MemoryItem]
	raws     map[rawKey]*rawText
}

// A list is the cached text of an array. It has no methods, because each package that uses a
// Checkpoint would compile them again.
type list[T comparable] struct {
	items []T
	ends  []int // of each item in text
	text  []byte
}

// writeList writes the member f, a list of objects with the given fields, unless it is empty.
// size estimates the length of an item's text.
func writeList[T comparable](l *list[T], w *writer, f *field, items []T, members fields, size func(*T) int) {
	if len(items) == 0 {
		return
	}
	w.name(f.name)
	w.b = append(w.b, '[')
	w.fail(f.path, appendList(l, &w.b, items, members, size))
	w.b = append(w.b, ']')
}

// appendList writes items to dst with commas between them.
func appendList[T comparable](l *list[T], dst *[]byte, items []T, members fields, size func(*T) int) error {
	same := 0
	for same < len(items) && same < len(l.items) && items[same] == l.items[same] {
		same++
	}
	l.items, l.ends = l.items[:same], l.ends[:same]
	l.text = l.text[:0:cap(l.text)]
	if same > 0 {
		l.text = l.text[:l.ends[same-1]]
	}
	more := 0
	for i := same; i < len(items); i++ {
		more += size(&items[i])
	}
	w := writer{b: slices.Grow(l.text, more)} // a long list would be copied several times
	for i := same; i < len(items); i++ {
		if len(w.b) > 0 {
			w.b = append(w.b, ',')
		}
		w.begin()
		w.members(members, reflect.ValueOf(&items[i]).Elem(), nil)
		if w.end(); w.err != nil {
			return w.err // the partial text is beyond the last of ends
		}
		l.items, l.ends = append(l.items, items[i]), append(l.ends, len(w.b))
	}
	l.text = w.b
	*dst = append(slices.Grow(*dst, len(l.text)+spare), l.text...)
	return nil
}

// spare is the usual length of a document without its lists.
const spare = 2048

func messageSize(m *aaif.Message) int {
	return len(m.Content) + len(m.ToolCallID) + len(m.ToolName) + 128
}

func memorySize(m *aaif.MemoryItem) int { return len(m.Key) + len(m.Content) + 128 }

// A rawKey is a raw JSON value and the way in which it is written.
type rawKey struct {
	source string
	quoted bool
}

// A rawText is the cached text of a raw JSON value.
type rawText struct {
	text []byte
	used bool // by the current encoding
}

// worthKeeping is the size from which a raw value is cached. A smaller one is as cheap to
// encode again as to look up.
const worthKeeping = 512

// cached writes v, as a string with its text or in canonical form, or from the cache if
// the same value has been written before.
func (w *writer) cached(path string, v json.RawMessage, quoted bool) {
	write := (*writer).canonical
	if quoted {
		write = (*writer).quote
	}
	t := w.cache
	if t == nil || len(v) < worthKeeping {
		write(w, path, jsontext.Value(v))
		return
	}
	if r := t.raws[rawKey{string(v), quoted}]; r != nil {
		r.used = true
		w.b = append(w.b, r.text...)
		return
	}
	from := len(w.b)
	write(w, path, jsontext.Value(v))
	if w.err != nil {
		return
	}
	if t.raws == nil {
		t.raws = make(map[rawKey]*rawText)
	}
	t.raws[rawKey{string(v), quoted}] = &rawText{text: bytes.Clone(w.b[from:]), used: true}
}

// forget drops the raw values that the last encoding did not use.
func (t *texts) forget() {
	for key, r := range t.raws {
		if !r.used {
			delete(t.raws, key)
		}
		r.used = false
	}
}

// size estimates the length of a document with these parts.
func (t *texts) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := spare + len(t.messages.text) + len(t.memories.text)
	for _, r := range t.raws {
		n += len(r.text)
	}
	return n
}

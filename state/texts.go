package state

import (
	"bytes"
	"encoding/json"
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
	raws     map[string]rawText
}

// A list is the cached text of an array.
type list[T comparable] struct {
	items []T
	ends  []int // of each item in text
	text  []byte
}

// append writes items to dst with commas between them; write encodes one item.
func (l *list[T]) append(dst *[]byte, items []T, write func(*writer, T)) error {
	same := 0
	for same < len(items) && same < len(l.items) && items[same] == l.items[same] {
		same++
	}
	l.items, l.ends = l.items[:same], l.ends[:same]
	l.text = l.text[:0:cap(l.text)]
	if same > 0 {
		l.text = l.text[:l.ends[same-1]]
	}
	w := writer{b: l.text}
	for _, item := range items[same:] {
		if len(w.b) > 0 {
			w.b = append(w.b, ',')
		}
		if write(&w, item); w.err != nil {
			return w.err // the partial text is beyond the last of ends
		}
		l.items, l.ends = append(l.items, item), append(l.ends, len(w.b))
	}
	l.text = w.b
	*dst = append(*dst, l.text...)
	return nil
}

// A rawText is the cached text of a raw JSON value.
type rawText struct {
	source, text []byte
	used         bool // by the current encoding
}

// worthKeeping is the size from which a raw value is cached. A smaller one is as cheap to
// encode again as to look up.
const worthKeeping = 512

// cached writes v by write, or from the cache if write has encoded the same value before.
func (w *writer) cached(slot string, v json.RawMessage, t *texts, write func(*writer, string, jsontext.Value)) {
	if t == nil || len(v) < worthKeeping {
		write(w, slot, jsontext.Value(v))
		return
	}
	if r, ok := t.raws[slot]; ok && bytes.Equal(r.source, v) {
		r.used = true
		t.raws[slot] = r
		w.b = append(w.b, r.text...)
		return
	}
	from := len(w.b)
	write(w, slot, jsontext.Value(v))
	if w.err != nil {
		return
	}
	if t.raws == nil {
		t.raws = make(map[string]rawText)
	}
	t.raws[slot] = rawText{source: bytes.Clone(v), text: bytes.Clone(w.b[from:]), used: true}
}

// forget drops the raw values that the last encoding did not use.
func (t *texts) forget() {
	for slot, r := range t.raws {
		if !r.used {
			delete(t.raws, slot)
			continue
		}
		r.used = false
		t.raws[slot] = r
	}
}

// size estimates the length of a document with these parts.
func (t *texts) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 2048 + len(t.messages.text) + len(t.memories.text)
	for _, r := range t.raws {
		n += len(r.text)
	}
	return n
}

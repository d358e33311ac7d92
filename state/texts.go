package state

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/go-json-experiment/json/jsontext"
)

// texts remembers what [Codec.Encode] wrote of the parts of a checkpoint that
// grow large and rarely change: from one checkpoint of a run to the next, a
// conversation gains a message or two at its end. What is remembered is used
// only where the part itself is still the same, so nobody has to say what has
// changed. For a string that nobody replaced, the comparison is one of
// pointers.
//
// Clones share it, and may be encoded at once.
type texts struct {
	mu       sync.Mutex
	messages list[aaif.Message]
	memories list[aaif.MemoryItem]
	raws     map[string]rawText
}

// A list is what was written of an array.
type list[T comparable] struct {
	items []T
	ends  []int // of each item in text
	text  []byte
}

// append writes items to dst, each by write, with commas between them.
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
			return w.err // what was written of it is beyond the last of ends
		}
		l.items, l.ends = append(l.items, item), append(l.ends, len(w.b))
	}
	l.text = w.b
	*dst = append(*dst, l.text...)
	return nil
}

// A rawText is what was written of a raw JSON value.
type rawText struct {
	source, text []byte
	used         bool // by the encoding under way
}

// worthKeeping is the size from which a raw value is remembered. Below it,
// writing it anew costs no more than looking it up.
const worthKeeping = 512

// cached writes v by write, or what that has written of the same value before.
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

// forget drops the raw values that the last encoding did not have.
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

// size is about how long a document with these parts is.
func (t *texts) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 2048 + len(t.messages.text) + len(t.memories.text)
	for _, r := range t.raws {
		n += len(r.text)
	}
	return n
}

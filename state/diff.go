package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A Change is one difference between two checkpoints.
type Change struct {
	// Path is a JSON Pointer (RFC 6901) into the document. JSON that the document holds
	// as a string, such as the task, is compared member by member.
	Path string `json:"path"`
	// From and To are the old and the new value; nil if there is none.
	From json.RawMessage `json:"from,omitempty"`
	To   json.RawMessage `json:"to,omitempty"`
}

// String returns the change on one line, long values cut.
func (c Change) String() string {
	const most = 160
	path := oneLine(c.Path)
	switch {
	case c.From == nil:
		return "+ " + path + ": " + clip.Text(oneLine(string(c.To)), most)
	case c.To == nil:
		return "- " + path + ": " + clip.Text(oneLine(string(c.From)), most)
	}
	return "~ " + path + ": " + clip.Text(oneLine(string(c.From)), most/2) + " -> " + clip.Text(oneLine(string(c.To)), most/2)
}

// Diff returns the differences of b from a, in the order of the document's members. It
// leaves out what differs between any two checkpoints: state_id, checkpoint_at and the
// checksum.
func Diff(a, b *Checkpoint) ([]Change, error) {
	from, err := a.tree()
	if err != nil {
		return nil, err
	}
	to, err := b.tree()
	if err != nil {
		return nil, err
	}
	var d differ
	d.values("", from, to)
	return d.changes, d.err
}

// tree decodes the document, and the strings in it that contain JSON.
func (c *Checkpoint) tree() (any, error) {
	c = c.Clone()
	c.Mesh.Trail = nil // the trail is derived from the state_ids
	for _, text := range []*string{&c.Doc.StateID, &c.Doc.CheckpointAt} {
		if *text == "" {
			*text = "-" // so that a checkpoint that was not captured yet can be compared
		}
	}
	text, err := Codec{MaxBytes: 1 << 30}.Marshal(c)
	if err != nil {
		return nil, err
	}
	v, err := readTree(text)
	if err != nil {
		return nil, err
	}
	doc := v.(map[string]any)
	delete(doc, "state_id")
	delete(doc, "checkpoint_at")
	delete(doc["provenance"].(map[string]any), "checksum")
	if mesh, ok := doc[Extension].(map[string]any); ok {
		unfold(mesh, "task", "reply", "loop", "plan")
		for _, e := range objects(mesh["effects"]) {
			unfold(e, "result")
		}
		for _, n := range objects(mesh["notes"]) {
			unfold(n, "provider")
			for _, call := range objects(n["calls"]) {
				unfold(call, "arguments")
			}
		}
	}
	return doc, nil
}

func readTree(text []byte) (any, error) {
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber() // keep every digit
	var v any
	err := dec.Decode(&v)
	return v, err
}

func unfold(object map[string]any, names ...string) {
	for _, name := range names {
		if s, ok := object[name].(string); ok {
			if v, err := readTree([]byte(s)); err == nil {
				object[name] = v
			}
		}
	}
}

func objects(v any) []map[string]any {
	var all []map[string]any
	items, _ := v.([]any)
	for _, item := range items {
		if o, ok := item.(map[string]any); ok {
			all = append(all, o)
		}
	}
	return all
}

// A differ collects changes.
type differ struct {
	changes []Change
	err     error
}

func (d *differ) values(path string, from, to any) {
	switch a := from.(type) {
	case map[string]any:
		if b, ok := to.(map[string]any); ok {
			d.members(path, a, b)
			return
		}
	case []any:
		if b, ok := to.([]any); ok {
			d.items(path, a, b)
			return
		}
	}
	if !reflect.DeepEqual(from, to) {
		d.add(path, d.raw(from), d.raw(to))
	}
}

func (d *differ) members(path string, a, b map[string]any) {
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := string(jsontext.Pointer(path).AppendToken(name))
		from, was := a[name]
		to, is := b[name]
		switch {
		case !was:
			d.add(at, nil, d.raw(to))
		case !is:
			d.add(at, d.raw(from), nil)
		default:
			d.values(at, from, to)
		}
	}
}

// items compares arrays element by element. Conversations and ledgers grow at their end,
// so a finer comparison would find no more.
func (d *differ) items(path string, a, b []any) {
	for i := range max(len(a), len(b)) {
		at := path + "/" + strconv.Itoa(i)
		switch {
		case i >= len(a):
			d.add(at, nil, d.raw(b[i]))
		case i >= len(b):
			d.add(at, d.raw(a[i]), nil)
		default:
			d.values(at, a[i], b[i])
		}
	}
}

func (d *differ) add(path string, from, to json.RawMessage) {
	d.changes = append(d.changes, Change{Path: path, From: from, To: to})
}

func (d *differ) raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("compare checkpoints: %w", err)
	}
	return b
}

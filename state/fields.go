package state

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/go-json-experiment/json/jsontext"
)

// fields describe how a struct is written: its members in the order of RFC 8785, as its
// json tags name them. The tags also serve the decoder, so a field cannot be written
// under one name and read under another.
//
// A zero value is left out if its tag says so (omitempty or omitzero). Empty lists, zero
// times, durations below a millisecond and quoted raw values that are nil are always left out.
type fields []field

type field struct {
	name   string
	path   string // the name, after those of the enclosing objects, for errors
	index  int    // in the struct
	put    func(w *writer, f *field, v reflect.Value)
	absent func(v reflect.Value) bool // whether the member is left out
}

// The structs of a document, and of those parts of it that are written on their own.
var (
	stateFields   = fieldsOf(reflect.TypeFor[aaif.State](), false, "")
	messageFields = fieldsOf(reflect.TypeFor[aaif.Message](), false, "")
	memoryFields  = fieldsOf(reflect.TypeFor[aaif.MemoryItem](), false, "")
	meshFields    = fieldsOf(reflect.TypeFor[Mesh](), true, Extension+" ")
)

// fieldsOf returns the fields of a struct. quoted: its raw JSON values, and those of the
// structs in it, are written as strings. path is put before the names in errors.
func fieldsOf(t reflect.Type, quoted bool, path string) fields {
	var all fields
	for i := range t.NumField() {
		sf := t.Field(i)
		name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "" { // a field without a name of its own, whose members the caller writes
			continue
		}
		f := field{name: name, path: path + name, index: i, put: putOf(sf.Type, quoted, path+name), absent: reflect.Value.IsZero}
		switch {
		case sf.Type == timeType:
			f.absent = func(v reflect.Value) bool { return timeOf(v).IsZero() }
		case sf.Type == durationType:
			f.absent = func(v reflect.Value) bool { return v.Int()/int64(time.Millisecond) == 0 }
		case sf.Type == rawType && quoted: // left out if nil
		case sf.Type.Kind() == reflect.Slice && sf.Type != rawType:
			f.absent = func(v reflect.Value) bool { return v.Len() == 0 }
		case !strings.Contains(options, "omit"):
			f.absent = func(reflect.Value) bool { return false }
		}
		all = append(all, f)
	}
	sorted.By(all, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return all
}

var (
	rawType      = reflect.TypeFor[json.RawMessage]()
	numberType   = reflect.TypeFor[aaif.Number]()
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
)

func timeOf(v reflect.Value) time.Time { return *v.Addr().Interface().(*time.Time) }

// putOf returns what writes values of a type.
func putOf(t reflect.Type, quoted bool, path string) func(*writer, *field, reflect.Value) {
	switch t {
	case rawType:
		if quoted {
			return func(w *writer, f *field, v reflect.Value) { w.cached(f.path, v.Bytes(), true) }
		}
		return putCanonical
	case numberType:
		return func(w *writer, f *field, v reflect.Value) { w.canonical(f.path, jsontext.Value(v.String())) }
	case timeType:
		return func(w *writer, _ *field, v reflect.Value) { w.time(timeOf(v)) }
	case durationType:
		return func(w *writer, f *field, v reflect.Value) { w.int(f.path, v.Int()/int64(time.Millisecond)) }
	}
	switch t.Kind() {
	case reflect.String:
		return func(w *writer, _ *field, v reflect.Value) { w.string(v.String()) }
	case reflect.Bool:
		return func(w *writer, _ *field, v reflect.Value) { w.b = strconv.AppendBool(w.b, v.Bool()) }
	case reflect.Int, reflect.Int64:
		return func(w *writer, f *field, v reflect.Value) { w.int(f.path, v.Int()) }
	case reflect.Uint64:
		return func(w *writer, f *field, v reflect.Value) { w.uint(f.path, v.Uint()) }
	case reflect.Pointer:
		elem := putOf(t.Elem(), quoted, path)
		return func(w *writer, f *field, v reflect.Value) { elem(w, f, v.Elem()) }
	case reflect.Slice:
		elem := putOf(t.Elem(), quoted, path)
		return func(w *writer, f *field, v reflect.Value) {
			w.b = append(w.b, '[')
			for i := range v.Len() {
				w.comma()
				elem(w, f, v.Index(i))
			}
			w.b = append(w.b, ']')
		}
	case reflect.Struct:
		members := fieldsOf(t, quoted, path+" ")
		return func(w *writer, _ *field, v reflect.Value) {
			w.begin()
			w.members(members, v, nil)
			w.end()
		}
	}
	panic("state: " + path + " cannot be written: " + t.String())
}

// putCanonical writes a raw value of the specification's fields in canonical form. Only
// the output of a subagent may be another value than an object.
func putCanonical(w *writer, f *field, v reflect.Value) {
	if f.name != "output" && jsontext.Value(v.Bytes()).Kind() != '{' {
		w.fail(f.path, errNotObject)
	}
	w.cached(f.path, v.Bytes(), false)
}

// members writes the members of a struct, which must be addressable. If instead is not nil, it is
// called before each field: it may write members that come before the field, and it reports
// whether it has handled the field.
func (w *writer) members(all fields, v reflect.Value, instead func(*field) bool) {
	for i := range all {
		f := &all[i]
		if instead != nil && instead(f) {
			continue
		}
		if v := v.Field(f.index); !f.absent(v) {
			w.name(f.name)
			f.put(w, f, v)
		}
	}
}

package tool

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// exactNames returns an error if encoding/json, which compares names without regard to case, gives
// a member of a JSON value to a field of a Go type that has another name. A schema compares names
// exactly: "PATH" would evade what it demands of "path". A field without a tag has no name of its
// own in JSON, so any case is accepted, but only one member may match it.
func exactNames(raw json.RawMessage, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	p := reflect.PointerTo(t)
	if p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil { // text, for []byte
			return nil
		}
		for _, item := range items {
			if err := exactNames(item, t.Elem()); err != nil {
				return err
			}
		}
	case reflect.Struct, reflect.Map:
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return err
		}
		if t.Kind() == reflect.Struct {
			return exactMembers(members, reflect.VisibleFields(t))
		}
		for _, value := range members {
			if err := exactNames(value, t.Elem()); err != nil {
				return err
			}
		}
	}
	return nil
}

func exactMembers(members map[string]json.RawMessage, fields []reflect.StructField) error {
	meant := map[string]string{} // the member that was given to a field
	for name, value := range members {
		f, tag := fieldOf(name, fields)
		if f == nil {
			continue
		}
		if tag != "" && tag != name {
			return fmt.Errorf("unknown field %q: its name is %q", name, tag)
		}
		if other, ok := meant[f.Name]; ok {
			return fmt.Errorf("%q and %q are the same field", min(name, other), max(name, other))
		}
		meant[f.Name] = name
		if err := exactNames(value, f.Type); err != nil {
			return err
		}
	}
	return nil
}

// fieldOf returns the field that encoding/json chooses for a name, and the name in its tag.
func fieldOf(name string, fields []reflect.StructField) (found *reflect.StructField, tag string) {
	for i, f := range fields {
		its, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || f.Tag.Get("json") == "-" || f.Anonymous && its == "":
		case its == name || its == "" && f.Name == name:
			return &fields[i], its
		case found == nil && (strings.EqualFold(its, name) || its == "" && strings.EqualFold(f.Name, name)):
			found, tag = &fields[i], its
		}
	}
	return found, tag
}

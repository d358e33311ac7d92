package adapters

import (
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// didYouMean is a hint with the member that was most likely meant by an unknown
// name in the configuration; "" if no member is similar.
func didYouMean(at jsontext.Pointer) string {
	near := aaif.Nearest(at.LastToken(), membersAt(reflect.TypeFor[Config](), at.Parent()))
	if near == "" {
		return ""
	}
	return " (did you mean " + near + "?)"
}

// membersAt returns the names of the members of the object at a place of the
// configuration; none if any name is allowed there.
func membersAt(t reflect.Type, at jsontext.Pointer) []string {
	for token := range at.Tokens() {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Map, reflect.Slice, reflect.Array:
			t = t.Elem()
			continue
		case reflect.Struct:
		default:
			return nil
		}
		found := false
		for i := range t.NumField() {
			if f := t.Field(i); memberName(f) == token {
				t, found = f.Type, true
				break
			}
		}
		if !found {
			return nil
		}
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for i := range t.NumField() {
		if name := memberName(t.Field(i)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// memberName returns a field's name in the file; "" if it is not in the file.
func memberName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" || !f.IsExported() {
		return ""
	}
	return name
}

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
	if t = typeAt(t, at); t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return members(t)
}

// typeAt returns the type of the value at a place of the configuration, without
// pointers; nil if there can be none.
func typeAt(t reflect.Type, at jsontext.Pointer) reflect.Type {
	for token := range at.Tokens() {
		if t = below(t, token); t == nil {
			return nil
		}
	}
	return pointed(t)
}

// below returns the type of a member or an element.
func below(t reflect.Type, token string) reflect.Type {
	switch t = pointed(t); t.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array:
		return t.Elem()
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); memberName(f) == token {
				return f.Type
			}
		}
	}
	return nil
}

func pointed(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func members(t reflect.Type) []string {
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

package adapters

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// Problem is a mistake at one place of a configuration.
type Problem struct {
	Pointer      string // of the place (RFC 6901); "": the file as a whole
	Line, Column int    // in the file, from 1; 0: not known
	Message      string // begins with the pointer, if there is one
	Err          error  // the error behind it; may be nil
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return "configuration: " + p.Message
	}
	return fmt.Sprintf("configuration: %d:%d: %s", p.Line, p.Column, p.Message)
}

// Unwrap returns Err.
func (p *Problem) Unwrap() error { return p.Err }

// placer returns the line and column of the value that a JSON pointer names; 0, 0 if
// the file has none.
type placer func(pointer string) (line, column int)

// problems collects the problems of a configuration.
type problems struct {
	place placer
	all   []*Problem
}

// add notes a message about the value at a pointer.
func (ps *problems) add(at jsontext.Pointer, message string, err error) {
	p := &Problem{Pointer: string(at), Message: message, Err: err}
	p.Line, p.Column = ps.placeOf(at)
	ps.all = append(ps.all, p)
}

// placeOf returns the place of a value, or of the object that lacks it. A list element that is not
// in the file comes from elsewhere, for example from a flag, and has no place.
func (ps *problems) placeOf(at jsontext.Pointer) (line, column int) {
	for ps.place != nil && at != "" {
		if line, column = ps.place(string(at)); line > 0 {
			return line, column
		}
		at = at.Parent()
		if t := typeAt(reflect.TypeFor[Config](), at); t == nil || t.Kind() != reflect.Struct {
			break
		}
	}
	return 0, 0
}

// note adds a problem for each error that err joins. The errors are about the value at a pointer;
// an error about a member below begins with its path: "allow[0]: it is ...".
func (ps *problems) note(at jsontext.Pointer, err error) {
	for _, text := range texts(err) {
		place, text := within(at, text)
		if place != "" {
			text = string(place) + ": " + text
		}
		ps.add(place, text, err)
	}
}

// err joins the problems, in the order of the file.
func (ps *problems) err() error {
	sorted.By(ps.all, func(a, b *Problem) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	all := make([]error, len(ps.all))
	for i, p := range ps.all {
		all[i] = p
	}
	return errors.Join(all...)
}

// texts returns the text of each error that err joins, each with the prefix of the errors that
// wrap it.
func texts(err error) []string {
	var parts []string
	prefix := ""
	switch e := err.(type) {
	case nil:
		return nil
	case interface{ Unwrap() []error }:
		if errors.Join(e.Unwrap()...).Error() != err.Error() {
			break
		}
		for _, part := range e.Unwrap() {
			parts = append(parts, texts(part)...)
		}
	case interface{ Unwrap() error }:
		inner := e.Unwrap()
		if inner == nil {
			break
		}
		var ends bool
		if prefix, ends = strings.CutSuffix(err.Error(), inner.Error()); ends {
			parts = texts(inner)
		}
	}
	if len(parts) < 2 {
		return []string{err.Error()}
	}
	for i := range parts {
		parts[i] = prefix + parts[i]
	}
	return parts
}

// within follows the path at the beginning of a text: outbound.allow[0], or /outbound/allow/0. It
// returns the pointer to the last member, and the rest of the text.
func within(at jsontext.Pointer, text string) (jsontext.Pointer, string) {
	for {
		path, rest, ok := strings.Cut(text, ": ")
		if !ok {
			return at, text
		}
		next, found := follow(at, path)
		if strings.HasPrefix(path, "/") { // a pointer, or the name of a file
			next = jsontext.Pointer(string(at) + path)
			found = typeAt(reflect.TypeFor[Config](), next) != nil
		}
		if !found {
			return at, text
		}
		at, text = next, rest
	}
}

// follow adds a path of members to a pointer, if a configuration can have them.
func follow(at jsontext.Pointer, path string) (jsontext.Pointer, bool) {
	tokens := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) })
	for _, token := range tokens {
		t := typeAt(reflect.TypeFor[Config](), at)
		if t == nil {
			return at, false
		}
		switch t.Kind() {
		case reflect.Struct:
			if !slices.Contains(members(t), token) {
				return at, false
			}
		case reflect.Slice, reflect.Array:
			if _, err := strconv.Atoi(token); err != nil {
				return at, false
			}
		case reflect.Map:
			if strings.Contains(token, " ") {
				return at, false
			}
		default:
			return at, false
		}
		at = at.AppendToken(token)
	}
	return at, len(tokens) > 0
}

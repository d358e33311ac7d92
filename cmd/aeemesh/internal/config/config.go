package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// Section is the member of the file that holds the settings.
const Section = "worker"

// MaxFile is the size of the largest file that is read, in bytes.
const MaxFile = 1 << 20

// Kind is what a setting's value is.
type Kind string

// The kinds.
const (
	Text     Kind = "text"
	Bool     Kind = "true or false"
	Int      Kind = "a whole number"
	Float    Kind = "a number"
	Duration Kind = `a duration, such as "30s"`
	List     Kind = "a list of texts"
)

// Setting is what the file may say of one flag.
type Setting struct {
	Flag   string // without dashes in front
	Usage  string // one line
	Kind   Kind
	Secret bool // the file names a file that holds it
}

// Key is the setting's name in the file.
func (s Setting) Key() string {
	key := strings.ReplaceAll(s.Flag, "-", "_")
	if s.Secret {
		key += "_file"
	}
	return key
}

// Value is what a file says of a flag.
type Value struct {
	Setting
	Values []string // as the flag takes them, one but for a List; of a Secret the path
	Line   int      // from 1
	Column int
}

// Problem is what is wrong at one place of a file.
type Problem struct {
	File         string
	Line, Column int // from 1; 0: not known
	Message      string
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Read reads the settings of a file, in the order of the file. A file without section worker has
// none. The error joins a [Problem] for each mistake; the correct settings are returned with it.
func Read(name string, data []byte, settings []Setting) ([]Value, error) {
	if len(data) > MaxFile {
		return nil, &Problem{File: name, Message: fmt.Sprintf("it is larger than %d bytes", MaxFile)}
	}
	text, place, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(text, &top) != nil || top == nil {
		return nil, &Problem{File: name, Message: "it must be a mapping of sections"}
	}
	section, there := top[Section]
	if !there {
		return nil, nil
	}
	r := reader{name: name, place: place, settings: make(map[string]Setting)}
	var members map[string]json.RawMessage
	if json.Unmarshal(section, &members) != nil || members == nil {
		r.refuse("/"+Section, "%s: it must be a mapping of settings", Section)
		return nil, r.err()
	}
	for _, s := range settings {
		r.settings[s.Key()] = s
	}
	var out []Value
	for key, raw := range members {
		if v, ok := r.value(key, raw); ok {
			out = append(out, v)
		}
	}
	sorted.By(out, func(a, b Value) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		if a.Column != b.Column {
			return a.Column - b.Column
		}
		return strings.Compare(a.Flag, b.Flag)
	})
	return out, r.err()
}

// parse converts YAML to JSON. JSON is returned unchanged.
func parse(name string, data []byte) (text []byte, place func(string) (int, int), err error) {
	nowhere := func(string) (int, int) { return 0, 0 }
	trimmed := strings.TrimSpace(string(data))
	switch {
	case trimmed == "":
		return []byte("{}"), nowhere, nil
	case trimmed[0] == '{' && json.Valid([]byte(trimmed)):
		return []byte(trimmed), aaif.JSONPlaces(data), nil
	}
	text, place, err = aaif.YAMLPlaces(data, 0)
	var bad *aaif.Error
	if errors.As(err, &bad) && len(bad.Problems) > 0 {
		p := bad.Problems[0]
		message := p.Message
		if p.Hint != "" {
			message += " (" + p.Hint + ")"
		}
		return nil, nil, &Problem{File: name, Line: p.Line, Column: p.Column, Message: message}
	}
	return text, place, err
}

// reader reads the members of the section and collects problems.
type reader struct {
	name     string
	place    func(string) (int, int)
	settings map[string]Setting // by key
	bad      []*Problem
}

func (r *reader) refuse(pointer, format string, args ...any) {
	line, column := r.place(pointer)
	r.bad = append(r.bad, &Problem{File: r.name, Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) err() error { return Join(r.bad) }

// Join joins the problems of a file in order of place; nil if there are none.
func Join(bad []*Problem) error {
	bad = slices.Clone(bad)
	sorted.By(bad, func(a, b *Problem) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column, strings.Compare(a.Message, b.Message))
	})
	all := make([]error, len(bad))
	for i, p := range bad {
		all[i] = p
	}
	return errors.Join(all...)
}

// Problems returns the problems that an error of [Read] joins.
func Problems(err error) (out []*Problem) {
	switch e := err.(type) {
	case *Problem:
		return []*Problem{e}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			out = append(out, Problems(one)...)
		}
	}
	return out
}

// value reads one member.
func (r *reader) value(key string, raw json.RawMessage) (Value, bool) {
	pointer := string(jsontext.Pointer("/" + Section).AppendToken(key))
	s, known := r.settings[key]
	if !known {
		r.refuse(pointer, "%s.%s is not known%s", Section, key, r.meant(key))
		return Value{}, false
	}
	values, err := s.decode(raw)
	if err != nil {
		r.refuse(pointer, "%s.%s: %v", Section, key, err)
		return Value{}, false
	}
	line, column := r.place(pointer)
	return Value{s, values, line, column}, true
}

// meant says what an unknown key was most likely meant to be.
func (r *reader) meant(key string) string {
	folded := strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	if s, ok := r.settings[folded+"_file"]; ok && s.Secret {
		return fmt.Sprintf(": a secret is not written here; %s names a file that holds it", s.Key())
	}
	if _, ok := r.settings[folded]; ok {
		return fmt.Sprintf(" (did you mean %s?)", folded)
	}
	if near := aaif.Nearest(folded, slices.Sorted(maps.Keys(r.settings))); near != "" {
		return fmt.Sprintf(" (did you mean %s?)", near)
	}
	return ""
}

// decode makes a flag's values of a JSON value.
func (s Setting) decode(raw json.RawMessage) ([]string, error) {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, err
	}
	badKind := fmt.Errorf("it must be %s", s.Kind)
	if s.Kind == Text || s.Secret {
		badKind = errors.New("it must be text; put it in quotes")
	}
	switch v := value.(type) {
	case bool:
		if s.Kind == Bool {
			return []string{string(raw)}, nil
		}
	case float64:
		if s.Kind == Float || s.Kind == Int && !strings.ContainsAny(string(raw), ".eE") {
			return []string{string(raw)}, nil
		}
	case string:
		return s.texts(badKind, v)
	case []any:
		if s.Kind != List {
			return nil, badKind
		}
		list := make([]string, len(v))
		for i, e := range v {
			text, ok := e.(string)
			if !ok {
				return nil, badKind
			}
			list[i] = text
		}
		return s.texts(badKind, list...)
	}
	return nil, badKind
}

// texts checks the texts of a value.
func (s Setting) texts(badKind error, list ...string) ([]string, error) {
	switch {
	case s.Kind == Duration && !s.Secret:
		if _, err := time.ParseDuration(list[0]); err != nil {
			return nil, badKind
		}
	case s.Kind != Text && s.Kind != List && !s.Secret:
		return nil, badKind
	}
	for _, text := range list {
		if s.hasPassword(text) {
			return nil, errors.New("it holds a password, which belongs into a file of its own")
		}
	}
	return list, nil
}

// hasPassword reports whether a text is or lists a URL with a password in it. Of the servers of
// --nats, which need no scheme, a user alone is one too: nats.go takes it for a token. URLs are
// not parsed, because what nats.go or a program takes may be none by RFC 3986.
func (s Setting) hasPassword(text string) bool {
	servers := s.Flag == "nats"
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		if servers && !strings.Contains(word, "://") {
			word = "nats://" + word
		}
		for i, part := range strings.Split(word, "://") {
			if i == 0 {
				continue // the scheme, perhaps with NAME= before it
			}
			authority := part
			if end := strings.IndexAny(part, "/?#"); end >= 0 {
				authority = part[:end]
			}
			user := authority[:max(strings.LastIndex(authority, "@"), 0)]
			if strings.Contains(user, ":") || servers && user != "" {
				return true
			}
		}
	}
	return false
}

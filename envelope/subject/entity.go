package subject

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits, in bytes.
const (
	MaxEntity = 255 // an entity id, a topic or a person's name with its type
	MaxPrefix = 64  // a prefix
	MaxID     = 512 // another id, after escaping
)

// Entity types of the AEE draft ("Common Type Prefixes"). Other types are legal. Workers host
// agents and services; a bus and a human have no worker.
const (
	TypeAgent   = "agent"
	TypeService = "service"
	TypeHuman   = "human"
	TypeBus     = "bus"
)

// root is the first token of the subjects that are reserved for the mesh.
const root = "aee"

// An Error says which name was refused, and which part of it is wrong.
type Error struct {
	What   string // "entity", "prefix", "topic", "human name", "priority", "id", "subject"
	Value  string // the whole name, unchanged
	Part   string // the wrong part, e.g. "token 2"
	Reason string // the rule that it violates, e.g. "is empty"
}

// Error quotes and truncates the name, so that hostile names are safe in a log.
func (e *Error) Error() string {
	s := e.What + " " + quote(e.Value) + ": "
	if e.Part != "" {
		s += e.Part + " "
	}
	return s + e.Reason
}

// quote quotes and truncates a name, so that an error about a long name is short.
func quote(s string) string {
	const most = 80
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "…"
}

// ValidateEntity reports whether id is a legal entity id, <type>.<name>. The
// error is an [*Error].
func ValidateEntity(id string) error {
	if err := validateTokens("entity", id, MaxEntity); err != nil {
		return err
	}
	typ, _, ok := strings.Cut(id, ".")
	if !ok {
		return &Error{What: "entity", Value: id, Reason: `has no type: it must be <type>.<name>, like "` + withType(clip(id)) + `"`}
	}
	return validateFirst("entity", id, typ)
}

// ValidateServed is [ValidateEntity] for an entity that a worker is to serve, which neither a bus nor
// a human is.
func ValidateServed(id string) error {
	if err := ValidateEntity(id); err != nil {
		return err
	}
	if t := EntityType(id); t == TypeBus || t == TypeHuman {
		return fmt.Errorf("entity %s: a %s has no worker", id, t)
	}
	return nil
}

// withType returns the entity that an id without a type probably means: "agent.echo" for
// "echo", and for "agent:echo".
func withType(id string) string {
	dotted := strings.NewReplacer(":", ".", "/", ".").Replace(id)
	typ, _, ok := strings.Cut(dotted, ".")
	if ok && validateTokens("entity", dotted, MaxEntity) == nil && validateFirst("entity", dotted, typ) == nil {
		return dotted
	}
	return "agent." + id
}

// EntityType returns the first token of an entity id: "agent" of
// "agent.reviewer". An id without a type has none.
func EntityType(id string) string {
	typ, _, ok := strings.Cut(id, ".")
	if !ok {
		return ""
	}
	return typ
}

// IsPerson reports whether an entity is a person.
func IsPerson(entity string) bool { return EntityType(entity) == TypeHuman }

// ServiceName returns the entity's name as a NATS micro service, which may only contain the
// characters A–Z a–z 0–9 - and _: "agent-reviewer" for "agent.reviewer". Dots become '-', other
// characters '_', so two entities can have the same service name; the service's metadata contains
// the entity itself.
func ServiceName(entity string) string {
	b := make([]byte, 0, 64)
	for _, r := range entity {
		switch {
		case r < utf8.RuneSelf && isWord(byte(r)):
			b = append(b, byte(r))
		case r == '.':
			b = append(b, '-')
		default:
			b = append(b, '_')
		}
	}
	return string(b)
}

// validateTokens checks the rules for all dotted names: one to max bytes of printable UTF-8 in
// non-empty tokens, without wildcards. It checks ASCII, the usual case, in one pass without a call.
func validateTokens(what, s string, max int) error {
	if s == "" {
		return &Error{What: what, Value: s, Reason: "is empty"}
	}
	if len(s) > max {
		return &Error{What: what, Value: s, Reason: fmt.Sprintf("is too long: %d bytes, at most %d", len(s), max)}
	}
	token, start := 1, 0
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '.':
			if i == start {
				return emptyToken(what, s, token)
			}
			token, start = token+1, i+1
			i++
		case c == '*' || c == '>':
			return atToken(what, s, token, fmt.Sprintf("holds the wildcard '%c'", c))
		case c > ' ' && c < 0x7f:
			i++
		default:
			n, reason := badRune(s[i:])
			if reason != "" {
				return atToken(what, s, token, reason)
			}
			i += n
		}
	}
	if start == len(s) {
		return emptyToken(what, s, token)
	}
	return nil
}

// badRune returns the length of the first rune of s, and why it is refused, if it is. Unprintable
// are control characters, every kind of space, and invisible characters, with which two different
// ids could look the same.
func badRune(s string) (int, string) {
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n <= 1:
		return n, fmt.Sprintf("is not valid UTF-8: byte 0x%02x", s[0])
	case unicode.IsSpace(r):
		return n, fmt.Sprintf("holds a space (%U)", r)
	case unicode.IsControl(r):
		return n, fmt.Sprintf("holds a control character (%U)", r)
	case !unicode.IsPrint(r):
		return n, fmt.Sprintf("holds an unprintable character (%U)", r)
	}
	return n, ""
}

func emptyToken(what, s string, token int) error {
	switch {
	case token == 1:
		return &Error{What: what, Value: s, Reason: "begins with a dot"}
	case strings.Count(s, ".") == token-1:
		return &Error{What: what, Value: s, Reason: "ends with a dot"}
	}
	return atToken(what, s, token, "is empty")
}

func atToken(what, s string, token int, reason string) error {
	return &Error{What: what, Value: s, Part: "token " + strconv.Itoa(token), Reason: reason}
}

// validateFirst refuses reserved first tokens.
func validateFirst(what, s, first string) error {
	switch {
	case first == root:
		return &Error{What: what, Value: s, Part: `first token "aee"`, Reason: "is reserved for the mesh"}
	case first[0] == '$' || first[0] == '_':
		return &Error{What: what, Value: s, Part: "first token " + quote(first), Reason: "is reserved for NATS"}
	}
	return nil
}

func clip(s string) string {
	if len(s) > 40 {
		return "…"
	}
	return s
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

package subject

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// A Map builds and parses the subjects of one mesh. The zero Map has no prefix. It is a value that
// may be copied, compared and shared.
type Map struct {
	dot string // the prefix with a final dot, or ""
}

// New returns the subjects under a prefix, or without one if prefix is "".
//
// A prefix is one or more tokens of A–Z a–z 0–9 - and _, each beginning and ending with a letter, a
// digit or '-'; at most [MaxPrefix] bytes. Its first token must not be "aee", "agent", "service",
// "human" or "bus": a mesh without a prefix would take such subjects for its own.
func New(prefix string) (Map, error) {
	if prefix == "" {
		return Map{}, nil
	}
	if err := validateTokens("prefix", prefix, MaxPrefix); err != nil {
		return Map{}, err
	}
	first, _, _ := strings.Cut(prefix, ".")
	switch first {
	case TypeAgent, TypeService, TypeHuman, TypeBus:
		return Map{}, &Error{What: "prefix", Value: prefix, Part: "first token " + quote(first), Reason: "is an entity type"}
	}
	if err := validateFirst("prefix", prefix, first); err != nil {
		return Map{}, err
	}
	token := 1
	for t := range strings.SplitSeq(prefix, ".") {
		for i := 0; i < len(t); i++ {
			if !isWord(t[i]) {
				return Map{}, atToken("prefix", prefix, token, fmt.Sprintf("holds %q: a prefix has only letters, digits, '-' and '_'", t[i:i+1]))
			}
		}
		if t[0] == '_' || t[len(t)-1] == '_' {
			return Map{}, atToken("prefix", prefix, token, "begins or ends with '_'")
		}
		token++
	}
	return Map{dot: prefix + "."}, nil
}

// Prefix returns the prefix without a final dot, or "".
func (m Map) Prefix() string { return strings.TrimSuffix(m.dot, ".") }

// Suffix returns the prefix as an ending for the names of streams and buckets, which must not
// contain dots: "" without a prefix, "_acme_eu" for "acme.eu", "_team__a" for "team_a". Different
// prefixes have different suffixes.
func (m Map) Suffix() string {
	if m.dot == "" {
		return ""
	}
	s := strings.ReplaceAll(m.Prefix(), "_", "__")
	return "_" + strings.ReplaceAll(s, ".", "_")
}

// Live returns the subject of an entity's live tasks: the entity id itself.
func (m Map) Live(entity string) (string, error) {
	if err := ValidateEntity(entity); err != nil {
		return "", err
	}
	return m.dot + entity, nil
}

// Ask returns the subject for plain text to an entity, which answers with plain text.
func (m Map) Ask(entity string) (string, error) { return m.entity(root+".ask.", entity) }

// Ctl returns the subject on which all replicas of an entity receive control messages.
func (m Map) Ctl(entity string) (string, error) { return m.entity(root+".ctl.", entity) }

// Lanes returns the subjects of [Map.Live], [Map.Ask] and [Map.Ctl].
func (m Map) Lanes(entity string) (live, ask, ctl string, err error) {
	if live, err = m.Live(entity); err != nil {
		return "", "", "", err
	}
	if ask, err = m.Ask(entity); err != nil {
		return "", "", "", err
	}
	ctl, err = m.Ctl(entity)
	return live, ask, ctl, err
}

// Audit returns the subject of an entity's audit records.
func (m Map) Audit(entity string) (string, error) { return m.entity(root+".audit.", entity) }

// Bus returns the subject of a broadcast topic: Bus("mesh.task") is "bus.mesh.task", which is also
// the recipient in its envelopes.
func (m Map) Bus(topic string) (string, error) {
	return m.named("topic", TypeBus+".", topic)
}

// Human returns the subject of a person's inbox: Human("adam") is "human.adam".
func (m Map) Human(name string) (string, error) {
	return m.named("human name", TypeHuman+".", name)
}

// Work returns the subject of an entity's durable tasks of one priority: "low", "normal", "high" or
// "urgent".
func (m Map) Work(priority, entity string) (string, error) {
	return m.prioritized(root+".work.", priority, entity)
}

// Schedule returns the subject on which a delayed task of an entity is stored until its time.
func (m Map) Schedule(entity, id string) (string, error) {
	return m.withID(root+".schedule.", entity, id)
}

// Due returns the subject of an entity's delayed tasks of one priority whose time has come. They
// are then moved to [Map.Work].
func (m Map) Due(priority, entity string) (string, error) {
	return m.prioritized(root+".due.", priority, entity)
}

// Dead returns the subject of the dead letter of one durable task of an entity.
func (m Map) Dead(entity, taskID string) (string, error) {
	return m.withID(root+".dead.", entity, taskID)
}

// Reply returns the subject of the replies to one durable task of an entity.
func (m Map) Reply(entity, taskID string) (string, error) {
	return m.withID(root+".reply.", entity, taskID)
}

// Journal returns the subject of the envelope id in the entity's journal.
func (m Map) Journal(entity, id string) (string, error) {
	return m.withID(root+".journal.", entity, id)
}

func (m Map) entity(lane, entity string) (string, error) {
	if err := ValidateEntity(entity); err != nil {
		return "", err
	}
	return m.dot + lane + entity, nil
}

func (m Map) prioritized(lane, priority, entity string) (string, error) {
	if err := ValidateEntity(entity); err != nil {
		return "", err
	}
	if !isPriority(priority) {
		return "", badPriority(priority)
	}
	return m.dot + lane + priority + "." + entity, nil
}

func (m Map) named(what, typ, name string) (string, error) {
	if err := validateTokens(what, name, MaxEntity-len(typ)); err != nil {
		return "", err
	}
	return m.dot + typ + name, nil
}

func (m Map) withID(lane, entity, id string) (string, error) {
	if err := ValidateEntity(entity); err != nil {
		return "", err
	}
	n := escapedLen(id)
	switch {
	case id == "":
		return "", &Error{What: "id", Value: id, Reason: "is empty"}
	case n > MaxID:
		return "", &Error{What: "id", Value: id, Reason: fmt.Sprintf("is too long: %d bytes when escaped, at most %d", n, MaxID)}
	case n == len(id):
		return m.dot + lane + entity + "." + id, nil
	}
	var b strings.Builder
	b.Grow(len(m.dot) + len(lane) + len(entity) + 1 + n)
	b.WriteString(m.dot)
	b.WriteString(lane)
	b.WriteString(entity)
	b.WriteByte('.')
	writeEscaped(&b, id)
	return b.String(), nil
}

// Priorities lists the four priorities of AEE, lowest first.
func Priorities() []string { return []string{"low", "normal", "high", "urgent"} }

func isPriority(s string) bool {
	switch s {
	case "low", "normal", "high", "urgent":
		return true
	}
	return false
}

func badPriority(s string) error {
	return &Error{What: "priority", Value: s, Reason: "is none of low, normal, high, urgent"}
}

// TreeOwner is the prefix of the owner of a tree's counters; the tree's key follows.
const TreeOwner = "tree:"

// Count returns the subject of one counter of an owner and a kind. The ids, which may be any
// strings, name what is counted. The owner is an entity, so that permissions can restrict its
// counters to its workers, or [TreeOwner] and the key of a tree, which only the agents that work on
// the tree know. The owner comes first in the subject, so that permissions can distinguish owners.
func (m Map) Count(owner, kind string, ids ...string) (string, error) {
	if err := validateTokens("kind", kind, MaxEntity); err != nil {
		return "", err
	}
	key, tree := strings.CutPrefix(owner, TreeOwner)
	s := m.dot + root + ".count.of."
	if tree {
		s = m.dot + root + ".count.tree."
	} else if err := ValidateEntity(owner); err != nil {
		return "", fmt.Errorf("subject of a counter: %w", err)
	}
	if key == "" || len(Escape(key)) > maxCountID {
		return "", fmt.Errorf("subject of a counter: the owner %q is too short or too long", clip(owner))
	}
	s += Escape(key) + "." + kind
	for _, id := range ids {
		if id == "" {
			return "", errors.New("subject of a counter: an id is empty")
		}
		token := Escape(id)
		if len(token) > maxCountID {
			sum := sha256.Sum256([]byte(id))
			token = "=" + hex.EncodeToString(sum[:])
		}
		s += "." + token
	}
	return s, nil
}

// maxCountID bounds, in bytes, one escaped id in a counter's name. A longer id is hashed, because a
// corr may have 1,024 bytes.
const maxCountID = 512

package subject

import (
	"fmt"
	"strings"
)

// A Kind is the kind of messages on a subject.
type Kind uint8

// The kinds of subjects, one for each row of the table in the package comment.
const (
	Live Kind = iota + 1
	Ask
	Bus
	Human
	Work
	Reply
	Ctl
	Journal
	Audit
	Schedule
	Due
	Dead
)

var kindNames = [...]string{Live: "live", Ask: "ask", Bus: "bus", Human: "human", Work: "work", Reply: "reply", Ctl: "ctl", Journal: "journal", Audit: "audit", Schedule: "schedule", Due: "due", Dead: "dead"}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// An Address is a parsed subject.
type Address struct {
	Kind     Kind
	Entity   string // always set: for Bus and Human the topic or name with its type, "bus.mesh.task"
	Priority string // Work and Due only
	ID       string // Schedule, Reply, Dead and Journal only: the id, not escaped
}

// Name returns the entity without its type: "reviewer" of "agent.reviewer",
// the topic of a Bus, the name of a Human.
func (a Address) Name() string {
	_, name, _ := strings.Cut(a.Entity, ".")
	return name
}

// Parse parses a subject of this mesh. It accepts exactly the subjects that m builds; the error is
// an [*Error]. The Address shares the memory of s.
//
// A subject that is only an entity id has the kind Bus for type bus, Human for type human, and Live
// for all other types.
func (m Map) Parse(s string) (Address, error) {
	rest, ok := strings.CutPrefix(s, m.dot)
	if !ok {
		return Address{}, &Error{What: "subject", Value: s, Reason: "does not begin with the prefix " + quote(m.Prefix())}
	}
	lane, ok := strings.CutPrefix(rest, root+".")
	if !ok {
		return parseEntity(rest)
	}
	kind, rest, _ := strings.Cut(lane, ".")
	a := Address{Entity: rest}
	var err error
	switch kind {
	case "ask":
		a.Kind = Ask
	case "ctl":
		a.Kind = Ctl
	case "audit":
		a.Kind = Audit
	case "work", "due":
		a.Kind = Work
		if kind == "due" {
			a.Kind = Due
		}
		a.Priority, a.Entity, _ = strings.Cut(rest, ".")
		if !isPriority(a.Priority) {
			return Address{}, badPriority(a.Priority)
		}
	case "schedule", "reply", "dead", "journal":
		switch kind {
		case "schedule":
			a.Kind = Schedule
		case "reply":
			a.Kind = Reply
		case "dead":
			a.Kind = Dead
		default:
			a.Kind = Journal
		}
		a.Entity, a.ID, err = cutID(s, rest)
	default:
		return Address{}, &Error{What: "subject", Value: s, Part: "lane " + quote(kind), Reason: "is unknown"}
	}
	if err == nil {
		err = ValidateEntity(a.Entity)
	}
	if err != nil {
		return Address{}, err
	}
	return a, nil
}

func parseEntity(s string) (Address, error) {
	if err := ValidateEntity(s); err != nil {
		return Address{}, err
	}
	a := Address{Kind: Live, Entity: s}
	switch EntityType(s) {
	case TypeBus:
		a.Kind = Bus
	case TypeHuman:
		a.Kind = Human
	}
	return a, nil
}

// cutID splits <entity>.<escaped id> at its last dot, because an escaped id contains no dot.
func cutID(subject, s string) (entity, id string, err error) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", "", &Error{What: "subject", Value: subject, Reason: "has no id as its last token"}
	}
	token := s[i+1:]
	if len(token) > MaxID {
		return "", "", &Error{What: "id", Value: token, Reason: fmt.Sprintf("is too long: %d bytes when escaped, at most %d", len(token), MaxID)}
	}
	id, err = Unescape(token)
	if err != nil {
		return "", "", err
	}
	if id == "" {
		return "", "", &Error{What: "id", Value: token, Reason: "is empty"}
	}
	return s[:i], id, nil
}

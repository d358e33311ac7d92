package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// Limits of a record.
const (
	MaxDocument = 512 << 10 // bytes of a document
	MaxRecord   = 1 << 20   // bytes of a record as it is stored
	MaxAliases  = 16
	MaxName     = 200 // bytes of an agent_id, an alias, a skill
	MaxSkills   = 256
)

// Record is one registered definition.
type Record struct {
	Entity  string   // the entity that tasks for the agent are sent to
	AgentID string   // the document's; "" if it has none
	Aliases []string // additional names, unique among all records

	Name    string    // agent.name
	Version string    // agent.version; "" if it has none
	Role    aaif.Role // orchestration.role; "" if it has none
	Skills  []string  // agent.skills

	Format   aaif.Format // of Document
	SHA256   string      // of Document, in hex
	Document []byte      // as it was read, byte for byte

	At time.Time // when it was registered, by the registering client's clock
	By string    // the entity that registered it, by its own claim
}

// Options are the parts of a registration that are not in the document.
type Options struct {
	Entity  string // default: "agent." and the name, as a worker serves it
	Aliases []string
	By      string
	At      time.Time // default now
}

// New makes a record from an agent definition. The error says why it cannot be
// registered.
func New(doc *aaif.Document, o Options) (Record, error) {
	if doc == nil || doc.Definition() == nil {
		return Record{}, errors.New("an agent definition is needed")
	}
	def := doc.Definition()
	r := Record{
		Entity: o.Entity, AgentID: def.AgentID, Aliases: o.Aliases,
		Name: def.Agent.Name, Version: def.Agent.Version, Skills: def.Agent.Skills,
		Format: doc.Format(), Document: doc.Source(), At: o.At.UTC(), By: o.By,
	}
	if def.Agent.Orchestration != nil {
		r.Role = def.Agent.Orchestration.Role
	}
	if r.Entity == "" {
		var err error
		if r.Entity, err = aaif.EntityName(r.Name); err != nil {
			return Record{}, err
		}
	}
	if o.At.IsZero() {
		r.At = time.Now().UTC()
	}
	r.At = r.At.Truncate(time.Millisecond)
	r.SHA256 = Sum(r.Document)
	return r, r.Validate()
}

// Sum returns a document's checksum, in the form of a record.
func Sum(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}

// Key returns the key under which the record is stored; see [KeyOf].
func (r *Record) Key() string { return KeyOf(r.AgentID, r.Entity) }

// KeyOf returns the key of an agent: its agent_id, with a UUID in small
// letters, or its entity if it has none.
func KeyOf(agentID, entity string) string {
	switch {
	case agentID == "":
		return entity
	case aaif.IsUUID(agentID):
		return strings.ToLower(agentID)
	}
	return agentID
}

// isEntity reports whether s has the form of an entity id.
func isEntity(s string) bool {
	switch subject.EntityType(s) {
	case subject.TypeAgent, subject.TypeService, subject.TypeHuman, subject.TypeBus:
		return true
	}
	return false
}

// Validate returns all reasons why a record cannot be stored.
func (r *Record) Validate() error {
	var bad []error
	note := func(format string, args ...any) { bad = append(bad, fmt.Errorf(format, args...)) }
	switch t := subject.EntityType(r.Entity); {
	case subject.ValidateEntity(r.Entity) != nil:
		bad = append(bad, subject.ValidateEntity(r.Entity))
	case t == subject.TypeBus || t == subject.TypeHuman:
		note("entity %q: no agent is hosted under it", r.Entity)
	}
	if r.AgentID != "" {
		if err := validName(r.AgentID); err != nil {
			note("agent_id: %w", err)
		} else if isEntity(r.AgentID) && r.AgentID != r.Entity {
			note("agent_id %q reads like an entity, and is not the agent's own, %s", r.AgentID, r.Entity)
		}
	}
	if len(r.Aliases) > MaxAliases {
		note("%d aliases: at most %d", len(r.Aliases), MaxAliases)
	}
	for i, a := range r.Aliases {
		switch err := validName(a); {
		case err != nil:
			note("alias: %w", err)
		case isEntity(a) || aaif.IsUUID(a) || strings.ContainsAny(a, ":/"):
			note("alias %q: it must be a plain name, no entity, UUID or URI", a)
		case slices.Contains(r.Aliases[:i], a):
			note("alias %q is there twice", a)
		}
	}
	switch n := len(r.Document); {
	case n == 0:
		note("there is no document")
	case n > MaxDocument:
		note("the document has %d bytes: at most %d are kept", n, MaxDocument)
	}
	switch r.Format {
	case aaif.JSON, aaif.YAML:
		if !utf8.Valid(r.Document) {
			note("the document is no UTF-8")
		}
	case aaif.CBOR:
	default:
		note("format %q is none of json, yaml, cbor", clip.Text(string(r.Format), 80))
	}
	if len(r.Skills) > MaxSkills {
		note("%d skills: at most %d", len(r.Skills), MaxSkills)
	}
	return errors.Join(bad...)
}

// validName checks an agent_id or an alias: printable text that fits into a
// key.
func validName(s string) error {
	switch {
	case s == "" || len(s) > MaxName:
		return fmt.Errorf("%q has %d bytes, must have 1 to %d", clip.Text(s, 80), len(s), MaxName)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unprintable):
		return fmt.Errorf("%q contains characters that do not print", clip.Text(s, 80))
	case len(subject.Escape(s)) > subject.MaxID:
		return fmt.Errorf("%q is too long for a key", clip.Text(s, 80))
	}
	return nil
}

// Parse reads the record's document.
func (r *Record) Parse() (*aaif.Document, error) {
	return aaif.Parse(r.Document, aaif.Options{Name: r.Key(), Format: r.Format, Kind: aaif.KindAgent, MaxBytes: MaxDocument})
}

// Same reports whether two records describe an agent in the same way,
// regardless of when and by which entity they were registered.
func (r *Record) Same(other *Record) bool {
	return r.Entity == other.Entity && r.AgentID == other.AgentID && r.SHA256 == other.SHA256 && r.Format == other.Format &&
		slices.Equal(r.Aliases, other.Aliases)
}

package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
)

// format is the version of a stored record (docs/nats-binding.md).
const format = 1

// stored is the form of a record in the bucket: one JSON object, which `nats kv
// get` shows.
type stored struct {
	V        int         `json:"v"`
	Entity   string      `json:"entity"`
	AgentID  string      `json:"agent_id,omitempty"`
	Aliases  []string    `json:"aliases,omitempty"`
	Name     string      `json:"name"`
	Version  string      `json:"version,omitempty"`
	Role     aaif.Role   `json:"role,omitempty"`
	Skills   []string    `json:"skills,omitempty"`
	Format   aaif.Format `json:"format"`
	SHA256   string      `json:"sha256"`
	At       time.Time   `json:"registered_at"`
	By       string      `json:"registered_by,omitempty"`
	Document *string     `json:"document,omitempty"`        // for JSON and YAML
	Binary   []byte      `json:"document_base64,omitempty"` // for CBOR
}

var errAltered = errors.New("record: the document is not the one that its sha256 says")

// Encode writes a valid record in its stored form.
func (r *Record) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if Sum(r.Document) != r.SHA256 {
		return nil, errAltered
	}
	s := stored{format, r.Entity, r.AgentID, r.Aliases, r.Name, r.Version, r.Role, r.Skills, r.Format, r.SHA256, r.At, r.By, nil, nil}
	if r.Format == aaif.CBOR {
		s.Binary = r.Document
	} else {
		text := string(r.Document)
		s.Document = &text
	}
	data, err := envelope.EncodeJSON(s) // HTML escapes would make a document of angle brackets six times as large
	if err != nil {
		return nil, err
	}
	if len(data) > MaxRecord {
		return nil, fmt.Errorf("the record has %d bytes: at most %d are kept", len(data), MaxRecord)
	}
	return data, nil
}

// Decode reads a stored record. A returned record is valid. Unknown members are
// ignored, an unknown format version is refused.
func Decode(data []byte) (Record, error) {
	if len(data) > MaxRecord {
		return Record{}, fmt.Errorf("record: it has %d bytes, at most %d", len(data), MaxRecord)
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return Record{}, fmt.Errorf("record: %w", err)
	}
	if s.V != format {
		return Record{}, fmt.Errorf("record: version %d is not known, only %d", s.V, format)
	}
	r := Record{
		Entity: s.Entity, AgentID: s.AgentID, Aliases: s.Aliases, Name: s.Name, Version: s.Version, Role: s.Role, Skills: s.Skills,
		Format: s.Format, SHA256: s.SHA256, Document: s.Binary, At: s.At, By: s.By,
	}
	if s.Document != nil {
		if s.Binary != nil {
			return Record{}, fmt.Errorf("record: it has two documents")
		}
		r.Document = []byte(*s.Document)
	}
	if err := r.Validate(); err != nil {
		return Record{}, fmt.Errorf("record: %w", err)
	}
	if Sum(r.Document) != r.SHA256 {
		return Record{}, errAltered
	}
	return r, nil
}

// clone returns a copy that shares no memory with r.
func (r *Record) clone() Record {
	c := *r
	c.Aliases, c.Skills, c.Document = slices.Clone(r.Aliases), slices.Clone(r.Skills), slices.Clone(r.Document)
	return c
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

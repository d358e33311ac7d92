package sign

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nkeys"
)

// maxRecord is the largest text of a trust record in bytes.
const maxRecord = 64 << 10

// Record is a trust record: a [Key] in its stored form, in a key directory as <kid>.json
// and in the mesh's key bucket with the kid as its key. It never contains a secret. A
// record of an HS256 key only says that the key file <kid>.nk in the same directory may
// be used, and for whom.
type Record struct {
	KID       string    `json:"kid"`
	Alg       Alg       `json:"alg"`
	Public    string    `json:"public,omitzero"` // Ed25519: an nkeys user public key, "U…"
	From      []string  `json:"from"`
	NotBefore time.Time `json:"not_before,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	Revoked   bool      `json:"revoked,omitzero"`
	Comment   string    `json:"comment,omitzero"`
}

// ParseRecord decodes and checks a trust record in JSON. An unknown member is an error,
// because it may be a restriction that this version does not know.
func ParseRecord(data []byte) (Record, error) {
	if len(data) > maxRecord {
		return Record{}, fmt.Errorf("trust record is larger than %d bytes", maxRecord)
	}
	var r Record
	if err := jsonv2.Unmarshal(data, &r, jsonv2.RejectUnknownMembers(true)); err != nil {
		return Record{}, fmt.Errorf("trust record: %w", recordError(err))
	}
	if err := r.check(); err != nil {
		return Record{}, fmt.Errorf("trust record: %w", err)
	}
	return r, nil
}

// recordError says which member of a record cannot be decoded, without the names of Go types.
func recordError(err error) error {
	var wrong *jsonv2.SemanticError
	if !errors.As(err, &wrong) {
		return err // not JSON
	}
	where, kind := string(wrong.JSONPointer), wrong.JSONKind.String()
	where = cmp.Or(where, "it")
	switch wrong.JSONKind {
	case '{':
		kind = "object"
	case '[':
		kind = "array"
	}
	switch {
	case errors.Is(wrong.Err, jsonv2.ErrUnknownName):
		return fmt.Errorf("unknown member %s", where)
	case wrong.Err != nil:
		return fmt.Errorf("%s cannot be this JSON %s", where, kind)
	}
	return fmt.Errorf("%s cannot be a JSON %s", where, kind)
}

// check is [Key.Check] without the checks that need the key file.
func (r Record) check() error {
	k, err := r.key(make([]byte, secretSize))
	if err != nil {
		return err
	}
	return k.Check()
}

// Marshal encodes the record as JSON, one member on each line.
func (r Record) Marshal() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("trust record: %w", err)
	}
	data, err := jsonv2.Marshal(r, jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("trust record: %w", err)
	}
	return append(data, '\n'), nil
}

// Key returns the key that the record describes, for [Ring.Put]. It fails for an HS256
// key: its secret is only in a key directory, see [LoadDir].
func (r Record) Key() (Key, error) {
	if r.Alg == HS256 {
		return Key{}, fmt.Errorf("key %q: %w", r.KID, errSharedSecret)
	}
	k, err := r.key(nil)
	if err != nil {
		return Key{}, err
	}
	return k, k.Check()
}

// key returns the record's key, with the secret from its key file.
func (r Record) key(secret []byte) (Key, error) {
	k := Key{KID: r.KID, Alg: r.Alg, From: r.From, NotBefore: r.NotBefore, Expires: r.Expires, Revoked: r.Revoked, Comment: r.Comment}
	switch {
	case r.Alg == HS256 && r.Public != "":
		return k, errors.New("an HS256 key has no public key")
	case r.Alg == HS256:
		k.Secret = secret
	case r.Alg == Ed25519:
		public, err := nkeys.Decode(nkeys.PrefixByteUser, []byte(r.Public))
		if err != nil {
			return k, fmt.Errorf("key %q: public must be an nkeys user key, U…: %w", r.KID, err)
		}
		k.Public = public
	}
	return k, nil
}

// Record returns the stored form of k, without its secret.
func (k Key) Record() (Record, error) {
	r := Record{KID: k.KID, Alg: k.Alg, From: k.From, NotBefore: k.NotBefore.UTC(), Expires: k.Expires.UTC(), Revoked: k.Revoked, Comment: k.Comment}
	if err := k.Check(); err != nil {
		return r, err
	}
	if k.Alg == Ed25519 {
		public, err := nkeys.Encode(nkeys.PrefixByteUser, k.Public)
		if err != nil {
			return r, fmt.Errorf("key %q: %w", k.KID, err)
		}
		r.Public = string(public)
	}
	return r, nil
}

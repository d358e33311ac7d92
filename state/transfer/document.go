package state

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// PutToken adds a migration token to a document that is transferred as a file, and
// updates its checksum, which covers the token. The document is JSON, sealed or not, with
// a checksum and without a token.
func PutToken(doc []byte, token string) ([]byte, error) {
	out, err := putToken(doc, token)
	if err != nil {
		return nil, fmt.Errorf("put migration token: %w", err)
	}
	return out, nil
}

func putToken(doc []byte, token string) ([]byte, error) {
	members, err := readObject(doc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	sum, err := ContentChecksum(doc)
	if err != nil {
		return nil, err
	}
	if err := checkStated(members, sum); err != nil {
		return nil, err
	}
	if doc, err = setProvenance(members, "migration_token", token); err != nil {
		return nil, err
	}
	if sum, err = checksum(doc, "checksum"); err != nil {
		return nil, err
	}
	if members, err = readObject(doc); err != nil {
		return nil, err
	}
	return setProvenance(members, "checksum", sum)
}

// TakeToken removes the migration token from a document, JSON or CBOR, sealed or not, and
// returns the document as it was before, as JSON. It verifies the document's checksum
// (ErrChecksum), but not the token.
func TakeToken(doc []byte) (token string, without []byte, err error) {
	if token, without, err = takeToken(doc); err != nil {
		return "", nil, fmt.Errorf("take migration token: %w", err)
	}
	return token, without, nil
}

func takeToken(doc []byte) (string, []byte, error) {
	text, err := asJSON(doc)
	if err != nil {
		return "", nil, err
	}
	members, err := readObject(text)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p, err := readProvenance(members)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if p.token == "" {
		return "", nil, fmt.Errorf("%w: the document has no migration token", ErrTokenInvalid)
	}
	if err := isChecksum(p.checksum); err != nil {
		return "", nil, err
	}
	whole, err := checksum(text, "checksum")
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if whole != p.checksum {
		return "", nil, fmt.Errorf("%w: provenance says %q, and it is %s", ErrChecksum, clip.Text(p.checksum, 80), whole)
	}
	if text, err = withoutProvenance(text, "migration_token", "checksum"); err != nil {
		return "", nil, err
	}
	sum, err := ContentChecksum(text)
	if err != nil {
		return "", nil, err
	}
	if members, err = readObject(text); err != nil {
		return "", nil, err
	}
	text, err = setProvenance(members, "checksum", sum)
	return p.token, text, err
}

// setProvenance sets one text member of provenance.
func setProvenance(members []jsonMember, name, value string) ([]byte, error) {
	i := indexMember(members, "provenance")
	if i < 0 {
		i, members = len(members), append(members, jsonMember{"provenance", jsontext.Value("{}")})
	}
	inner, err := readObject(members[i].value)
	if err != nil {
		return nil, fmt.Errorf("%w: provenance: %w", ErrInvalid, err)
	}
	members = slices.Clone(members)
	members[i].value = appendObject(nil, append(without(inner, name), jsonMember{name, appendText(value)}))
	return appendObject(nil, members), nil
}

package transfer

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/internal/rawdoc"
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
	members, err := rawdoc.Object(doc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	sum, err := state.ContentChecksum(doc)
	if err != nil {
		return nil, err
	}
	if err := checkStated(members, sum); err != nil {
		return nil, err
	}
	if doc, err = rawdoc.SetProvenance(members, "migration_token", token); err != nil {
		return nil, err
	}
	if sum, err = rawdoc.Checksum(doc, "checksum"); err != nil {
		return nil, err
	}
	if members, err = rawdoc.Object(doc); err != nil {
		return nil, err
	}
	return rawdoc.SetProvenance(members, "checksum", sum)
}

// TakeToken removes the migration token from a document, JSON or CBOR, sealed or not, and
// returns the document as it was before, as JSON. It verifies the document's checksum
// (state.ErrChecksum), but not the token.
func TakeToken(doc []byte) (token string, without []byte, err error) {
	if token, without, err = takeToken(doc); err != nil {
		return "", nil, fmt.Errorf("take migration token: %w", err)
	}
	return token, without, nil
}

func takeToken(doc []byte) (string, []byte, error) {
	text, err := rawdoc.JSON(doc)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	members, err := rawdoc.Object(text)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	p, err := rawdoc.ReadProvenance(members)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	if p.Token == "" {
		return "", nil, fmt.Errorf("%w: the document has no migration token", ErrTokenInvalid)
	}
	whole, err := state.CheckChecksum(text)
	if whole == "" || errors.Is(err, state.ErrNoChecksum) {
		return "", nil, err
	}
	if whole != p.Checksum { // a token covers lower-case digits only
		return "", nil, fmt.Errorf("%w: provenance says %q, and it is %s", state.ErrChecksum, clip.Text(p.Checksum, 80), whole)
	}
	if text, err = rawdoc.WithoutProvenance(text, "migration_token", "checksum"); err != nil {
		return "", nil, err
	}
	sum, err := state.ContentChecksum(text)
	if err != nil {
		return "", nil, err
	}
	if members, err = rawdoc.Object(text); err != nil {
		return "", nil, err
	}
	text, err = rawdoc.SetProvenance(members, "checksum", sum)
	return p.Token, text, err
}

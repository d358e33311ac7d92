package handoff

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/state"
)

// ErrFileKey: a file is encrypted, and its key is missing.
var ErrFileKey = errors.New("the file's key is missing")

// OpenFile decodes the document in a file. It accepts an unencrypted document, which its checksum
// and its token authenticate. The error wraps [ErrFileKey] if codec lacks the file's key.
func OpenFile(text []byte, codec state.Codec) (*state.Checkpoint, error) {
	codec.AcceptClear = true
	c, err := codec.Decode(text)
	if errors.Is(err, state.ErrSealed) {
		return nil, fmt.Errorf("%w: %w", ErrFileKey, err)
	}
	return c, err
}

package natsd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrStoreLocked is returned by Start when another server runs on the same
// store directory.
var ErrStoreLocked = errors.New("store directory is in use by another server")

const lockName = "aeemesh.lock"

// lockStore makes the store directory if it is missing and takes its lock. A
// nats-server that was not started by this package takes none, and is looked for. The
// file stays when the lock is released: removing it would let two servers hold
// locks on two files of one name.
func lockStore(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make store directory: %w", err)
	}
	f, err := openLocked(filepath.Join(dir, lockName))
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%w: %s", ErrStoreLocked, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("store directory is not writable: %w", err)
	}
	if who := inUse(dir); who != "" {
		f.Close()
		return nil, fmt.Errorf("%w: %s (%s)", ErrStoreLocked, dir, who)
	}
	return f, nil
}

var errLocked = errors.New("locked")

//go:build !windows && (!unix || solaris || aix)

package natsd

import "os"

// openLocked has no lock to take on this system: it only proves that the
// directory is writable.
func openLocked(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
}

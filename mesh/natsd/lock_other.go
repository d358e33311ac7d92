//go:build !windows && (!unix || solaris || aix)

package natsd

import "os"

// unlock closes the file, and so ends the lock.
func unlock(f *os.File) error { return f.Close() }

// openLocked has no lock to take on this system: it only proves that the
// directory is writable.
func openLocked(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
}

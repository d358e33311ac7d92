package natsd

import (
	"errors"
	"os"
	"syscall"
)

const errSharingViolation = syscall.Errno(32) // ERROR_SHARING_VIOLATION

// unlock closes the file, and so ends the lock.
func unlock(f *os.File) error { return f.Close() }

// openLocked opens a file that no other process can open meanwhile.
func openLocked(name string) (*os.File, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(path, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, errLocked
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}

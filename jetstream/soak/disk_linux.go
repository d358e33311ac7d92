package soak

import (
	"errors"
	"fmt"
	"syscall"
)

func mount(dir string, bytes int64) error {
	return syscall.Mount("soak", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes))
}

// unmount detaches the file system; it is gone when the last process has closed its files.
func unmount(dir string) error { return syscall.Unmount(dir, 2) } // MNT_DETACH

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) }

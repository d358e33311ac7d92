package soak

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A disk is a small file system in memory that holds one server's store. So a soak can
// fill it, and no other process notices.
type disk struct {
	dir   string
	owner *os.File // whose lock says that this process lives
}

// newDisk mounts a disk of so many bytes at the directory dir. Before that it removes the disks of
// killed soaks, which would keep their memory for ever.
func newDisk(dir string, bytes int64) (*disk, error) {
	if _, err := unmountLost(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	owner, err := mount(dir, bytes)
	if err != nil {
		return nil, fmt.Errorf("a disk of its own for %s: %w", dir, err)
	}
	return &disk{dir, owner}, nil
}

// fill writes until the disk is full. The returned function makes room again.
func (d *disk) fill() (free func() error, err error) {
	f, err := os.Create(filepath.Join(d.dir, "filler"))
	if err != nil {
		return nil, err
	}
	// Smaller pieces at the end, so that no page is left.
	for piece := int64(1 << 20); piece >= 512 && err == nil; piece /= 2 {
		for err == nil {
			_, err = io.CopyN(f, zeros{}, piece)
		}
		if isFull(err) {
			err = nil
		}
	}
	return func() error { return os.Remove(f.Name()) }, errors.Join(err, f.Close())
}

// zeros is an endless file of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// close removes the disk with all that it holds.
func (d *disk) close() error {
	if d == nil {
		return nil
	}
	return errors.Join(unmount(d.dir), d.owner.Close())
}

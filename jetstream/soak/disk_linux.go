package soak

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// diskSource is the source of a soak's disk in the list of mounts. The soak holds a lock on the
// disk's file diskOwner as long as it runs; the kernel releases the lock if the soak is killed.
const diskSource, diskOwner = "aeemesh-soak", ".owner"

// mount mounts a file system in memory at dir. The file that it returns has the owner's lock.
func mount(dir string, bytes int64) (*os.File, error) {
	if err := syscall.Mount(diskSource, dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		return nil, err
	}
	// The lock comes before the name, so that no other soak finds the file without it.
	path := filepath.Join(dir, diskOwner)
	f, err := os.Create(path + ".new")
	if err == nil {
		if err = lock(f); err == nil {
			err = os.Rename(f.Name(), path)
		}
	}
	if err != nil {
		_ = f.Close() // also of no file
		return nil, errors.Join(err, unmount(dir))
	}
	return f, nil
}

func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// unmount detaches the file system; it is gone when the last process has closed its files.
func unmount(dir string) error { return syscall.Unmount(dir, 2) } // MNT_DETACH

// unmountLost unmounts the disks of soaks that were killed, and returns where they were.
func unmountLost() (dirs []string, err error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, dir := range disksIn(string(mounts)) {
		f, err := os.Open(filepath.Join(dir, diskOwner))
		if err != nil {
			continue // it is being mounted, or is no disk of a soak
		}
		if lock(f) == nil && unmount(dir) == nil {
			dirs = append(dirs, dir)
		}
		_ = f.Close()
	}
	return dirs, nil
}

// disksIn returns where disks of soaks are mounted, according to the text of a mountinfo file
// (proc_pid_mountinfo(5)): the fifth field of a line is the directory, and after a dash
// stand type and source.
func disksIn(mounts string) (dirs []string) {
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		at, what := strings.Fields(before), strings.Fields(after)
		if ok && len(at) >= 5 && len(what) >= 2 && what[0] == "tmpfs" && what[1] == diskSource {
			dirs = append(dirs, unescape(at[4]))
		}
	}
	return dirs
}

// unescape reads the octal escapes of a mountinfo file, such as \040 for a space.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) }

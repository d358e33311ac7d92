//go:build unix && !solaris && !aix

package scratch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ownerFile is the file in a scratch directory on which its process holds a lock. The system
// releases the lock when the process ends, also if it is killed.
const ownerFile = ".owner"

// own locks a scratch directory until release is called.
func own(dir string) (release func(), err error) {
	// The lock comes before the name, so that no other process finds the file without it.
	path := filepath.Join(dir, ownerFile)
	f, err := os.Create(path + ".new")
	if err != nil {
		return nil, err
	}
	if err = lock(f); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// removeAbandoned removes this user's scratch directories in a directory whose process has ended
// without removing them. One that cannot be examined stays.
func removeAbandoned(in, prefix string) {
	entries, err := os.ReadDir(in)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
			continue
		}
		dir := filepath.Join(in, e.Name())
		f, err := os.Open(filepath.Join(dir, ownerFile))
		if err != nil {
			continue
		}
		if lock(f) == nil {
			os.RemoveAll(dir)
		}
		f.Close()
	}
}

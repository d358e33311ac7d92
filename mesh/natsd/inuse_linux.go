package natsd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// inUse names another process that has files of a JetStream store open to write
// them, "" where there is none that can be seen: nats-server itself takes no lock on
// its store, and two servers on one destroy it. It sees the processes of its own
// user, and all as root; a server whose store is empty has nothing open.
func inUse(dir string) string {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	if real, err = filepath.Abs(filepath.Join(real, "jetstream")); err != nil {
		return ""
	}
	if streams, err := filepath.Glob(filepath.Join(real, "*", "streams", "*")); err != nil || len(streams) == 0 {
		return "" // nothing is stored: not worth a look at all processes
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return ""
	}
	self := strconv.Itoa(os.Getpid())
	for _, p := range processes {
		if p.Name() == self || strings.Trim(p.Name(), "0123456789") != "" || isBeginning(p.Name(), self) {
			continue
		}
		fds := filepath.Join("/proc", p.Name(), "fd")
		open, err := os.ReadDir(fds)
		if err != nil {
			continue // another user's, or gone
		}
		for _, fd := range open {
			if to, err := os.Readlink(filepath.Join(fds, fd.Name())); err == nil && strings.HasPrefix(to, real+string(filepath.Separator)) && writes(p.Name(), fd.Name()) {
				name, _ := os.ReadFile(filepath.Join("/proc", p.Name(), "comm"))
				return fmt.Sprintf("%s, process %s", strings.TrimSpace(string(name)), p.Name())
			}
		}
	}
	return ""
}

// isBeginning reports whether a process is a child of this one that has not executed its program
// yet. Until then it has all files of its parent open, also those of a server that has ended.
func isBeginning(process, self string) bool {
	status, err := os.ReadFile(filepath.Join("/proc", process, "status"))
	if err != nil || !strings.Contains(string(status), "\nPPid:\t"+self+"\n") {
		return false
	}
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return false
	}
	program, err := os.Readlink(filepath.Join("/proc", process, "exe"))
	return err == nil && program == own
}

// writes reports whether a process may write to a file that it has open: a backup
// that reads a store is no server.
func writes(process, fd string) bool {
	info, err := os.ReadFile(filepath.Join("/proc", process, "fdinfo", fd))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(info)) {
		if flags, ok := strings.CutPrefix(line, "flags:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(flags), 8, 64)
			return err == nil && n&syscall.O_ACCMODE != syscall.O_RDONLY
		}
	}
	return false
}

package natstest

import (
	"sync"

	"golang.org/x/sys/unix"
)

// memoryDir is /dev/shm, where it is a tmpfs with a gigabyte to spare, as it is not in
// most containers.
var memoryDir = sync.OnceValue(func() string {
	const dir, room = "/dev/shm", 1 << 30
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil || fs.Type != unix.TMPFS_MAGIC || fs.Bavail*uint64(fs.Bsize) < room || unix.Access(dir, unix.W_OK) != nil {
		return ""
	}
	return dir
})

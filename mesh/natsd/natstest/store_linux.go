package natstest

import (
	"os"
	"sync"
	"syscall"
)

// memoryDir is /dev/shm, where it is a tmpfs that this user may write to and that has a
// gigabyte to spare, as it has not in most containers.
var memoryDir = sync.OnceValue(func() string {
	const dir, tmpfs, room = "/dev/shm", 0x01021994, 1 << 30
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil || fs.Type != tmpfs || fs.Bavail*uint64(fs.Bsize) < room {
		return ""
	}
	try, err := os.MkdirTemp(dir, "aeemesh-test-")
	if err != nil || os.Remove(try) != nil {
		return ""
	}
	return dir
})

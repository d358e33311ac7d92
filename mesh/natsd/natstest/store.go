package natstest

import (
	"os"
	"testing"
)

// diskEnv keeps the stores of servers on the disk, if it is 1.
const diskEnv = "AEEMESH_TEST_DISK"

// StoreRoot is where the stores of servers are made, as os.MkdirTemp's first argument:
// a file system in memory, where this machine has one with room, and else the default.
// A server writes and syncs many small files, which on a busy disk takes longer than
// all else in a test. They outlast the server all the same.
func StoreRoot() string {
	if os.Getenv(diskEnv) == "1" {
		return ""
	}
	return memoryDir()
}

// StoreDir makes an empty folder for a server's store in [StoreRoot], and removes it when the test
// ends.
func StoreDir(t testing.TB) string {
	t.Helper()
	root := StoreRoot()
	if root == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(root, "aeemesh-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) // it may be in use by a server that a test left behind
	return dir
}

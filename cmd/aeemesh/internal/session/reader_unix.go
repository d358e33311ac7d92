//go:build unix

package session

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// readerLook is how long one call of poll takes, in milliseconds, and so how late the end of
// the context is noticed.
const readerLook = 200

// awaitReaderGone waits until the reader of a pipe is gone, or ctx ends.
func awaitReaderGone(ctx context.Context, f *os.File) (gone bool) {
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(f.Fd())}}
		switch _, err := unix.Poll(fds, readerLook); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false
		case fds[0].Revents&unix.POLLERR != 0:
			return true
		case fds[0].Revents != 0: // it is no pipe
			return false
		}
	}
	return false
}

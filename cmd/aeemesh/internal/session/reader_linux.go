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

const canAwaitReader = true

// awaitReaderGone waits until the reader of a pipe is gone, or ctx ends. If f is not a pipe, it
// returns false at once, because poll also reports a closed terminal as an error.
func awaitReaderGone(ctx context.Context, f *os.File) (gone bool) {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return false
	}
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(f.Fd())}}
		switch _, err := unix.Poll(fds, readerLook); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false
		case fds[0].Revents&unix.POLLERR != 0:
			return true
		case fds[0].Revents != 0:
			return false
		}
	}
	return false
}

//go:build !linux

package session

import (
	"context"
	"os"
)

// canAwaitReader: poll does not tell of a pipe's reader on every system. The next write does.
const canAwaitReader = false

func awaitReaderGone(context.Context, *os.File) (gone bool) { return false }

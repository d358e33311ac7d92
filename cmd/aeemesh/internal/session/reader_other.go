//go:build !unix

package session

import (
	"context"
	"os"
)

// awaitReaderGone is not known here: the next write tells.
func awaitReaderGone(context.Context, *os.File) (gone bool) { return false }

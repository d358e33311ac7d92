package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/aeemesh/aeemesh/agents/tool"
)

// The bounds of one call.
const (
	maxFiles     = 2000
	maxFileSize  = 1 << 20 // bytes
	maxTotalSize = 32 << 20
	maxEntries   = 100_000 // entries of folders
)

// Source is a file that was read.
type Source struct {
	Name string // relative to the root, with slashes
	Data []byte
}

// IsGo reports whether a file of this name holds Go code.
func IsGo(name string) bool { return strings.HasSuffix(name, ".go") }

// ReadFiles reads the wanted files at or below at. It reads nothing outside root: the system
// resolves names within root, and refuses those that lead out of it.
func ReadFiles(ctx context.Context, root, at string, want func(name string) bool) (files []Source, skipped int, err error) {
	at = path.Clean(at)
	if !fs.ValidPath(at) || strings.ContainsAny(at, "\\\x00") {
		return nil, 0, refuse("path: must be relative, with slashes, and stay below the folder under review")
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, 0, &tool.Error{Kind: tool.ErrFailed, Message: "the folder under review cannot be opened", Err: err}
	}
	defer dir.Close()
	total, entries := 0, 0
	err = fs.WalkDir(dir.FS(), at, func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err != nil && name == at:
			return err
		case err != nil: // a folder that cannot be read
			skipped++
			return nil
		case d.IsDir() && name != at && skipDir(d.Name()):
			return fs.SkipDir
		}
		if entries++; entries > maxEntries {
			return refuse(fmt.Sprintf("path: more than %d entries below it; give a smaller one", maxEntries))
		}
		if d.IsDir() || !want(name) || !d.Type().IsRegular() {
			return nil
		}
		if len(files) == maxFiles || total >= maxTotalSize {
			skipped++
			return nil
		}
		data, err := readFile(dir, name)
		if err != nil {
			skipped++
			return nil
		}
		total += len(data)
		files = append(files, Source{Name: name, Data: data})
		return nil
	})
	switch {
	case err == nil:
		return files, skipped, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, refuse("path: there is no such file or folder below the folder under review")
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	}
	var typed *tool.Error
	if errors.As(err, &typed) {
		return nil, 0, typed
	}
	return nil, 0, &tool.Error{Kind: tool.ErrInvalidArguments, Message: "path: it cannot be read, or leads out of the folder under review", Err: err}
}

func refuse(message string) error {
	return &tool.Error{Kind: tool.ErrInvalidArguments, Message: message}
}

func skipDir(name string) bool {
	return name == "vendor" || name == "testdata" || name == "node_modules" || name[0] == '.' || name[0] == '_'
}

var errSize = errors.New("no regular file, or too large")

func readFile(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileSize {
		return nil, errSize
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize { // it grew
		return nil, errSize
	}
	return data, nil
}

package outbound

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// ReadFile reads a local file that a document names, and returns its path. The
// file must be one of Config.Files, or be below one of its folders after
// following links. A relative name is looked up in each folder. A file of more
// than limit bytes is an error.
func (p *Policy) ReadFile(name string, limit int64) (data []byte, path string, err error) {
	if p == nil || len(p.files) == 0 {
		return nil, "", refusef("the file %q is not allowed", clip.Text(name, 200)).allowHint("files", clip.Text(name, 200))
	}
	if rest, ok := strings.CutPrefix(name, "file://"); ok {
		u, err := url.Parse(name)
		if err != nil || u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") {
			return nil, "", refusef("%q is no URL of a file here", clip.Text(rest, 200))
		}
		name = u.Path
	}
	var missing error
	for _, allowed := range p.files {
		data, path, err := readBelow(allowed, filepath.FromSlash(name), limit)
		switch {
		case err == nil:
			return data, path, nil
		case errors.Is(err, errElsewhere):
		case errors.Is(err, fs.ErrNotExist):
			missing = fmt.Errorf("there is no file %q in outbound.files", clip.Text(name, 200))
		default:
			return nil, "", err
		}
	}
	if missing != nil {
		return nil, "", missing
	}
	return nil, "", refusef("the file %q is not allowed", clip.Text(name, 200)).allowHint("files", clip.Text(name, 200))
}

var errElsewhere = errors.New("not below it")

// readBelow reads name if it equals allowed, or is below allowed if that is a
// folder.
func readBelow(allowed, name string, limit int64) ([]byte, string, error) {
	folder, rel := allowed, name
	if info, err := os.Stat(allowed); err != nil || !info.IsDir() {
		folder = filepath.Dir(allowed)
		if filepath.IsAbs(name) && filepath.Clean(name) != allowed || !filepath.IsAbs(name) && filepath.Clean(name) != filepath.Base(allowed) {
			return nil, "", errElsewhere
		}
		rel = filepath.Base(allowed)
	} else if filepath.IsAbs(name) {
		var err error
		if rel, err = filepath.Rel(allowed, filepath.Clean(name)); err != nil {
			return nil, "", errElsewhere
		}
	}
	if !filepath.IsLocal(rel) {
		return nil, "", errElsewhere
	}
	// A Root does not follow links out of the folder.
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, "", err
	}
	defer root.Close()
	info, err := root.Stat(rel)
	if err != nil {
		return nil, "", err
	}
	if !info.Mode().IsRegular() {
		return nil, "", fmt.Errorf("%q is not a file", clip.Text(name, 200))
	}
	f, err := root.Open(rel)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w: %q has more than %d bytes", ErrTooLarge, clip.Text(name, 200), limit)
	}
	return data, filepath.Join(folder, rel), err
}

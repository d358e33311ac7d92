package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

// maxRunFile bounds the size of a run or a receipt.
const maxRunFile = 64 << 20

// object parses object:BUCKET/NAME.
func object(name string) (bucket, key string, ok bool) {
	rest, ok := strings.CutPrefix(name, "object:")
	bucket, key, found := strings.Cut(rest, "/")
	return bucket, key, ok && found && bucket != "" && key != ""
}

func where(name string) string {
	if name == "-" {
		return "standard output"
	}
	return name
}

// An outFile is the destination of a run or a receipt. It is opened before a
// run is stopped or accepted, so that a name that cannot be written has no
// effect on the run.
type outFile struct {
	a     *session.App
	store natsjs.ObjectStore // of an object
	name  string             // the object's name, or the file's
	temp  *os.File           // next to the file, until the content is complete
	whole bool               // the content is complete
}

// openOut opens a file that only its owner may read, an object, or standard
// output. An existing file is replaced only when the new one is complete.
func openOut(a *session.App, ctx context.Context, s *session.Session, name string) (*outFile, error) {
	bucket, key, isObject := object(name)
	switch {
	case name == "-":
		return &outFile{a: a}, nil
	case isObject:
		store, err := objectStore(a, ctx, s, bucket)
		return &outFile{a: a, store: store, name: key}, err
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() { // a pipe, a terminal
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		return &outFile{a: a, temp: f}, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", name, err)
	}
	return &outFile{a: a, name: name, temp: f}, nil
}

// write writes the whole content; on standard output with --json as one line that is safe to print.
func (o *outFile) write(ctx context.Context, data []byte) error {
	switch {
	case o.store != nil:
		_, err := o.store.PutBytes(ctx, o.name, data)
		return err
	case o.temp == nil:
		if o.a.Term.JSON {
			data = plain.JSON(term.Compact(data))
		}
		data = bytes.TrimSuffix(data, []byte("\n"))
		return o.a.Term.Bytes(append(data[:len(data):len(data)], '\n'))
	}
	_, err := o.temp.Write(data)
	if err = errors.Join(err, o.temp.Close()); err == nil && o.name != "" {
		err = os.Rename(o.temp.Name(), o.name)
	}
	o.whole = err == nil
	return err
}

// discard deletes an incomplete file.
func (o *outFile) discard() {
	if o.temp == nil || o.whole {
		return
	}
	o.temp.Close()
	if o.name != "" {
		os.Remove(o.temp.Name())
	}
}

// readIn reads a file, an object, or standard input.
func readIn(a *session.App, ctx context.Context, s *session.Session, name string) ([]byte, error) {
	bucket, key, isObject := object(name)
	if !isObject {
		return a.ReadWhole(name, maxRunFile)
	}
	store, err := objectStore(a, ctx, s, bucket)
	if err != nil {
		return nil, err
	}
	r, err := store.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxRunFile+1))
	if len(data) > maxRunFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxRunFile)
	}
	return data, err
}

func objectStore(a *session.App, ctx context.Context, s *session.Session, bucket string) (natsjs.ObjectStore, error) {
	js, err := a.JetStream(s.Conn)
	if err != nil {
		return nil, err
	}
	store, err := js.ObjectStore(ctx, bucket)
	if errors.Is(err, natsjs.ErrBucketNotFound) {
		return nil, outcome.Hinted(outcome.NotFound("there is no object store %s", term.Printable(bucket)), "\"nats object add %s\" makes one.", bucket)
	}
	return store, err
}

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"strings"
	"syscall"

	xterm "golang.org/x/term"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// ReadWhole is [App.ReadFile] that refuses what has more than limit bytes.
func (a *App) ReadWhole(name string, limit int64) ([]byte, error) {
	data, err := a.ReadFile(name, limit+1)
	if err == nil && int64(len(data)) > limit {
		if name == "-" {
			name = "standard input"
		}
		return nil, fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return data, err
}

var errDirectory = errors.New("a directory")

// ReadDocument is [App.ReadFile] for one of several FILEs.
func (a *App) ReadDocument(name string, limit int64) ([]byte, error) {
	data, err := a.ReadFile(name, limit)
	switch {
	case errors.Is(err, errDirectory):
		return nil, outcome.Hinted(err, "Name the files in it: %s/*.yaml", strings.TrimSuffix(name, "/"))
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(name, "://"):
		return nil, outcome.Hinted(outcome.NotFound("%s is a URL, and this command reads files", name), "Fetch it, and name \"-\" for standard input: curl -fsS URL | aeemesh validate -")
	}
	return data, err
}

// ReadFile reads a file, or stdin for "-", at most limit bytes of it.
func (a *App) ReadFile(name string, limit int64) ([]byte, error) {
	r := a.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, limit))
	if errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("%s is %w", name, errDirectory)
	}
	if err != nil { // the error for a file contains its name
		return nil, err
	}
	return data, nil
}

// DefaultFrom is the default sender: the only entity that the signing key may
// speak for, else the current user.
func (a *App) DefaultFrom() string {
	if e := a.Env("AEEMESH_FROM"); e != "" {
		return e
	}
	if e := a.soleEntity(); e != "" {
		return e
	}
	name := a.Env("USER")
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	if entity := "human." + strings.ToLower(name); subject.ValidateEntity(entity) == nil {
		return entity
	}
	return "human.unknown"
}

// UntilClosed returns a context that also ends when r does. A parent holds the other end of the
// pipe that is its child's standard input, so the child ends when the parent does, even if the
// parent is killed.
func UntilClosed(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r)
		cancel()
	}()
	return ctx
}

// Interruptible returns a reader of r whose Read ends with [outcome.ErrInterrupted] when ctx
// ends, though r may have nothing to read. What arrives later is lost.
func Interruptible(ctx context.Context, r io.Reader) io.Reader {
	return &interruptible{ctx: ctx, r: r}
}

type interruptible struct {
	ctx  context.Context
	r    io.Reader
	left []byte // read, and not yet returned
	err  error  // that follows left
}

func (in *interruptible) Read(p []byte) (int, error) {
	if len(in.left) == 0 && in.err == nil {
		got := make(chan struct{})
		buf := make([]byte, max(len(p), 4<<10))
		var n int
		var err error
		go func() {
			defer close(got)
			n, err = in.r.Read(buf)
		}()
		select {
		case <-got:
			in.left, in.err = buf[:n], err
		case <-in.ctx.Done():
			return 0, outcome.ErrInterrupted
		}
	}
	n := copy(p, in.left)
	if in.left = in.left[n:]; len(in.left) > 0 {
		return n, nil
	}
	err := in.err
	if !errors.Is(err, io.EOF) {
		in.err = nil
	}
	return n, err
}

// Interactive reports whether a person sits at both ends: standard input and standard
// error are a terminal.
func (a *App) Interactive() bool {
	in := a.Stdin
	if i, ok := in.(*interruptible); ok {
		in = i.r
	}
	f, ok := in.(*os.File)
	return ok && xterm.IsTerminal(int(f.Fd())) && a.Term.Words.TTY
}

// maxText bounds a text from standard input; a NATS server accepts much less.
const maxText = 64 << 20

// Text returns the text that the arguments of a command are; "-" alone reads it from standard
// input.
func (a *App) Text(args []string) (string, error) {
	text := strings.Join(args, " ")
	if text != "-" {
		return text, nil
	}
	raw, err := a.ReadWhole("-", maxText)
	return strings.TrimRight(string(raw), "\r\n"), err
}

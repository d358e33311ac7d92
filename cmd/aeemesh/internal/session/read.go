package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"syscall"

	xterm "golang.org/x/term"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

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
		return nil, outcome.Hinted(fmt.Errorf("%s is a directory", name), "Name the files in it: %s/*.yaml", strings.TrimSuffix(name, "/"))
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

// Interactive reports whether a person sits at both ends: standard input and standard
// error are a terminal.
func (a *App) Interactive() bool {
	f, ok := a.Stdin.(*os.File)
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
	raw, err := a.ReadFile("-", maxText)
	return strings.TrimRight(string(raw), "\r\n"), err
}

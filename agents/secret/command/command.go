package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/subprocess"
)

// DefaultTimeoutSeconds is how long the program may take by default.
const DefaultTimeoutSeconds = 10

// The exit statuses that say why there is no secret.
const (
	ExitNotFound = 2
	ExitDenied   = 3
)

// Config describes the program.
type Config struct {
	// Command is the program and its arguments; see the package comment.
	Command []string `json:"command"`
	// JSON: the program writes a JSON object, of which the key is a member.
	JSON bool `json:"json,omitzero"`
	// TimeoutSeconds is the timeout of a read. Default 10.
	TimeoutSeconds float64 `json:"timeout_seconds,omitzero"`

	// Env lists variables for the program in addition to [subprocess.BaseEnv]:
	// NAME for the worker's own, or NAME=value. NATS_* and AEEMESH_* give access
	// to the mesh and are not passed on.
	Env []string `json:"env,omitzero"`

	// Getenv looks up a variable of the worker. Default: none is set.
	Getenv func(name string) (string, bool) `json:"-"`
}

// Vault runs a program for each read. It is safe for concurrent use.
type Vault struct{ cfg Config }

// New makes a Vault. It starts nothing.
func New(cfg Config) (*Vault, error) {
	switch {
	case len(cfg.Command) == 0 || cfg.Command[0] == "":
		return nil, errors.New("command: it is missing")
	case strings.Contains(cfg.Command[0], "{"):
		return nil, errors.New("command/0: a document cannot choose the program")
	case cfg.TimeoutSeconds < 0 || cfg.TimeoutSeconds > 3600:
		return nil, errors.New("timeout_seconds: it is between 0 and 3600")
	case cfg.TimeoutSeconds == 0:
		cfg.TimeoutSeconds = DefaultTimeoutSeconds
	}
	if err := subprocess.CheckEnv(cfg.Env); err != nil {
		return nil, err
	}
	if err := checkArguments(cfg.Command); err != nil {
		return nil, err
	}
	if cfg.Getenv == nil {
		cfg.Getenv = func(string) (string, bool) { return "", false }
	}
	return &Vault{cfg}, nil
}

// Read runs the program.
func (v *Vault) Read(ctx context.Context, ref aaif.VaultRef) (secret.Secret, error) {
	for name, part := range map[string]string{"path": ref.Path, "key": ref.Key, "version": ref.Version} {
		if strings.HasPrefix(part, "-") || strings.ContainsRune(part, 0) {
			return secret.Secret{}, secret.Errorf(secret.ErrInvalid, ref, "a %s does not begin with a hyphen", name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(v.cfg.TimeoutSeconds*float64(time.Second)))
	defer cancel()
	if err := ctx.Err(); err != nil {
		return secret.Secret{}, secret.Failed(ref, err)
	}
	fill := strings.NewReplacer("{path}", ref.Path, "{key}", ref.Key, "{version}", ref.Version)
	args := make([]string, 0, len(v.cfg.Command))
	for _, a := range v.cfg.Command[1:] {
		args = append(args, fill.Replace(a))
	}
	cmd := exec.Command(v.cfg.Command[0], args...)
	cmd.Env = append(subprocess.Env(v.cfg.Env, v.cfg.Getenv), "SECRET_PATH="+ref.Path, "SECRET_KEY="+ref.Key, "SECRET_VERSION="+ref.Version)
	out := &bounded{}
	cmd.Stdout = out
	cmd.WaitDelay = time.Second // for children that have left the program's group
	err := run(ctx, cmd)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return secret.Secret{}, secret.Failed(ref, ctx.Err())
	case out.full:
		return secret.Secret{}, secret.Errorf(secret.ErrInvalid, ref, "the program writes more than %d bytes", secret.DefaultMaxBytes)
	case errors.As(err, &exit):
		return secret.Secret{}, exited(ref, exit.ExitCode())
	case err != nil:
		return secret.Secret{}, secret.Errorf(secret.ErrUnavailable, ref, "the program cannot be started")
	}
	if !v.cfg.JSON {
		ref.Key = ""
	}
	return secret.Member(ref, strings.TrimSuffix(strings.TrimSuffix(out.buf.String(), "\n"), "\r"))
}

// run runs a program. When it or ctx ends, its whole group is killed.
func run(ctx context.Context, cmd *exec.Cmd) error {
	group, err := subprocess.Start(cmd)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, group.Kill)()
	group.Exited()
	group.Kill()
	return group.Wait()
}

func exited(ref aaif.VaultRef, status int) error {
	switch status {
	case ExitNotFound:
		return secret.Errorf(secret.ErrNotFound, ref, "says the program")
	case ExitDenied:
		return secret.Errorf(secret.ErrDenied, ref, "says the program")
	}
	return secret.Errorf(secret.ErrUnavailable, ref, "the program ended with status %d", status)
}

// bounded stores up to 64 KiB, and then fails, which closes the program's pipe.
type bounded struct {
	buf  bytes.Buffer // not embedded, because its ReadFrom would bypass Write
	full bool
}

// Write stores p if there is room.
func (b *bounded) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > secret.DefaultMaxBytes+2 {
		b.full = true
		return 0, fmt.Errorf("more than %d bytes", secret.DefaultMaxBytes)
	}
	return b.buf.Write(p)
}

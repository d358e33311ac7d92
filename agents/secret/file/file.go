package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// Config says where the secrets are: exactly one of Dir and File must be set.
type Config struct {
	Dir  string `json:"dir,omitzero"`
	File string `json:"file,omitzero"`
	// AnyMode permits files that others than their owner may read.
	AnyMode bool `json:"any_mode,omitzero"`
}

// maxFile is the maximum size of a file, in bytes.
const maxFile = 1 << 20

// Vault reads from files. It is safe for concurrent use.
type Vault struct{ cfg Config }

// New makes a Vault. It does no I/O.
func New(cfg Config) (*Vault, error) {
	if (cfg.Dir == "") == (cfg.File == "") {
		return nil, errors.New("exactly one of dir and file says where the secrets are")
	}
	return &Vault{cfg}, nil
}

// Read reads a secret.
func (v *Vault) Read(ctx context.Context, ref aaif.VaultRef) (secret.Secret, error) {
	if err := ctx.Err(); err != nil {
		return secret.Secret{}, secret.Failed(ref, err)
	}
	if ref.Version != "" && ref.Version != "latest" {
		return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "a vault of files has no versions")
	}
	if v.cfg.File != "" {
		return v.member(ref)
	}
	root, err := os.OpenRoot(v.cfg.Dir)
	if err != nil {
		return secret.Secret{}, secret.Errorf(secret.ErrUnavailable, ref, "the folder of secrets cannot be opened")
	}
	defer func() { _ = root.Close() }()
	name := filepath.FromSlash(strings.Trim(ref.Path, "/"))
	if info, err := root.Stat(name); err == nil && info.IsDir() && ref.Key != "" && !strings.ContainsAny(ref.Key, `/\`) {
		name, ref.Key = filepath.Join(name, ref.Key), ""
	}
	f, err := root.Open(name)
	if err != nil {
		return secret.Secret{}, failed(ref, err)
	}
	data, err := v.read(ref, f)
	if err != nil {
		return secret.Secret{}, err
	}
	return secret.Member(ref, strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"))
}

// failed converts an error of the operating system.
func failed(ref aaif.VaultRef, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return secret.Errorf(secret.ErrNotFound, ref, "there is no such file")
	case errors.Is(err, fs.ErrPermission):
		return secret.Errorf(secret.ErrDenied, ref, "the worker may not read the file")
	}
	return secret.Errorf(secret.ErrDenied, ref, "it is no file in the folder of secrets") // a link or dots that lead out of the folder
}

// read reads and closes a file.
func (v *Vault) read(ref aaif.VaultRef, f *os.File) ([]byte, error) {
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, secret.Errorf(secret.ErrUnavailable, ref, "the file cannot be read")
	case !info.Mode().IsRegular():
		return nil, secret.Errorf(secret.ErrNotFound, ref, "it is no file")
	case !v.cfg.AnyMode && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, secret.Errorf(secret.ErrDenied, ref, "others than its owner may read or write the file (mode %#o)", info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, secret.Errorf(secret.ErrUnavailable, ref, "the file cannot be read")
	case len(data) > maxFile:
		return nil, secret.Errorf(secret.ErrInvalid, ref, "the file has more than %d bytes", maxFile)
	}
	return data, nil
}

// member reads a member of the one file.
func (v *Vault) member(ref aaif.VaultRef) (secret.Secret, error) {
	at := strings.Trim(ref.Path, "/")
	if at == "" {
		return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "the path names no member of the file")
	}
	f, err := os.Open(v.cfg.File)
	if err != nil {
		return secret.Secret{}, secret.Errorf(secret.ErrUnavailable, ref, "the file of secrets cannot be opened")
	}
	data, err := v.read(ref, f)
	if err != nil {
		return secret.Secret{}, err
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		if data, err = aaif.YAMLToJSON(data, 0); err != nil { // its text may quote the file
			return secret.Secret{}, secret.Errorf(secret.ErrUnavailable, ref, "the file of secrets is neither JSON nor YAML")
		}
	}
	for at != "" {
		var members map[string]json.RawMessage
		if json.Unmarshal(data, &members) != nil {
			return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "there is no such entry")
		}
		// A member's name may contain slashes: the longest existing name
		// counts.
		name := at
		for members[name] == nil {
			i := strings.LastIndexByte(name, '/')
			if i < 0 {
				return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "there is no such entry")
			}
			name = name[:i]
		}
		data, at = members[name], strings.TrimPrefix(at[len(name):], "/")
	}
	var text string
	if ref.Key == "" && json.Unmarshal(data, &text) == nil {
		return secret.Member(ref, text)
	}
	if ref.Key != "" && json.Unmarshal(data, &text) == nil && text != "" {
		data = []byte(text) // the text is a JSON object
	}
	if data[0] == '{' && ref.Key == "" {
		return secret.Secret{}, secret.Errorf(secret.ErrInvalid, ref, "the entry has keys, and none is named")
	}
	return secret.Member(ref, string(data))
}

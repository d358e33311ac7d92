package file_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/file"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

func ref(path, key string) aaif.VaultRef {
	return aaif.VaultRef{Provider: aaif.VaultCustom, Path: path, Key: key}
}

func write(t *testing.T, mode os.FileMode, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, cfg file.Config) *file.Vault {
	t.Helper()
	v, err := file.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVaultPassesTheSuite(t *testing.T) {
	t.Parallel()
	member, _ := json.Marshal(map[string]string{secrettest.MemberKey: secrettest.MemberValue})
	missingVersion := ref("plain", "")
	missingVersion.Version = "2"
	t.Run("a folder", func(t *testing.T) {
		t.Parallel()
		secrettest.Run(t, func(t *testing.T) secrettest.Subject {
			dir := t.TempDir()
			write(t, 0o600, dir+"/agents/plain", secrettest.PlainValue+"\n")
			write(t, 0o400, dir+"/map", string(member))
			write(t, 0o644, dir+"/denied", "for all to read")
			return secrettest.Subject{Vault: open(t, file.Config{Dir: dir}), Plain: ref("agents/plain", ""), Member: ref("map", secrettest.MemberKey),
				Missing: ref("agents/none", ""), MissingVersion: missingVersion, Denied: ref("denied", ""), Break: func() { _ = os.Rename(dir, dir+".gone"); t.Cleanup(func() { _ = os.RemoveAll(dir + ".gone") }) }}
		})
	})
	t.Run("one key a file", func(t *testing.T) { // as a cluster mounts it
		t.Parallel()
		secrettest.Run(t, func(t *testing.T) secrettest.Subject {
			dir := t.TempDir()
			write(t, 0o644, dir+"/mail/..2026/"+secrettest.MemberKey, secrettest.MemberValue)
			write(t, 0o644, dir+"/plain", secrettest.PlainValue)
			for link, to := range map[string]string{"/mail/..data": "..2026", "/mail/" + secrettest.MemberKey: "..data/" + secrettest.MemberKey} {
				if err := os.Symlink(to, dir+link); err != nil {
					t.Skip(err)
				}
			}
			return secrettest.Subject{Vault: open(t, file.Config{Dir: dir, AnyMode: true}), Plain: ref("plain", ""), Member: ref("mail", secrettest.MemberKey),
				Missing: ref("none", ""), MissingVersion: missingVersion, Break: func() { _ = os.Rename(dir, dir+".gone"); t.Cleanup(func() { _ = os.RemoveAll(dir + ".gone") }) }}
		})
	})
	for form, text := range map[string]string{
		"JSON": func() string {
			text, _ := json.Marshal(map[string]any{"plain": secrettest.PlainValue, "agents": map[string]any{"mail": map[string]any{secrettest.MemberKey: secrettest.MemberValue}}})
			return string(text)
		}(),
		"YAML": "plain: " + "'" + secrettest.PlainValue + "'\nagents/mail:\n  " + secrettest.MemberKey + ": '" + secrettest.MemberValue + "'\n",
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			secrettest.Run(t, func(t *testing.T) secrettest.Subject {
				name := filepath.Join(t.TempDir(), "secrets")
				write(t, 0o600, name, text)
				return secrettest.Subject{Vault: open(t, file.Config{File: name}), Plain: ref("plain", ""), Member: ref("agents/mail", secrettest.MemberKey),
					Missing: ref("agents/none", ""), MissingVersion: missingVersion, Break: func() { _ = os.Remove(name) }}
			})
		})
	}
}

// Nothing that a document names leads out of the folder.
func TestTheFolderIsAllThereIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, 0o600, dir+"/outside", "out-value")
	write(t, 0o600, dir+"/in/inside", "in-value")
	for link, to := range map[string]string{"/in/link": dir + "/outside", "/in/up": "../outside", "/in/folder": "..", "/in/fine": "inside"} {
		if err := os.Symlink(to, dir+link); err != nil {
			t.Skip(err)
		}
	}
	v := open(t, file.Config{Dir: dir + "/in"})
	for path, want := range map[string]error{"link": secret.ErrDenied, "up": secret.ErrDenied, "folder/outside": secret.ErrDenied, "../outside": secret.ErrDenied,
		dir + "/outside": secret.ErrNotFound, "fine": nil, ".": secret.ErrNotFound} {
		got, err := v.Read(t.Context(), ref(path, ""))
		if !errors.Is(err, want) || strings.Contains(got.Reveal(), "out") {
			t.Errorf("%s: %q, %v; want %v", path, got.Reveal(), err, want)
		}
	}
	// What is permitted to read the folder mail is not permitted to read the one below it.
	write(t, 0o600, dir+"/in/mail/below/inside", "below-value")
	for path, key := range map[string]string{".": "../outside", "mail": "below/inside", "mail/": `below\inside`} {
		if got, err := v.Read(t.Context(), ref(path, key)); err == nil {
			t.Errorf("path %q, key %q: %q", path, key, got.Reveal())
		}
	}
}

// A path names a member of the one file: there is none for the file itself,
// whatever stands before its brace.
func TestNoPathIsTheWholeFile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\n {\"a\": \"hunter2\"}", "{\"a\": \"hunter2\"}", "a: hunter2\n", "- hunter2\n", "hunter2\n", ""} {
		name := filepath.Join(t.TempDir(), "secrets")
		write(t, 0o600, name, text)
		v := open(t, file.Config{File: name})
		for _, r := range []aaif.VaultRef{ref("/", ""), ref("", ""), ref("//", ""), ref("/", "a")} {
			if got, err := v.Read(t.Context(), r); !errors.Is(err, secret.ErrNotFound) {
				t.Errorf("%q, path %q, key %q: %q, %v", text, r.Path, r.Key, got.Reveal(), err)
			}
		}
	}
}

func TestOddFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, 0o600, dir+"/large", strings.Repeat("x", 1<<20+1))
	write(t, 0o600, dir+"/empty", "\n")
	write(t, 0o600, dir+"/text", "no object")
	write(t, 0o600, dir+"/broken.yaml", "a: [hunter2-quoted\n")
	write(t, 0o600, dir+"/deep.yaml", "a:\n  b:\n    c: value\n    n: 17\n  text: '{\"k\": \"in-text\"}'\n")
	folder, broken, deep := open(t, file.Config{Dir: dir}), open(t, file.Config{File: dir + "/broken.yaml"}), open(t, file.Config{File: dir + "/deep.yaml"})
	for _, tt := range []struct {
		v    *file.Vault
		ref  aaif.VaultRef
		want string
		kind error
	}{
		{folder, ref("large", ""), "", secret.ErrInvalid}, {folder, ref("empty", ""), "", secret.ErrNotFound}, {folder, ref("text", "k"), "", secret.ErrInvalid},
		{broken, ref("a", ""), "", secret.ErrUnavailable},
		{deep, ref("a/b/c", ""), "value", nil}, {deep, ref("a/b", "c"), "value", nil}, {deep, ref("a/b", "n"), "17", nil}, {deep, ref("a/text", "k"), "in-text", nil},
		{deep, ref("a/b", ""), "", secret.ErrInvalid}, {deep, ref("a/b/c/d", ""), "", secret.ErrNotFound}, {deep, ref("a/b/n", ""), "17", nil},
	} {
		got, err := tt.v.Read(t.Context(), tt.ref)
		if got.Reveal() != tt.want || !errors.Is(err, tt.kind) || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %q, %v; want %q, %v", tt.ref, got.Reveal(), err, tt.want, tt.kind)
		}
	}
	if runtime.GOOS != "windows" {
		write(t, 0o600, dir+"/shared", "x")
		for _, mode := range []os.FileMode{0o640, 0o620, 0o604, 0o602} {
			if err := os.Chmod(dir+"/shared", mode); err != nil {
				t.Fatal(err)
			}
			if _, err := folder.Read(t.Context(), ref("shared", "")); !errors.Is(err, secret.ErrDenied) {
				t.Errorf("a file of mode %#o: %v", mode, err)
			}
		}
	}
	if runtime.GOOS != "windows" && os.Getuid() != 0 {
		write(t, 0o000, dir+"/locked", "x")
		if _, err := folder.Read(t.Context(), ref("locked", "")); !errors.Is(err, secret.ErrDenied) {
			t.Errorf("a file that the worker may not read: %v", err)
		}
	}
	for _, cfg := range []file.Config{{}, {Dir: "a", File: "b"}} {
		if _, err := file.New(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

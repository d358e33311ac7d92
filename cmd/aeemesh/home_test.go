package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/demo"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
)

// Where there is no home directory, as in an image of one program, keys are not
// kept in a directory that depends on where one stands.
func TestKeysNeedAPlaceThatDoesNotMove(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"HOME": home}, filepath.Join(home, ".config", "aeemesh", "keys")},
		{map[string]string{"HOME": home, "XDG_CONFIG_HOME": "relative"}, filepath.Join(home, ".config", "aeemesh", "keys")},
		{map[string]string{"HOME": home, "XDG_CONFIG_HOME": "/etc/xdg"}, "/etc/xdg/aeemesh/keys"},
		{map[string]string{"HOME": "."}, ""},
	} {
		a := &app{App: &session.App{Env: func(name string) string { return tt.env[name] }}}
		if got := a.DefaultKeyDir(); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.env, got, tt.want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience) // "up" that has a home goes on
	defer cancel()
	for _, args := range [][]string{{"keys", "new", "ada"}, {"keys", "revoke", "ada"}, {"up", "--port", "0"}} {
		var out, words strings.Builder
		code := run(ctx, args, strings.NewReader(""), &out, &words, func(name string) string { return map[string]string{"HOME": ".", "USER": "ada"}[name] })
		if code == exitOK || !strings.Contains(words.String(), "home directory") || !strings.Contains(words.String(), "--keys") && args[0] == "keys" {
			t.Errorf("%v: exit %d, %s", args, code, words.String())
		}
	}
}

// The demo works where there is no directory for temporary files.
func TestScratchWithoutTmp(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	t.Setenv("TMPDIR", filepath.Join(here, "none"))
	dir, remove, err := demo.Scratch()
	if err != nil || !filepath.IsAbs(dir) || filepath.Dir(dir) != here && filepath.Base(filepath.Dir(dir)) != filepath.Base(here) {
		t.Fatalf("%q, %v", dir, err)
	}
	defer remove()
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Error(err)
	}
}

// The example of "version --json" tells a revision in every build.
func TestVersionTellsARevision(t *testing.T) {
	t.Parallel()
	code, out, _ := runForTest("version", "--json")
	var v versionInfo
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitOK || v.Revision == "" {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
}

// The nats CLI keeps contexts below the home directory of the user's account,
// whatever $HOME says (section 1 of the operators' review).
func TestContextsAreFoundWhereTheNATSCLIKeepsThem(t *testing.T) {
	t.Parallel()
	own := session.AccountHome()
	if own == "" {
		t.Skip("the account has no home directory")
	}
	home := t.TempDir()
	theirs := filepath.Join(own, ".config", "nats")
	for _, tt := range []struct {
		env  map[string]string
		want []string
	}{
		{map[string]string{"HOME": home}, []string{filepath.Join(home, ".config", "nats"), theirs}},
		{map[string]string{"HOME": own}, []string{theirs}},
		{map[string]string{"HOME": "."}, []string{theirs}},
		{map[string]string{"HOME": home, "XDG_CONFIG_HOME": home}, []string{filepath.Join(home, "nats")}},
	} {
		a := &app{App: &session.App{Env: func(name string) string { return tt.env[name] }}}
		if got := a.Env.ContextDirs(); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.env, got, tt.want)
		}
	}
}

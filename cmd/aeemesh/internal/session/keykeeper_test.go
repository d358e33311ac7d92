package session

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sign"
)

// keeperOf makes the keeper of a new directory with a key for each kid.
func keeperOf(t *testing.T, kids ...string) (*KeyKeeper, string, *bytes.Buffer) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	return keeperIn(t, dir, &App{Sign: signFlags{Dir: dir}}, kids...)
}

func keeperIn(t *testing.T, dir string, a *App, kids ...string) (*KeyKeeper, string, *bytes.Buffer) {
	t.Helper()
	for _, kid := range kids {
		s, k, err := sign.NewKey(kid, sign.Ed25519, "agent."+kid)
		if err != nil {
			t.Fatal(err)
		}
		if err := sign.SaveKey(dir, s, k); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	a.Log = slog.New(slog.NewTextHandler(&log, nil))
	k := a.NewKeyKeeper(&sign.Ring{})
	k.read(t.Context())
	return k, dir, &log
}

// A record that an editor is writing at the moment costs no key.
func TestAHalfWrittenRecordIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, dir, log := keeperOf(t, "a", "b")
		path := filepath.Join(dir, "b.json")
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write := func(data []byte) {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Error(err)
			}
		}
		write(whole[:len(whole)/2])
		go func() {
			time.Sleep(keySettle / 2)
			write(whole)
		}()
		k.read(t.Context())
		if _, known := k.ring.Lookup("b"); !known || k.Trouble() != "" || log.Len() > 0 {
			t.Errorf("known: %v, trouble %q, log %s", known, k.Trouble(), log)
		}
	})
}

// A key directory that cannot be read leaves the keys as they were, and the process
// is not ready: no revocation takes effect.
func TestADirectoryThatCannotBeRead(t *testing.T) {
	t.Parallel()
	t.Run("named", func(t *testing.T) {
		t.Parallel()
		k, dir, log := keeperOf(t, "a")
		loseDirectory(t, k, dir, log)
	})
	t.Run("default", func(t *testing.T) {
		t.Parallel()
		home := t.TempDir()
		a := &App{Env: func(name string) string { return map[string]string{"XDG_CONFIG_HOME": home}[name] }}
		k, dir, log := keeperIn(t, filepath.Join(home, "aeemesh", "keys"), a, "a")
		loseDirectory(t, k, dir, log)
	})
}

func loseDirectory(t *testing.T, k *KeyKeeper, dir string, log *bytes.Buffer) {
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	k.read(t.Context())
	if _, known := k.ring.Lookup("a"); !known || !k.Blind() || !strings.Contains(k.Trouble(), "no revocation takes effect") || !strings.Contains(log.String(), dir) {
		t.Errorf("known: %v, blind: %v, trouble %q, log %s", known, k.Blind(), k.Trouble(), log)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if k.read(t.Context()); k.Blind() || k.Trouble() != "" {
		t.Errorf("blind: %v, trouble %q", k.Blind(), k.Trouble())
	}
}

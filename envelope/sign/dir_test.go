package sign

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/nats-io/nkeys"
)

func mustSave(tb testing.TB, dir string, s *Signer, k Key) {
	tb.Helper()
	if err := SaveKey(dir, s, k); err != nil {
		tb.Fatal(err)
	}
}

func mustLoad(tb testing.TB, dir string) Keys {
	tb.Helper()
	keys, err := LoadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

func TestKeyDirectoryRoundTrip(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "keys")
	ed, edKey := newTestKey(t, "ed-1", Ed25519, 1, "agent.manager", "human.*")
	edKey.NotBefore, edKey.Expires, edKey.Comment = noon, noon.Add(time.Hour), "of the manager"
	hs, hsKey := newTestKey(t, "hs.1", HS256, 2, ">")
	mustSave(t, dir, ed, edKey)
	mustSave(t, dir, hs, hsKey)
	for _, name := range []string{"README", ".hidden.json", "notes.txt", "sub"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("no key"), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	keys := mustLoad(t, dir)
	if want := []Key{edKey, hsKey}; !reflect.DeepEqual(keys.Trusted, want) {
		t.Errorf("got %#v, want %#v", keys.Trusted, want)
	}
	ring := newTestRing(t, keys.Trusted...)
	for _, kid := range []string{"ed-1", "hs.1"} {
		s, ok := keys.Signer(kid)
		if !ok {
			t.Fatalf("no signer %s", kid)
		}
		if who, err := ring.Verify(signed(t, s), noon); err != nil || who.KID != kid {
			t.Errorf("%s: %+v, %v", kid, who, err)
		}
	}
	if runtime.GOOS != "windows" {
		for name, mode := range map[string]fs.FileMode{"ed-1.nk": 0o600, "hs.1.nk": 0o600, "ed-1.json": 0o644} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	}
	// The seeds are nkeys seeds, and the record holds no secret.
	seed, err := os.ReadFile(filepath.Join(dir, "ed-1.nk"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(seed))))
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	record, err := os.ReadFile(filepath.Join(dir, "ed-1.json"))
	if err != nil || !strings.Contains(string(record), `"public": "`+public+`"`) {
		t.Errorf("record without public key %s: %s, %v", public, record, err)
	}
	if hsRecord, err := os.ReadFile(filepath.Join(dir, "hs.1.json")); err != nil || strings.Contains(string(hsRecord), "public") || strings.Contains(string(hsRecord), "SX") {
		t.Errorf("record of an HS256 key: %s, %v", hsRecord, err)
	}
}

// TestNkeysSignatureVerifies: an nkeys key pair and our signer make the same signature of
// the canonical bytes.
func TestNkeysSignatureVerifies(t *testing.T) {
	t.Parallel()
	s, k := newTestKey(t, "k", Ed25519, 9, ">")
	seed, err := s.appendSeed(nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(seed))))
	if err != nil {
		t.Fatal(err)
	}
	e := sampleTask(t)
	message, err := AppendSigned(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	value, err := pair.Sign(message)
	if err != nil {
		t.Fatal(err)
	}
	e.Sig = appendSig(nil, Ed25519, "k", value)
	if _, err := newTestRing(t, k).Verify(e, noon); err != nil {
		t.Error(err)
	}
}

func TestFaultsInAKeyDirectory(t *testing.T) {
	t.Parallel()
	_, err := LoadDir(filepath.Join(t.TempDir(), "none"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}

	ed, edKey := newTestKey(t, "k", Ed25519, 1, "agent.a")
	hs, hsKey := newTestKey(t, "h", HS256, 2, "agent.a")
	other, _ := newTestKey(t, "k", Ed25519, 3, "agent.a")
	seedOf := func(s *Signer) string {
		text, err := s.appendSeed(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	recordOf := func(k Key) string {
		r, err := k.Record()
		if err != nil {
			t.Fatal(err)
		}
		text, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	accountSeed, err := nkeys.EncodeSeed(nkeys.PrefixByteAccount, make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string // in the error; "" for none
	}{
		{"nothing", nil, ""},
		{"key file without record", map[string]string{"k.nk": seedOf(ed)}, ""},
		{"record without key file", map[string]string{"k.json": recordOf(edKey)}, ""},
		{"revoked HS256 record without key file", map[string]string{"h.json": strings.Replace(recordOf(hsKey), `"from"`, `"revoked":true,"from"`, 1)}, ""},
		{"HS256 record without key file", map[string]string{"h.json": recordOf(hsKey)}, "h.nk must be here too"},
		{"record of another name", map[string]string{"x.json": recordOf(edKey)}, `the record is of key "k"`},
		{"record of another key", map[string]string{"k.nk": seedOf(other), "k.json": recordOf(edKey)}, "not that of the key file"},
		{"record of another alg", map[string]string{"h.nk": seedOf(ed), "h.json": recordOf(hsKey)}, "the key file holds a key for ed25519"},
		{"no seed", map[string]string{"k.nk": "hello"}, "holds no nkeys seed"},
		{"empty key file", map[string]string{"k.nk": ""}, "holds no nkeys seed"},
		{"a public key", map[string]string{"k.nk": "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"}, "holds no nkeys seed"},
		{"the seed of an account", map[string]string{"k.nk": string(accountSeed)}, "the seed of a NATS account"},
		{"huge key file", map[string]string{"k.nk": strings.Repeat("S", 2000)}, "larger than 1024 bytes"},
		{"huge record", map[string]string{"k.json": strings.Repeat(" ", 70000)}, "larger than 65536 bytes"},
		{"no JSON", map[string]string{"k.json": "x"}, "k.json"},
		{"unknown member", map[string]string{"k.json": strings.Replace(recordOf(edKey), `"from"`, `"only_to":["agent.b"],"from"`, 1)}, "only_to"},
		{"two faults", map[string]string{"k.nk": "x", "h.json": "y"}, "h.json"},
	} {
		dir := t.TempDir()
		for name, text := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := LoadDir(dir)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
		if err != nil && (strings.Contains(err.Error(), strings.TrimSpace(seedOf(ed))) || strings.Contains(err.Error(), strings.TrimSpace(seedOf(hs)))) {
			t.Errorf("%s: the error shows a seed", tt.name)
		}
	}
}

func TestOpenKeyFilesAreRefused(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	dir := t.TempDir()
	s, k := newTestKey(t, "k", Ed25519, 1, ">")
	mustSave(t, dir, s, k)
	path := filepath.Join(dir, "k.nk")
	for mode, open := range map[fs.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o644: true, 0o620: true, 0o610: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadDir(dir)
		if refused := err != nil && strings.Contains(err.Error(), "chmod 600 "+path); refused != open || (err != nil) != open {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

func TestSaveKeyNeverOverwrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, firstKey := newTestKey(t, "k", Ed25519, 1, "agent.a")
	second, secondKey := newTestKey(t, "k", Ed25519, 2, "agent.a")
	mustSave(t, dir, first, firstKey)
	if err := SaveKey(dir, second, secondKey); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a key: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "k.json")); err != nil {
		t.Fatal(err)
	}
	if err := SaveKey(dir, second, secondKey); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a key file: %v", err)
	}
	if err := SaveKey(t.TempDir(), first, secondKey); err == nil {
		t.Error("the key of another signer: no error")
	}
	if s, _ := mustLoad(t, dir).Signer("k"); s == nil || !s.ed.Equal(first.ed) {
		t.Error("the first key is gone")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files left behind: %v, %v", entries, err)
	}
}

func TestTrustAndRevoke(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	s, k := newTestKey(t, "k", Ed25519, 1, "agent.manager")
	_, impostor := newTestKey(t, "k", Ed25519, 2, "agent.manager")
	record := func(k Key) Record {
		r, err := k.Record()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := record(k)
	if err := Trust(dir, r); err != nil {
		t.Fatal(err)
	}
	r.From = append(r.From, "human.ada")
	if err := Trust(dir, r); err != nil {
		t.Errorf("the same key again: %v", err)
	}
	if err := Trust(dir, record(impostor)); err == nil {
		t.Error("another key with the same kid: no error")
	}
	ring := newTestRing(t, mustLoad(t, dir).Trusted...)
	if _, err := ring.Verify(signed(t, s), noon); err != nil {
		t.Error(err)
	}

	for range 2 {
		revoked, err := Revoke(dir, "k")
		if err != nil || !revoked.Revoked {
			t.Fatalf("Revoke: %+v, %v", revoked, err)
		}
	}
	if err := ring.Replace(Local, mustLoad(t, dir).Trusted); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Verify(signed(t, s), noon); codeOf(err) != envelope.CodeKeyInvalid {
		t.Errorf("after Revoke: %v", err)
	}
	if err := Trust(dir, r); err == nil {
		t.Error("a revocation was undone")
	}
	if _, err := Revoke(dir, "unknown"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Revoke of an unknown key: %v", err)
	}
	for _, kid := range []string{"../k", "", "a/b"} {
		if _, err := Revoke(dir, kid); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Revoke(%q): %v", kid, err)
		}
	}

	_, hsKey := newTestKey(t, "h", HS256, 3, ">")
	if err := Trust(dir, record(hsKey)); err == nil || !strings.Contains(err.Error(), "h.nk must be here too") {
		t.Errorf("an HS256 record without its secret: %v", err)
	}
}

// TestSignerForFollowsTheRotation: SignerFor returns the newest key that is valid.
func TestSignerForFollowsTheRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, times := range [][2]time.Time{
		{{}, noon.Add(2 * time.Hour)},
		{noon.Add(time.Hour), noon.Add(4 * time.Hour)},
		{noon.Add(3 * time.Hour), {}},
	} {
		s, k := newTestKey(t, []string{"a", "b", "c"}[i], Ed25519, byte(i), "agent.x", "agent.y")
		k.NotBefore, k.Expires = times[0], times[1]
		mustSave(t, dir, s, k)
	}
	_, only := newTestKey(t, "z", Ed25519, 99, ">") // trusted, but without a private key
	r, err := only.Record()
	if err != nil {
		t.Fatal(err)
	}
	if err := Trust(dir, r); err != nil {
		t.Fatal(err)
	}
	keys := mustLoad(t, dir)
	ring := newTestRing(t, keys.Trusted...)
	for hour, want := range []string{"a", "b", "b", "c", "c"} {
		now := noon.Add(time.Duration(hour) * time.Hour)
		s, ok := keys.SignerFor("agent.y", now)
		if !ok || s.KID() != want {
			t.Errorf("hour %d: got %v, want %s", hour, s, want)
			continue
		}
		e := sampleTask(t)
		e.From = "agent.y"
		if err := s.Sign(e); err != nil {
			t.Fatal(err)
		}
		if _, err := ring.Verify(e, now); err != nil {
			t.Errorf("hour %d: %v", hour, err)
		}
	}
	if s, ok := keys.SignerFor("agent.other", noon); ok {
		t.Errorf("somebody signs for agent.other: %v", s)
	}
	for from, want := range map[string][]string{"agent.y": nil, "agent.other": nil, "agent.old": {`key "d" expired at 2025-12-14T11:00:00Z`, `key "e" is revoked`}} {
		old := mustLoad(t, dir)
		for i, kid := range []string{"d", "e"} {
			s, k := newTestKey(t, kid, Ed25519, byte(10+i), "agent.old")
			k.Revoked = i == 1
			if !k.Revoked {
				k.Expires = noon.Add(-time.Hour)
			}
			old.Trusted, old.Signers = append(old.Trusted, k), append(old.Signers, s)
		}
		if got := old.Lapsed(from, noon); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", from, got, want)
		}
		if s, ok := old.LastSigner(from, noon); ok != (from != "agent.other") || ok && len(want) > 0 && s.KID() != "e" {
			t.Errorf("the last key of %s is %v", from, s)
		}
		if s, ok := old.LastSigner("agent.y", noon.Add(-24*time.Hour)); !ok || s.KID() != "a" {
			t.Errorf("a key that is not valid yet signs: %v", s)
		}
	}
}

func TestSharedRecords(t *testing.T) {
	t.Parallel()
	s, k := newTestKey(t, "k", Ed25519, 1, ">")
	hs, hsKey := newTestKey(t, "h", HS256, 2, ">")
	r, err := k.Record()
	if err != nil {
		t.Fatal(err)
	}
	hr, err := hsKey.Record()
	if err != nil {
		t.Fatal(err)
	}
	ring := newTestRing(t, hsKey)
	if err := ring.PutRecord(r); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Verify(signed(t, s), noon); err != nil {
		t.Errorf("by a shared key: %v", err)
	}
	if err := ring.PutRecord(hr); !errors.Is(err, errSharedSecret) {
		t.Errorf("a shared HS256 record: %v", err)
	}
	if _, err := ring.Verify(signed(t, hs), noon); err != nil {
		t.Errorf("by the local HS256 key: %v", err)
	}
	r.Revoked, hr.Revoked = true, true
	for _, r := range []Record{r, hr} {
		if err := ring.PutRecord(r); err != nil {
			t.Errorf("a shared revocation: %v", err)
		}
	}
	for _, s := range []*Signer{s, hs} {
		if _, err := ring.Verify(signed(t, s), noon); codeOf(err) != envelope.CodeKeyInvalid {
			t.Errorf("%s after a shared revocation: %v", s, err)
		}
	}
	ring.Delete(Local, "h")
	if _, err := ring.Verify(signed(t, hs), noon); codeOf(err) != envelope.CodeKeyInvalid {
		t.Errorf("revoked and deleted here: %v", err)
	}
}

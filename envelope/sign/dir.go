package sign

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// A key directory has two kinds of files; other files in it are ignored.
const (
	seedExt   = ".nk"   // <kid>.nk: the secret, an nkeys seed; only its owner may read it
	recordExt = ".json" // <kid>.json: the trust record
)

// maxSeed is the largest key file in bytes.
const maxSeed = 1 << 10

// Keys is the content of a key directory.
type Keys struct {
	Trusted []Key     // the trust records, sorted by kid; for [Ring.Replace]
	Signers []*Signer // the key files, sorted by kid
}

// Signer returns the signer with this kid.
func (k Keys) Signer(kid string) (*Signer, bool) {
	for _, s := range k.Signers {
		if s.kid == kid {
			return s, true
		}
	}
	return nil, false
}

// SignerFor returns the signer that should sign envelopes with this from at the time now:
// of those whose trust record allows it, the one with the latest NotBefore, so that a new
// key takes over when it becomes valid.
func (k Keys) SignerFor(from string, now time.Time) (*Signer, bool) {
	return k.newest(from, func(key Key) bool { return key.Valid(now) })
}

// LastSigner is SignerFor that also takes keys that have expired or are revoked: it is for a
// process whose peers must notice that.
func (k Keys) LastSigner(from string, now time.Time) (*Signer, bool) {
	return k.newest(from, func(key Key) bool { return !now.Before(key.NotBefore) })
}

// NextSigner returns the signer whose key is the next to become valid for envelopes with this from,
// and when that is.
func (k Keys) NextSigner(from string, now time.Time) (next *Signer, at time.Time) {
	for _, key := range k.Trusted {
		if !now.Before(key.NotBefore) || !key.Valid(key.NotBefore) || !key.SpeaksFor(from) || next != nil && !key.NotBefore.Before(at) {
			continue
		}
		if s, ok := k.Signer(key.KID); ok {
			next, at = s, key.NotBefore
		}
	}
	return next, at
}

func (k Keys) newest(from string, usable func(Key) bool) (*Signer, bool) {
	var best *Signer
	var since time.Time
	for _, key := range k.Trusted {
		if !usable(key) || !key.SpeaksFor(from) || best != nil && key.NotBefore.Before(since) {
			continue
		}
		if s, ok := k.Signer(key.KID); ok {
			best, since = s, key.NotBefore
		}
	}
	return best, best != nil
}

// Lapsed returns why no key signs envelopes with this from at the time now, although there are
// keys for it: one reason for each key, such as `key "ada" expired at 2025-12-14T11:00:00Z`. It
// returns nil if a key signs, or if there is none.
func (k Keys) Lapsed(from string, now time.Time) (why []string) {
	for _, key := range k.Trusted {
		if _, own := k.Signer(key.KID); !own || !key.SpeaksFor(from) {
			continue
		}
		reason := key.Invalidity(now)
		if reason == "" {
			return nil
		}
		why = append(why, fmt.Sprintf("key %q %s", key.KID, reason))
	}
	return why
}

// LoadDir reads a key directory, and reports all errors in it at once. If the directory
// does not exist, the error wraps [fs.ErrNotExist].
func LoadDir(dir string) (Keys, error) {
	keys, faults, err := LoadReadable(dir)
	if err != nil {
		return Keys{}, err
	}
	if len(faults) > 0 {
		bad := make([]error, len(faults))
		for i, f := range faults {
			bad[i] = f.Err
		}
		return Keys{}, fmt.Errorf("key directory %s: %w", dir, errors.Join(bad...))
	}
	return keys, nil
}

// Fault is an error in a key of a directory.
type Fault struct {
	KID  string
	File string // the name of the file in the directory
	Err  error  // has the path of the file
}

// LoadReadable is [LoadDir] for a running process: it leaves out each key with a fault in one of
// its two files, and returns the faults. Pass the kids of the faults to [Ring.ReplaceLocal]. A file
// that is being written may have a fault for a moment. It fails if the directory itself cannot be
// read.
func LoadReadable(dir string) (Keys, []Fault, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Keys{}, nil, fmt.Errorf("key directory: %w", err)
	}
	var keys Keys
	var faults []Fault
	bad := map[string]bool{}
	fault := func(kid, ext string, err error) {
		faults, bad[kid] = append(faults, Fault{kid, kid + ext, err}), true
	}
	for _, entry := range entries {
		if kid, ok := strings.CutSuffix(entry.Name(), seedExt); ok && CheckKID(kid) == nil {
			s, err := readSeed(dir, kid)
			if err != nil {
				fault(kid, seedExt, err)
				continue
			}
			keys.Signers = append(keys.Signers, s)
		}
	}
	for _, entry := range entries {
		kid, ok := strings.CutSuffix(entry.Name(), recordExt)
		if !ok || CheckKID(kid) != nil {
			continue
		}
		r, err := readRecord(dir, kid)
		if err != nil {
			fault(kid, recordExt, err)
			continue
		}
		s, _ := keys.Signer(kid)
		if bad[kid] || r.Alg == HS256 && s == nil && r.Revoked {
			continue // a revoked key without its secret: nothing can be verified with it
		}
		k, err := r.withSigner(s)
		if err != nil {
			fault(kid, recordExt, fmt.Errorf("%s: %w", filepath.Join(dir, entry.Name()), err))
			continue
		}
		keys.Trusted = append(keys.Trusted, k)
	}
	keys.Signers = slices.DeleteFunc(keys.Signers, func(s *Signer) bool { return bad[s.kid] })
	byKID := func(a, b *Signer) int { return strings.Compare(a.kid, b.kid) }
	sorted.By(keys.Signers, byKID)
	sorted.By(keys.Trusted, func(a, b Key) int { return strings.Compare(a.KID, b.KID) })
	return keys, faults, nil
}

// withSigner returns the key that the record describes; s is the signer from the key file
// with the same kid, or nil.
func (r Record) withSigner(s *Signer) (Key, error) {
	if r.Alg == HS256 && s == nil {
		return Key{}, fmt.Errorf("the secret is missing: %s%s must be here too", r.KID, seedExt)
	}
	var own Key
	if s != nil {
		own = s.Key(r.From...)
		if own.Alg != r.Alg {
			return Key{}, fmt.Errorf("the record says %s and the key file holds a key for %s", r.Alg, own.Alg)
		}
	}
	k, err := r.key(own.Secret)
	if err != nil {
		return Key{}, err
	}
	if s != nil && subtle.ConstantTimeCompare(own.Public, k.Public) != 1 {
		return Key{}, errors.New("the record's public key is not that of the key file")
	}
	return k, k.Check()
}

func readSeed(dir, kid string) (*Signer, error) {
	path := filepath.Join(dir, kid+seedExt)
	text, mode, err := readSmall(path, maxSeed)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	defer clear(text)
	if runtime.GOOS != "windows" && mode.Perm()&0o077 != 0 {
		return nil, fmt.Errorf("key file %s has mode %04o, so others can read it; make a new key, or if it was not read: chmod 600 %s", path, mode.Perm(), path)
	}
	s, err := parseSeed(kid, text)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	return s, nil
}

func readRecord(dir, kid string) (Record, error) {
	path := filepath.Join(dir, kid+recordExt)
	text, _, err := readSmall(path, maxRecord)
	if err != nil {
		return Record{}, fmt.Errorf("trust record: %w", err)
	}
	r, err := ParseRecord(text)
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", path, err)
	}
	if r.KID != kid {
		return Record{}, fmt.Errorf("%s: the record is of key %q", path, r.KID)
	}
	return r, nil
}

// readSmall reads a regular file of limited size, and returns its mode, too.
func readSmall(path string, limit int64) ([]byte, fs.FileMode, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is no regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return text, info.Mode(), err
}

// SaveKey writes a new key into a directory, which it creates if necessary: the signer
// into <kid>.nk, which only its owner may read, and the trust record into <kid>.json. It
// never overwrites a key: then the error wraps [fs.ErrExist].
func SaveKey(dir string, s *Signer, trusted Key) error {
	r, err := trusted.Record()
	if err != nil {
		return err
	}
	if trusted.KID != s.kid {
		return fmt.Errorf("key %q does not belong to the signer %q", trusted.KID, s.kid)
	}
	if k, err := r.withSigner(s); err != nil || subtle.ConstantTimeCompare(k.Secret, trusted.Secret) != 1 {
		return fmt.Errorf("key %q is not that of its signer", s.kid)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("key directory: %w", err)
	}
	seed, err := s.appendSeed(nil)
	if err != nil {
		return err
	}
	defer clear(seed)
	if _, err := os.Stat(filepath.Join(dir, s.kid+recordExt)); err == nil {
		return fmt.Errorf("key %q: %w in %s", s.kid, fs.ErrExist, dir)
	}
	file := filepath.Join(dir, s.kid+seedExt)
	if err := writeFile(file, seed, 0o600, false); err != nil {
		return fmt.Errorf("key %q: %w", s.kid, err)
	}
	if err := saveRecord(dir, r); err != nil {
		os.Remove(file) // a seed without its record would make the next attempt fail
		return err
	}
	return nil
}

// Trust writes the trust record of a key into a directory, which it creates if necessary.
// It replaces an older record of the same key. It fails if another key has this kid, or
// if the key is revoked and r is not.
func Trust(dir string, r Record) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("key directory: %w", err)
	}
	old, err := readRecord(dir, r.KID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case old.Alg != r.Alg || old.Public != r.Public:
		return fmt.Errorf("key %q: %w", r.KID, ErrTaken)
	case old.Revoked && !r.Revoked:
		return fmt.Errorf("key %q: %w", r.KID, ErrRevoked)
	}
	s, err := readSeed(dir, r.KID)
	if errors.Is(err, fs.ErrNotExist) {
		s, err = nil, nil
	}
	if err != nil {
		return err
	}
	if _, err := r.withSigner(s); err != nil {
		return fmt.Errorf("key %q: %w", r.KID, err)
	}
	return saveRecord(dir, r)
}

// Revoke marks the trust record of a key as revoked and returns it, to be shared. The key
// file stays, but no verifier accepts its signatures.
func Revoke(dir, kid string) (Record, error) {
	if err := CheckKID(kid); err != nil {
		return Record{}, err
	}
	r, err := readRecord(dir, kid)
	if err != nil || r.Revoked {
		return r, err
	}
	r.Revoked = true
	return r, saveRecord(dir, r)
}

func saveRecord(dir string, r Record) error {
	text, err := r.Marshal()
	if err == nil {
		err = writeFile(filepath.Join(dir, r.KID+recordExt), text, 0o644, true)
	}
	if err != nil {
		return fmt.Errorf("trust record of key %q: %w", r.KID, err)
	}
	return nil
}

// writeFile writes a file completely or not at all.
func writeFile(path string, data []byte, mode fs.FileMode, replace bool) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	temp := f.Name()
	defer func() {
		if err != nil {
			os.Remove(temp)
		}
	}()
	_, err = io.Copy(f, bytes.NewReader(data))
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if !replace {
		// Link fails if the file exists; some file systems do not support it.
		if err = os.Link(temp, path); err == nil {
			os.Remove(temp)
			return syncDir(dir)
		}
		if _, there := os.Lstat(path); !errors.Is(there, fs.ErrNotExist) {
			return err
		}
	}
	if err = os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename durable. Not every system supports that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	d.Sync()
	return d.Close()
}

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// signFlags say which key signs, and which signatures are accepted.
type signFlags struct {
	Dir         string
	Kid         string
	Mode        string
	Shared      bool
	Window      time.Duration
	windowFlag  *pflag.Flag // tells whether --window was set
	Skew        time.Duration
	ReplayScope string

	Keys   *sign.Keys // the directory's keys, once they are read
	warned []string   // see warnUnsigned
}

// Values of --sign that are not a kid.
const (
	SignAuto = "auto" // the newest key that may speak for the sender, if there is one
	SignNone = "none"
)

// The groups of signing flags that a command can have.
const (
	SignKey    = 1 << iota // the signing key
	SignVerify             // which signatures are accepted
	SignShared             // the mesh's shared keys
	SignReplay             // replay protection
	SignAll    = SignKey | SignVerify | SignShared
)

// AddSignFlags adds the groups of signing flags in the bit set which.
func (a *App) AddSignFlags(flags *pflag.FlagSet, which int) {
	f := &a.Sign
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = false
	own.StringVar(&f.Dir, "keys", "", "`directory` of keys (default aeemesh/keys in the XDG config directory, if it is there)")
	BindEnv(own, "keys", "AEEMESH_KEYS")
	if which&SignKey != 0 {
		own.StringVar(&f.Kid, "sign", SignAuto, "sign with the key of this `kid`; auto: one that may speak for the sender, if there is one; none")
		BindEnv(own, "sign", "AEEMESH_SIGN")
	}
	if which&SignVerify != 0 {
		own.StringVar(&f.Mode, "signatures", sign.VerifyIfPresent.String(), "what to accept: off, verify-if-present or required")
		BindEnv(own, "signatures", "AEEMESH_SIGNATURES")
	}
	if which&SignShared != 0 {
		own.BoolVar(&f.Shared, "shared-keys", false, "trust the keys in the mesh's bucket too")
	}
	if which&SignReplay != 0 {
		own.DurationVar(&f.Window, "replay-window", 0, "for how long an id may not come again; 0 turns the check off (default 2m, or twice the skew if that is longer)")
		f.windowFlag = own.Lookup("replay-window")
		own.DurationVar(&f.Skew, "skew", mesh.DefaultSkew, "how far ts may be from this clock; 0 turns the check off")
		own.StringVar(&f.ReplayScope, "replay-scope", "auto", "who remembers ids: process; mesh (JetStream, of all envelopes); or auto (both, in JetStream those that came signed, where it has the bucket)")
	}
	own.VisitAll(func(fl *pflag.Flag) { InGroup(own, GroupSign, fl.Name) })
	flags.AddFlagSet(own)
}

// KeyDir is the directory of keys; "" if none was named and the default one
// does not exist.
func (a *App) KeyDir() string {
	if a.Sign.Dir != "" {
		return a.Sign.Dir
	}
	dir := a.DefaultKeyDir()
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// DefaultKeyDir is the default directory of keys; "" if there is no home
// directory.
func (a *App) DefaultKeyDir() string {
	if home := a.Env.configHome(); home != "" {
		return filepath.Join(home, "aeemesh", "keys")
	}
	return ""
}

// NoHome returns an error if there is no directory for keys.
func (a *App) NoHome() error {
	if a.DirToWrite() != "" {
		return nil
	}
	return outcome.Hinted(outcome.NotFound("there is no home directory to keep keys in"), "Give --keys DIR or set AEEMESH_KEYS, or HOME or XDG_CONFIG_HOME to an absolute path.")
}

// DirToWrite is the directory of keys, which may not exist yet; "" if there is no home directory.
func (a *App) DirToWrite() string {
	if dir := a.KeyDir(); dir != "" {
		return dir
	}
	return a.DefaultKeyDir()
}

// Keys reads the directory of keys, which may not exist.
func (a *App) Keys() (*sign.Keys, error) {
	if a.Sign.Keys != nil {
		return a.Sign.Keys, nil
	}
	dir := a.KeyDir()
	if dir == "" {
		return &sign.Keys{}, nil
	}
	keys, err := sign.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	a.Sign.Keys = &keys
	return &keys, nil
}

// WorkerSigner is Signer for a process with a [KeyKeeper]. If all keys of the entity have
// lapsed, the newest of them signs, as if it had lapsed while the process ran: receivers
// refuse it until the keeper finds another. If none of them is valid yet, the signer leaves envelopes
// unsigned until one is, and the keeper rotates it.
func (a *App) WorkerSigner(entity string) (*sign.Signer, error) {
	if a.Sign.Kid == SignAuto || a.Sign.Kid == "" {
		keys, err := a.Keys()
		if err != nil {
			return nil, err
		}
		now := time.Now()
		if s, ok := keys.LastSigner(entity, now); ok && len(keys.Lapsed(entity, now)) > 0 {
			return s, nil
		} else if next, at := keys.NextSigner(entity, now); !ok && next != nil {
			a.Log.Warn("its messages are not signed until its key is valid: the worker signs with it from then on", "from", entity, "kid", next.KID(), "not_before", at.UTC().Format(time.RFC3339))
			return next.Waiting(), nil
		}
	}
	return a.Signer(entity)
}

// Signer returns the key that signs what an entity sends; nil if there is none.
func (a *App) Signer(from string) (*sign.Signer, error) {
	if a.Sign.Kid == SignNone {
		return nil, nil
	}
	keys, err := a.Keys()
	if err != nil {
		return nil, err
	}
	if a.Sign.Kid == SignAuto || a.Sign.Kid == "" {
		s, ok := keys.SignerFor(from, time.Now())
		if !ok {
			a.warnUnsigned(from, keys.Lapsed(from, time.Now()))
		}
		return s, nil
	}
	if s, ok := keys.Signer(a.Sign.Kid); ok {
		return s, nil
	}
	where := a.KeyDir()
	if where == "" {
		where = a.DefaultKeyDir()
	}
	return nil, outcome.Hinted(outcome.NotFound("there is no key %q to sign with in %s", a.Sign.Kid, where), "\"aeemesh keys new %s\" makes one; \"aeemesh keys list\" shows what is there.", a.Sign.Kid)
}

// warnUnsigned logs, once for each entity, why its envelopes are no longer signed.
func (a *App) warnUnsigned(from string, why []string) {
	if len(why) == 0 || slices.Contains(a.Sign.warned, from) {
		return
	}
	a.Sign.warned = append(a.Sign.warned, from)
	a.Log.Warn("its messages are not signed: aeemesh keys new makes another key", "from", from, "why", strings.Join(why, "; "))
}

// signingKeys returns all keys of the directory. None of them may be the
// connection's own key, even if the command does not sign: every connection
// signs the server's nonce with that key.
func (a *App) signingKeys(cmd *cobra.Command) ([]sign.Key, error) {
	own := cmd.Flags().Lookup("keys") != nil
	if !own && a.Sign.Dir == "" { // the demo sets its own
		a.Sign.Dir = a.Env("AEEMESH_KEYS")
	}
	keys, err := a.Keys()
	if err != nil {
		if own {
			return nil, err
		}
		return nil, nil // the command uses no keys
	}
	out := slices.Clone(keys.Trusted)
	for _, s := range keys.Signers {
		out = append(out, s.Key())
	}
	return out, nil
}

// soleEntity is the only entity that the key of --sign may speak for; without
// --sign the only person that the keys here may speak for; else "".
func (a *App) soleEntity() string {
	keys, err := a.Keys()
	if err != nil || a.Sign.Kid == SignNone || a.Sign.Kid == "" {
		return ""
	}
	found := map[string]bool{}
	for _, key := range keys.Trusted {
		if _, own := keys.Signer(key.KID); !own || !key.Valid(time.Now()) {
			continue
		}
		for _, pattern := range key.From {
			switch {
			case a.Sign.Kid == SignAuto && subject.EntityType(pattern) != subject.TypeHuman:
			case a.Sign.Kid == SignAuto || a.Sign.Kid == key.KID:
				found[pattern] = true
			}
		}
	}
	if len(found) != 1 {
		return ""
	}
	for entity := range found {
		if subject.ValidateEntity(entity) == nil { // it is not a pattern for several entities
			return entity
		}
	}
	return ""
}

// KeyIDs returns the kids that can sign.
func (a *App) KeyIDs() []string {
	keys, err := a.Keys()
	if err != nil {
		return nil
	}
	out := []string{SignAuto, SignNone}
	for _, s := range keys.Signers {
		out = append(out, s.KID())
	}
	return out
}

// Verifier makes a verifier with the keys of the directory, if there is one.
func (a *App) Verifier() (sign.Verifier, error) {
	mode, err := sign.ParseMode(a.Sign.Mode)
	if err != nil {
		return sign.Verifier{}, outcome.Usagef(nil, "--signatures: %w", err)
	}
	keys, err := a.Keys()
	if err != nil {
		return sign.Verifier{}, err
	}
	v := sign.Verifier{Ring: &sign.Ring{}, Mode: mode}
	return v, v.Ring.Replace(sign.Local, keys.Trusted)
}

// ReplayConfig sets which messages a worker refuses as replayed or stale.
func (a *App) ReplayConfig(cfg *mesh.Config) {
	f := &a.Sign
	off := func(d time.Duration) time.Duration {
		if d == 0 {
			return -1
		}
		return d
	}
	cfg.Skew = off(f.Skew)
	cfg.ReplayWindow = mesh.ReplayWindow(0, cfg.Skew)
	if f.windowFlag.Changed || a.ByFile[f.windowFlag.Name] != "" {
		cfg.ReplayWindow = off(f.Window)
	}
}

// WatchSharedKeys adds the keys of the mesh's bucket to the ring, and applies
// every change, until the returned function is called. An unreadable record may
// be a revocation: at the start it invalidates all keys with its kid, also the
// directory's; later the process keeps the key that it has.
func (a *App) WatchSharedKeys(ctx context.Context, conn *nats.Conn, ring *sign.Ring) (func(), error) {
	records, err := a.SharedKeys(conn)
	if err != nil {
		return nil, err
	}
	if a.AwaitsKeys != nil {
		a.AwaitsKeys(conn)
	}
	list, err := a.listShared(ctx, records)
	if err != nil {
		return nil, fmt.Errorf("--shared-keys: %w", err)
	}
	for _, r := range list {
		record, err := ReadShared(r)
		if err != nil {
			ring.Refuse(r.ID)
			a.Log.Warn("the shared record of a key cannot be read: the key is refused, a local one with this kid too", "kid", r.ID, "err", err)
			continue
		}
		if err := ring.PutRecord(record); err != nil {
			a.Log.Warn("shared key not trusted", "kid", r.ID, "err", err)
		}
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			err := records.WatchFrom(watch, list, func(kid string, value []byte, deleted bool) { a.takeShared(ring, kid, value, deleted) })
			if err == nil {
				return
			}
			if conn.IsClosed() {
				a.Log.Error("shared keys are not followed any more", "err", err)
				return
			}
			a.Log.Warn("shared keys cannot be followed for now: no revocation takes effect", "err", err, "next", keyReload)
			pause.For(watch, keyReload)
		}
	})
	return func() { stop(); ended.Wait() }, nil
}

// listShared reads the mesh's keys. If JetStream does not answer, a
// long-running command waits for it and says so: without the keys it would
// refuse valid signatures.
func (a *App) listShared(ctx context.Context, records *jetstream.Records) ([]jetstream.Record, error) {
	for said := false; ; said = true {
		list, err := a.listOnce(ctx, records)
		lost := errors.Is(err, jetstream.ErrDenied) || errors.Is(err, jetstream.ErrNotFound)
		if err == nil || lost || !a.Conn.patient || a.Conn.Timeout > 0 || ctx.Err() != nil {
			return list, err
		}
		if !said {
			a.Log.Warn("waiting for the mesh's shared keys", "err", err, "hint", "\"aeemesh doctor\" shows what JetStream lacks")
		}
		pause.For(ctx, keyReload)
	}
}

func (a *App) listOnce(ctx context.Context, records *jetstream.Records) ([]jetstream.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Conn.Wait())
	defer cancel()
	return records.List(ctx)
}

// SharedKeys returns the bucket of the keys that the mesh shares.
func (a *App) SharedKeys(conn *nats.Conn) (*jetstream.Records, error) {
	js, m, err := a.Streams(conn)
	if err != nil {
		return nil, err
	}
	return jetstream.NewKeys(js, m), nil
}

// takeShared applies a change in the mesh's bucket to the ring.
func (a *App) takeShared(ring *sign.Ring, kid string, value []byte, deleted bool) {
	if deleted {
		ring.Delete(sign.Shared, kid)
		if key, known := ring.Lookup(kid); known && key.Revoked {
			a.Log.Warn("the shared record of a revoked key was deleted: restore it, because processes that start later do not know of the revocation", "kid", kid)
		}
		return
	}
	record, err := ReadShared(jetstream.Record{ID: kid, Value: value})
	if err == nil {
		err = ring.PutRecord(record)
	}
	if err != nil {
		a.Log.Warn("shared key not trusted; what was known of it stays", "kid", kid, "err", err)
	}
}

// ReadShared reads a record of the mesh's bucket.
func ReadShared(r jetstream.Record) (sign.Record, error) {
	if r.Stray {
		return sign.Record{}, errors.New("an answer of the server covers it, which a user has redirected there")
	}
	record, err := sign.ParseRecord(r.Value)
	if err == nil && record.KID != r.ID {
		err = fmt.Errorf("the record stored for it is of key %q", record.KID)
	}
	return record, err
}

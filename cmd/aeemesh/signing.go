package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// signFlags say which key signs, and which signatures are accepted.
type signFlags struct {
	dir         string
	kid         string
	mode        string
	shared      bool
	window      time.Duration
	windowFlag  *pflag.Flag // tells whether --window was set
	skew        time.Duration
	replayScope string

	keys *sign.Keys // the directory's keys, once they are read
}

// Values of --sign that are not a kid.
const (
	signAuto = "auto" // the newest key that may speak for the sender, if there is one
	signNone = "none"
)

// The groups of signing flags that a command can have.
const (
	signKey    = 1 << iota // the signing key
	signVerify             // which signatures are accepted
	signShared             // the mesh's shared keys
	signReplay             // replay protection
	signAll    = signKey | signVerify | signShared
)

func (a *progApp) addSignFlags(flags *pflag.FlagSet, which int) {
	f := &a.sign
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = false
	own.StringVar(&f.dir, "keys", "", "`directory` of keys (default aeemesh/keys in the XDG config directory, if it is there)")
	bindEnv(own, "keys", "AEEMESH_KEYS")
	if which&signKey != 0 {
		own.StringVar(&f.kid, "sign", signAuto, "sign with the key of this `kid`; auto: one that may speak for the sender, if there is one; none")
		bindEnv(own, "sign", "AEEMESH_SIGN")
	}
	if which&signVerify != 0 {
		own.StringVar(&f.mode, "signatures", sign.VerifyIfPresent.String(), "what to accept: off, verify-if-present or required")
		bindEnv(own, "signatures", "AEEMESH_SIGNATURES")
	}
	if which&signShared != 0 {
		own.BoolVar(&f.shared, "shared-keys", false, "trust the keys in the mesh's bucket too")
	}
	if which&signReplay != 0 {
		own.DurationVar(&f.window, "replay-window", 0, "for how long an id may not come again; 0 turns the check off (default 2m, or twice the skew if that is longer)")
		f.windowFlag = own.Lookup("replay-window")
		own.DurationVar(&f.skew, "skew", mesh.DefaultSkew, "how far ts may be from this clock; 0 turns the check off")
		own.StringVar(&f.replayScope, "replay-scope", "auto", "who remembers ids: process; mesh (JetStream, of all envelopes); or auto (both, in JetStream those that came signed, where it has the bucket)")
	}
	own.VisitAll(func(fl *pflag.Flag) { inGroup(own, groupSign, fl.Name) })
	flags.AddFlagSet(own)
}

// keyDir is the directory of keys; "" if none was named and the default one
// does not exist.
func (a *progApp) keyDir() string {
	if a.sign.dir != "" {
		return a.sign.dir
	}
	dir := a.defaultKeyDir()
	if _, err := os.Stat(dir); dir == "" || err != nil {
		return ""
	}
	return dir
}

// defaultKeyDir is the default directory of keys; "" if there is no home
// directory.
func (a *progApp) defaultKeyDir() string {
	if home := a.configHome(); home != "" {
		return filepath.Join(home, "aeemesh", "keys")
	}
	return ""
}

// noHome returns an error if there is no directory for keys.
func (a *progApp) noHome() error {
	if a.dirToWrite() != "" {
		return nil
	}
	return outcome.Hinted(outcome.NotFound("there is no home directory to keep keys in"), "Give --keys DIR or set AEEMESH_KEYS, or HOME or XDG_CONFIG_HOME to an absolute path.")
}

// dirToWrite is the directory of keys, which may not exist yet; "" if there is
// none, see noHome.
func (a *progApp) dirToWrite() string {
	if dir := a.keyDir(); dir != "" {
		return dir
	}
	return a.defaultKeyDir()
}

// keys reads the directory of keys, which may not exist.
func (a *progApp) keys() (*sign.Keys, error) {
	if a.sign.keys != nil {
		return a.sign.keys, nil
	}
	dir := a.keyDir()
	if dir == "" {
		return &sign.Keys{}, nil
	}
	keys, err := sign.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	a.sign.keys = &keys
	return &keys, nil
}

// signer returns the key that signs what an entity sends; nil if there is none.
func (a *progApp) signer(from string) (*sign.Signer, error) {
	if a.sign.kid == signNone {
		return nil, nil
	}
	keys, err := a.keys()
	if err != nil {
		return nil, err
	}
	if a.sign.kid == signAuto || a.sign.kid == "" {
		s, _ := keys.SignerFor(from, time.Now())
		return s, nil
	}
	if s, ok := keys.Signer(a.sign.kid); ok {
		return s, nil
	}
	where := a.keyDir()
	if where == "" {
		where = a.defaultKeyDir()
	}
	return nil, outcome.Hinted(outcome.NotFound("there is no key %q to sign with in %s", a.sign.kid, where), "\"aeemesh keys new %s\" makes one; \"aeemesh keys list\" shows what is there.", a.sign.kid)
}

// signingKeys returns all keys of the directory. None of them may be the
// connection's own key, even if the command does not sign: every connection
// signs the server's nonce with that key.
func (a *progApp) signingKeys(cmd *cobra.Command) ([]sign.Key, error) {
	own := cmd.Flags().Lookup("keys") != nil
	if !own && a.sign.dir == "" { // the demo sets its own
		a.sign.dir = a.env("AEEMESH_KEYS")
	}
	keys, err := a.keys()
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
func (a *progApp) soleEntity() string {
	keys, err := a.keys()
	if err != nil || a.sign.kid == signNone || a.sign.kid == "" {
		return ""
	}
	found := map[string]bool{}
	for _, key := range keys.Trusted {
		if _, own := keys.Signer(key.KID); !own || !key.Valid(time.Now()) {
			continue
		}
		for _, pattern := range key.From {
			switch {
			case a.sign.kid == signAuto && subject.EntityType(pattern) != subject.TypeHuman:
			case a.sign.kid == signAuto || a.sign.kid == key.KID:
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

// keyIDs returns the kids that can sign.
func (a *progApp) keyIDs() []string {
	keys, err := a.keys()
	if err != nil {
		return nil
	}
	out := []string{signAuto, signNone}
	for _, s := range keys.Signers {
		out = append(out, s.KID())
	}
	return out
}

// verifier makes a verifier with the keys of the directory, if there is one.
func (a *progApp) verifier() (sign.Verifier, error) {
	mode, err := sign.ParseMode(a.sign.mode)
	if err != nil {
		return sign.Verifier{}, outcome.Usagef(nil, "--signatures: %w", err)
	}
	keys, err := a.keys()
	if err != nil {
		return sign.Verifier{}, err
	}
	v := sign.Verifier{Ring: &sign.Ring{}, Mode: mode}
	return v, v.Ring.Replace(sign.Local, keys.Trusted)
}

// replayConfig sets which messages a worker refuses as replayed or stale.
func (a *progApp) replayConfig(cfg *mesh.Config) {
	f := &a.sign
	off := func(d time.Duration) time.Duration {
		if d == 0 {
			return -1
		}
		return d
	}
	cfg.Skew = off(f.skew)
	cfg.ReplayWindow = mesh.ReplayWindow(0, cfg.Skew)
	if f.windowFlag.Changed || a.byFile[f.windowFlag.Name] != "" {
		cfg.ReplayWindow = off(f.window)
	}
}

// keepKeys reads the directory of keys periodically, so that a new key or a
// revocation takes effect without a restart. The signing keys of this process,
// own, are fixed at its start: when one of them becomes invalid, keepKeys
// warns.
func (a *progApp) keepKeys(ctx context.Context, ring *sign.Ring, own []string) {
	tick := time.NewTicker(keyReload)
	defer tick.Stop()
	told := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.reloadKeys(ring)
			a.tellSpent(ring, own, told, time.Now())
		}
	}
}

func (a *progApp) reloadKeys(ring *sign.Ring) {
	dir := a.keyDir() // it may have been created meanwhile
	if dir == "" {
		return
	}
	keys, err := sign.LoadDir(dir)
	if err == nil {
		err = ring.Replace(sign.Local, keys.Trusted)
	}
	if err != nil {
		a.log.Warn("key directory not read again; the keys stay as they were", "dir", dir, "err", err)
	}
}

// tellSpent warns once of each own key that is not valid any more: receivers
// refuse its signatures.
func (a *progApp) tellSpent(ring *sign.Ring, own []string, told map[string]bool, now time.Time) {
	for _, kid := range own {
		key, known := ring.Lookup(kid)
		spent := known && !key.Valid(now)
		if spent && !told[kid] {
			a.log.Warn("the key that this process signs with is revoked or has expired: start it again with another", "kid", kid)
		}
		told[kid] = spent
	}
}

// keyReload is how often a worker reads its key directory.
const keyReload = 5 * time.Second

// watchSharedKeys adds the keys of the mesh's bucket to the ring, and applies
// every change, until the returned function is called. An unreadable record may
// be a revocation: at the start it invalidates all keys with its kid, also the
// directory's; later the process keeps the key that it has.
func (a *progApp) watchSharedKeys(ctx context.Context, conn *nats.Conn, ring *sign.Ring) (func(), error) {
	records, err := a.sharedKeys(conn)
	if err != nil {
		return nil, err
	}
	list, err := a.listShared(ctx, records)
	if err != nil {
		return nil, fmt.Errorf("--shared-keys: %w", err)
	}
	for _, r := range list {
		record, err := readShared(r)
		if err != nil {
			ring.Refuse(r.ID)
			a.log.Warn("the shared record of a key cannot be read: the key is refused, a local one with this kid too", "kid", r.ID, "err", err)
			continue
		}
		if err := ring.PutRecord(record); err != nil {
			a.log.Warn("shared key not trusted", "kid", r.ID, "err", err)
		}
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() {
		err := records.Watch(watch, func(kid string, value []byte, deleted bool) { a.takeShared(ring, kid, value, deleted) })
		if err != nil {
			a.log.Error("shared keys are not followed any more", "err", err)
		}
	})
	return func() { stop(); ended.Wait() }, nil
}

// listShared reads the mesh's keys. If JetStream does not answer, a
// long-running command waits for it and says so: without the keys it would
// refuse valid signatures.
func (a *progApp) listShared(ctx context.Context, records *jetstream.Records) ([]jetstream.Record, error) {
	for said := false; ; said = true {
		list, err := a.listOnce(ctx, records)
		lost := errors.Is(err, jetstream.ErrDenied) || errors.Is(err, jetstream.ErrNotFound)
		if err == nil || lost || !a.conn.patient || a.conn.timeout > 0 || ctx.Err() != nil {
			return list, err
		}
		if !said {
			a.log.Warn("waiting for the mesh's shared keys", "err", err, "hint", "\"aeemesh doctor\" tells what JetStream lacks")
		}
		timer := time.NewTimer(keyReload)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func (a *progApp) listOnce(ctx context.Context, records *jetstream.Records) ([]jetstream.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, a.conn.wait())
	defer cancel()
	return records.List(ctx)
}

func (a *progApp) sharedKeys(conn *nats.Conn) (*jetstream.Records, error) {
	js, err := a.jetStream(conn)
	if err != nil {
		return nil, err
	}
	m, err := a.subjects()
	if err != nil {
		return nil, err
	}
	return jetstream.NewKeys(js, m), nil
}

// takeShared applies a change in the mesh's bucket to the ring.
func (a *progApp) takeShared(ring *sign.Ring, kid string, value []byte, deleted bool) {
	if deleted {
		ring.Delete(sign.Shared, kid)
		if key, known := ring.Lookup(kid); known && key.Revoked {
			a.log.Warn("the shared record of a revoked key is gone: put it back, for processes that start later do not know of it", "kid", kid)
		}
		return
	}
	record, err := readShared(jetstream.Record{ID: kid, Value: value})
	if err == nil {
		err = ring.PutRecord(record)
	}
	if err != nil {
		a.log.Warn("shared key not trusted; what was known of it stays", "kid", kid, "err", err)
	}
}

// readShared reads a record of the mesh's bucket.
func readShared(r jetstream.Record) (sign.Record, error) {
	if r.Stray {
		return sign.Record{}, errors.New("an answer of the server's, which a user had sent there, stands in its place")
	}
	record, err := sign.ParseRecord(r.Value)
	if err == nil && record.KID != r.ID {
		err = fmt.Errorf("it is of key %q", record.KID)
	}
	return record, err
}

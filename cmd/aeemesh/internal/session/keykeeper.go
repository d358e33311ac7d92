package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// KeyKeeper reads the directory of keys periodically, so that a new key or a
// revocation takes effect without a restart. It knows what is wrong with the
// directory, for the health of the process.
type KeyKeeper struct {
	app  *App
	ring *sign.Ring
	own  []*OwnKey
	dir  string // the directory that was read last; "": there was none

	mu     sync.Mutex
	faults []sign.Fault
	unread error             // why the directory cannot be read at all
	spent  map[string]string // why receivers refuse an entity's signatures
}

// NewKeyKeeper makes the keeper of a ring, for a process that signs with the
// keys own. Refresh reads the directory, Keep keeps reading it.
func (a *App) NewKeyKeeper(ring *sign.Ring, own ...*OwnKey) *KeyKeeper {
	return &KeyKeeper{app: a, ring: ring, own: own, dir: a.KeyDir(), spent: map[string]string{}}
}

const (
	keyReload = 5 * time.Second        // how often a process reads its key directory
	keySettle = 500 * time.Millisecond // how long writing a file of it may take
)

// Keep reads the directory periodically until ctx ends.
func (k *KeyKeeper) Keep(ctx context.Context) {
	for pause.For(ctx, keyReload) {
		k.Refresh(ctx)
	}
}

// Refresh reads the directory now. A process calls it before it serves: it may have read the
// directory long ago, and waited for its server since. It must not run at the same time as Keep.
func (k *KeyKeeper) Refresh(ctx context.Context) {
	keys := k.read(ctx)
	for _, own := range k.own {
		k.renew(own, keys, time.Now())
	}
}

// read reads the directory. A key with a fault is not trusted until the fault is corrected,
// because its record may say that it is revoked. For all other keys the directory counts. A new
// fault may be a file that is being written, so it is looked at twice. It returns the keys without
// faults.
func (k *KeyKeeper) read(ctx context.Context) sign.Keys {
	if dir := k.app.KeyDir(); dir != "" { // it may have been created meanwhile
		k.dir = dir
	}
	dir := k.dir
	if dir == "" {
		return sign.Keys{}
	}
	keys, faults, err := sign.LoadReadable(dir)
	if slices.ContainsFunc(faults, k.isNew) && pause.For(ctx, keySettle) {
		keys, faults, err = sign.LoadReadable(dir)
	}
	if err == nil {
		err = k.ring.ReplaceLocal(keys.Trusted, kidsOf(faults)...)
	}
	if err != nil {
		k.app.Log.Warn("key directory not read again; the keys stay as they were", "dir", dir, "err", err)
		k.set(k.faults, err)
		return sign.Keys{}
	}
	for _, f := range faults {
		if k.isNew(f) {
			k.app.Log.Warn("a key cannot be read, and is not trusted until it can: correct its file", "kid", f.KID, "err", f.Err)
		}
	}
	if len(faults) == 0 && (len(k.faults) > 0 || k.unread != nil) {
		k.app.Log.Info("all keys of the directory can be read again", "dir", dir)
	}
	k.set(faults, nil)
	return keys
}

// isNew reports whether the last reading did not find the fault.
func (k *KeyKeeper) isNew(f sign.Fault) bool {
	return !slices.ContainsFunc(k.faults, func(old sign.Fault) bool { return old.KID == f.KID && old.Err.Error() == f.Err.Error() })
}

func (k *KeyKeeper) set(faults []sign.Fault, unread error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults, k.unread = faults, unread
}

func kidsOf(faults []sign.Fault) (kids []string) {
	for _, f := range faults {
		kids = append(kids, f.KID)
	}
	return kids
}

// Trouble returns what is wrong with the directory, as a text for peers, without paths; "" if
// nothing is.
func (k *KeyKeeper) Trouble() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	const most = 3
	var why []string
	if k.unread != nil {
		why = append(why, "the key directory is not read again, so no revocation takes effect")
	}
	for _, f := range k.faults[:min(most, len(k.faults))] {
		why = append(why, fmt.Sprintf("key %s is not trusted, because %s cannot be read", f.KID, f.File))
	}
	if n := len(k.faults) - most; n > 0 {
		why = append(why, term.Counted(n, "more key", "more keys")+" cannot be read")
	}
	return strings.Join(why, "; ")
}

// Blind reports whether the directory cannot be read at all: then no revocation
// takes effect.
func (k *KeyKeeper) Blind() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unread != nil
}

package session

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// OwnKey is the key that a process signs with as one entity.
type OwnKey struct {
	Entity string
	Signer *sign.Signer // of this entity alone: it is rotated
	Conn   *nats.Conn   // its user key must not sign envelopes

	warned string // the kid whose expiry was announced
}

// renew judges an entity's key. A signer that waits for its key to become valid signs from then on. If it has expired or is revoked, the newest
// usable key of the entity signs from now on, unless --sign names the key.
func (k *KeyKeeper) renew(own *OwnKey, keys sign.Keys, now time.Time) {
	if own.Signer.Waits() {
		if next, ok := k.usable(keys).SignerFor(own.Entity, now); ok && natsconn.CheckSigner(own.Conn, next) == nil {
			own.Signer.Rotate(next)
			k.app.Log.Info("its key is valid now: its messages are signed from now on", "from", own.Entity, "kid", next.KID())
		}
		return
	}
	kid := own.Signer.KID()
	key, known := k.ring.Lookup(kid)
	if !known {
		return // its record is not here; receivers may trust it
	}
	usable := k.usable(keys)
	if why := key.Invalidity(now); why != "" {
		if next, ok := k.successor(own, usable, now); ok {
			own.Signer.Rotate(next)
			k.app.Log.Warn("the key that signed has expired or is revoked: another one signs from now on", "from", own.Entity, "kid", kid, "now", next.KID())
			k.setSpent(own.Entity, "")
			return
		}
		if k.setSpent(own.Entity, fmt.Sprintf("receivers refuse what it signs: key %q %s", kid, why)) {
			k.app.Log.Warn("the key that signs has expired or is revoked, and receivers refuse its signatures: aeemesh keys new makes another", "from", own.Entity, "kid", kid)
		}
		return
	}
	k.setSpent(own.Entity, "")
	if own.warned == kid || !ExpiresSoon(key, now) {
		return
	}
	own.warned = kid
	if _, ok := k.successor(own, usable, key.Expires); !ok {
		k.app.Log.Warn("the key that signs expires soon, and no other can follow it: aeemesh keys new makes one", "from", own.Entity, "kid", kid, "expires", key.Expires.UTC().Format(time.RFC3339))
	}
}

// usable returns the keys that the ring does not know as revoked.
func (k *KeyKeeper) usable(keys sign.Keys) sign.Keys {
	keys.Trusted = slices.DeleteFunc(slices.Clone(keys.Trusted), func(t sign.Key) bool {
		key, known := k.ring.Lookup(t.KID)
		return !known || key.Revoked
	})
	return keys
}

// successor returns the key that can sign at a time when the current one cannot.
func (k *KeyKeeper) successor(own *OwnKey, usable sign.Keys, at time.Time) (*sign.Signer, bool) {
	if k.app.Sign.Kid != SignAuto && k.app.Sign.Kid != "" {
		return nil, false
	}
	next, ok := usable.SignerFor(own.Entity, at)
	if ok && next.KID() == own.Signer.KID() {
		return nil, false
	}
	return next, ok && natsconn.CheckSigner(own.Conn, next) == nil
}

// setSpent sets why receivers refuse an entity's signatures, and reports whether the reason is
// new.
func (k *KeyKeeper) setSpent(entity, why string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := k.spent[entity] != why
	k.spent[entity] = why
	return changed
}

// whySpent returns why receivers refuse an entity's signatures; "" if they do not.
func (k *KeyKeeper) whySpent(entity string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.spent[entity]
}

// ExpiresSoon reports whether less than a tenth of a key's life is left, or
// less than seven days: the shorter of the two.
func ExpiresSoon(key sign.Key, now time.Time) bool {
	if key.Expires.IsZero() {
		return false
	}
	soon := 7 * 24 * time.Hour
	if !key.NotBefore.IsZero() {
		soon = min(soon, key.Expires.Sub(key.NotBefore)/10)
	}
	return now.Add(soon).After(key.Expires)
}

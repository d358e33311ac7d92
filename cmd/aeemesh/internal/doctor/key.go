package doctor

import (
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// key checks the key that a worker of --entity signs with, if this machine has
// one.
func (d *doctor) key() {
	keys, err := d.app.Keys()
	if err != nil || d.role != roleWorker || !d.named || d.app.Sign.Kid != session.SignAuto {
		return
	}
	now := time.Now()
	signer, ok := keys.SignerFor(d.entity, now)
	if !ok {
		_, begun := keys.LastSigner(d.entity, now)
		if next, at := keys.NextSigner(d.entity, now); !begun && next != nil {
			d.tell("key", "warn", "A worker signs with it from then on.", "what %s sends is not signed: key %q is not valid before %s", d.entity, next.KID(), at.UTC().Format(time.RFC3339))
		} else if why := keys.Lapsed(d.entity, now); len(why) > 0 {
			d.tell("key", "fail", "\"aeemesh keys new KID --from "+d.entity+"\" makes another, which a running worker signs with within seconds.",
				"what %s signs is refused: %s", d.entity, strings.Join(why, "; "))
		}
		return
	}
	key := trusted(keys, signer.KID())
	if next, ok := keys.SignerFor(d.entity, key.Expires); session.ExpiresSoon(key, now) && (!ok || next.KID() == key.KID) {
		d.tell("key", "warn", "\"aeemesh keys new KID --from "+d.entity+"\" makes the next one.", "%s signs with %s, which expires at %s, and no other key follows", d.entity, key.KID, key.Expires.UTC().Format(time.RFC3339))
		return
	}
	d.tell("key", "ok", "", "%s signs with %s", d.entity, key.KID)
}

// trusted returns the key of a directory with this kid.
func trusted(keys *sign.Keys, kid string) (key sign.Key) {
	for _, k := range keys.Trusted {
		if k.KID == kid {
			key = k
		}
	}
	return key
}

package sign

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// Source says where a key of a ring comes from.
type Source uint8

// The two sources. If both have a key with the same kid, the local one is used. A
// revocation from either source counts; a shared revocation counts for as long as the
// ring exists.
const (
	Local  Source = iota // this machine's key directory
	Shared               // the mesh's key bucket; holds public keys only
)

func (s Source) String() string {
	if s == Shared {
		return "shared"
	}
	return "local"
}

// Ring holds the keys that signatures are verified with. The zero value is an empty ring.
// Verification reads a snapshot and takes no lock; a change replaces the snapshot and
// takes effect for every Verify that begins later. Each change copies the ring, which is
// designed for some thousand keys.
type Ring struct {
	mu    sync.Mutex // serialises changes
	state atomic.Pointer[ringState]

	tables atomic.Int32 // how many more tables of a [publicKey] may be made
}

// ringState is immutable.
type ringState struct {
	sources    [2]map[string]*preparedKey
	refused    map[string]bool // see [Ring.Refuse]
	unreadable []string        // see [Ring.ReplaceLocal]
	effective  map[string]*preparedKey
}

// preparedKey is a key prepared for verification.
type preparedKey struct {
	Key
	source Source
	ed     *publicKey
	mac    *macKey
}

func prepare(src Source, k Key) (*preparedKey, error) {
	if err := k.Check(); err != nil {
		return nil, err
	}
	if src == Shared && k.Alg != Ed25519 {
		return nil, fmt.Errorf("key %q: %w", k.KID, errSharedSecret)
	}
	p := &preparedKey{Key: k, source: src}
	p.From = slices.Clone(k.From)
	p.Public = slices.Clone(k.Public)
	p.Secret = slices.Clone(k.Secret)
	if k.Alg == HS256 {
		p.mac = newMACKey(p.Secret)
		return p, nil
	}
	var err error
	p.ed, err = newPublicKey(p.Public)
	return p, err
}

// errSharedSecret says why HS256 keys cannot be shared.
var errSharedSecret = errors.New("an HS256 key cannot be shared through the mesh: a holder that can verify with it can also sign; copy its key file to the machines that need it")

// Errors of records that contradict the keys in the ring.
var (
	// ErrRevoked: the key was revoked before; a revocation is permanent.
	ErrRevoked = errors.New("the key was revoked, and a later record does not bring it back")
	// ErrTaken: another key has the id.
	ErrTaken = errors.New("another key has this id already")
)

// Put adds a key, or replaces the key of this source with the same kid. If a shared key
// was revoked, Put of a record that is not revoked fails with [ErrRevoked]: an accident
// or an attacker may have written an older record again.
func (r *Ring) Put(src Source, k Key) error {
	p, err := prepare(src, k)
	if err != nil {
		return err
	}
	return r.put(src, p)
}

func (r *Ring) put(src Source, p *preparedKey) (err error) {
	r.change(func(next *ringState) {
		if was := next.sources[src][p.KID]; src == Shared && was != nil && was.Revoked && !p.Revoked {
			err = fmt.Errorf("key %q: %w", p.KID, ErrRevoked)
			return
		}
		m := maps.Clone(next.sources[src])
		if m == nil {
			m = map[string]*preparedKey{}
		}
		m[p.KID] = p.keepWork(m[p.KID])
		next.sources[src] = m
	})
	return err
}

// Refuse records that the mesh has an unreadable record of a kid, which may be a revocation: a
// local key with this kid counts as revoked until a shared one is put. It has no effect if the ring
// has a shared key with this kid.
func (r *Ring) Refuse(kid string) {
	r.change(func(next *ringState) {
		next.refused = maps.Clone(next.refused)
		if next.refused == nil {
			next.refused = map[string]bool{}
		}
		next.refused[kid] = true
	})
}

// PutRecord is [Ring.Put] for a trust record from the mesh's key bucket. HS256 keys
// cannot be shared, but the record of a revoked one is accepted: from then on the kid is
// refused.
func (r *Ring) PutRecord(rec Record) error {
	if rec.Alg == HS256 && rec.Revoked {
		if err := rec.check(); err != nil {
			return err
		}
		k, err := rec.key(nil)
		if err != nil {
			return err
		}
		return r.put(Shared, &preparedKey{Key: k, source: Shared})
	}
	k, err := rec.Key()
	if err != nil {
		return err
	}
	return r.Put(Shared, k)
}

// Delete removes the key of this source, except a shared one that is revoked. Keep a
// revoked local key: if it is deleted, a key from the other source would be used.
func (r *Ring) Delete(src Source, kid string) {
	r.change(func(next *ringState) {
		m := maps.Clone(next.sources[src])
		delete(m, kid)
		next.sources[src] = m
	})
}

// Replace replaces all keys of this source in one step: no Verify sees a part of the
// change. It returns all errors in the keys, also if two have the same kid, and then
// changes nothing. Shared keys that are revoked stay.
func (r *Ring) Replace(src Source, keys []Key) error {
	return r.replace(src, keys, func(*ringState) {})
}

// ReplaceLocal is [Ring.Replace] for the keys of this machine's directory. unreadable
// are the kids whose records there cannot be read, and may be revocations (see
// [LoadReadable]): no key with such a kid is known, a shared one neither, until
// ReplaceLocal is called without it.
func (r *Ring) ReplaceLocal(keys []Key, unreadable ...string) error {
	return r.replace(Local, keys, func(next *ringState) { next.unreadable = slices.Clone(unreadable) })
}

func (r *Ring) replace(src Source, keys []Key, also func(*ringState)) error {
	m := make(map[string]*preparedKey, len(keys))
	var bad []error
	for _, k := range keys {
		p, err := prepare(src, k)
		switch {
		case err != nil:
			bad = append(bad, err)
		case m[k.KID] != nil:
			bad = append(bad, fmt.Errorf("key %q occurs twice", k.KID))
		default:
			m[k.KID] = p
		}
	}
	if len(bad) > 0 {
		return errors.Join(bad...)
	}
	r.change(func(next *ringState) {
		for kid, p := range m {
			m[kid] = p.keepWork(next.sources[src][kid])
		}
		next.sources[src] = m
		also(next)
	})
	return nil
}

// keepWork reuses the computed values of the previous key, if it is the same key.
func (p *preparedKey) keepWork(old *preparedKey) *preparedKey {
	if old != nil && old.ed != nil && p.ed != nil && old.ed.encoded == p.ed.encoded {
		p.ed = old.ed
	}
	return p
}

func (r *Ring) change(f func(*ringState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := ringState{}
	if old := r.state.Load(); old != nil {
		next = ringState{sources: old.sources, refused: old.refused, unreadable: old.unreadable}
	}
	revoked := next.sources[Shared]
	f(&next)
	for kid, p := range revoked {
		if m := next.sources[Shared]; p.Revoked && (m[kid] == nil || !m[kid].Revoked) {
			m[kid] = p // f has made m, so it may be modified
		}
	}
	next.effective = make(map[string]*preparedKey, len(next.sources[Local])+len(next.sources[Shared]))
	maps.Copy(next.effective, next.sources[Shared])
	for kid, p := range next.sources[Local] {
		shared := next.effective[kid]
		if !p.Revoked && (shared != nil && shared.Revoked || shared == nil && next.refused[kid]) {
			revoked := *p
			revoked.Revoked = true
			p = &revoked
		}
		next.effective[kid] = p
	}
	for _, kid := range next.unreadable {
		delete(next.effective, kid)
	}
	left := int32(maxTables)
	for _, p := range next.effective {
		if p.ed != nil && p.ed.table.Load() != nil {
			left--
		}
	}
	r.tables.Store(left)
	r.state.Store(&next)
}

// Entry is one effective key of a ring, and its source.
type Entry struct {
	Key
	Source Source
}

// List returns the effective keys, sorted by kid. They must not be changed.
func (r *Ring) List() []Entry {
	state := r.state.Load()
	if state == nil {
		return nil
	}
	list := make([]Entry, 0, len(state.effective))
	for _, kid := range slices.Sorted(maps.Keys(state.effective)) {
		p := state.effective[kid]
		list = append(list, Entry{p.Key, p.source})
	}
	return list
}

// Lookup returns the effective key for kid, valid or not. It must not be changed.
func (r *Ring) Lookup(kid string) (Key, bool) {
	if state := r.state.Load(); state != nil {
		if p := state.effective[kid]; p != nil {
			return p.Key, true
		}
	}
	return Key{}, false
}

// Identity is the result of verifying an envelope's sender.
type Identity struct {
	Signed bool   // the envelope has a valid signature: from is proven
	KID    string // the key of the signature; "" if there is none
}

// Verify verifies the signature of e with a key that is valid at the time now. For an envelope
// without sig it returns the zero Identity and no error; [Verifier] decides whether that suffices.
// Every error is an *[envelope.Error]:
//
//	E_SIG_INVALID      sig is malformed, has another alg than its key, or does not verify
//	E_SIG_UNCHECKABLE  sig is a string, or names an unknown alg
//	E_KEY_UNKNOWN      the ring has no key with this kid
//	E_KEY_INVALID      the key is revoked, expired or not valid yet
//	E_FROM_DENIED      the signature is good, but its key may not speak for from
func (r *Ring) Verify(e *envelope.Envelope, now time.Time) (Identity, error) {
	if e.Sig == nil {
		return Identity{}, nil
	}
	var s signature
	if err := s.parse(e.Sig); err != nil {
		return Identity{}, err
	}
	var key *preparedKey
	if state := r.state.Load(); state != nil {
		key = state.effective[string(s.kid)]
	}
	if key == nil {
		return Identity{}, envelope.Errorf(envelope.CodeKeyUnknown, "key %q is not known here", s.kid)
	}
	// The key determines the algorithm; the envelope must name the same one.
	if key.Alg != s.alg {
		return Identity{}, envelope.Errorf(envelope.CodeSigInvalid, "key %q does not sign with %s", s.kid, s.alg)
	}
	if why := key.Invalidity(now); why != "" {
		return Identity{}, envelope.Errorf(envelope.CodeKeyInvalid, "key %q %s", s.kid, why)
	}
	p := buffers.Get().(*[]byte)
	message, err := AppendSigned((*p)[:0], e)
	good := err == nil && key.verify(message, s.value(), &r.tables)
	putBuffer(p, message)
	switch {
	case err != nil:
		return Identity{}, envelope.Errorf(envelope.CodeSigInvalid, "the envelope has a number that no signature can cover, or no canonical form: %w", err)
	case !good:
		return Identity{}, envelope.Errorf(envelope.CodeSigInvalid, "the signature by key %q does not verify", s.kid)
	case !key.SpeaksFor(e.From):
		return Identity{}, envelope.Errorf(envelope.CodeFromDenied, "key %q may not speak for this from", s.kid)
	}
	return Identity{Signed: true, KID: key.KID}, nil
}

func (p *preparedKey) verify(message, value []byte, tables *atomic.Int32) bool {
	if p.ed != nil {
		return p.ed.verify(message, value, tables)
	}
	return p.mac.verify(message, value)
}

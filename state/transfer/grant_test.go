package transfer_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/state/transfer"
)

var issued = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newRing returns a new key for agent.x and a ring that trusts it.
func newRing(t testing.TB) (*sign.Signer, *sign.Ring) {
	t.Helper()
	signer, key, err := sign.NewKey("source-1", sign.Ed25519, "agent.x")
	if err != nil {
		t.Fatal(err)
	}
	ring := new(sign.Ring)
	if err := ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	return signer, ring
}

func grant() transfer.Grant {
	return transfer.Grant{
		ID:     "6a0f3c1e-90a7-4d5c-8b0e-0f5f4bb0e1aa",
		Issuer: "agent.x", Source: "aeemesh/berlin", Target: "aeemesh/paris",
		AgentID: "11111111-1111-4111-8111-111111111111", RunID: "22222222-2222-4222-8222-222222222222",
		StateID: "33333333-3333-4333-8333-333333333333", Checksum: strings.Repeat("ab", 32),
		Issued: issued, Expires: issued.Add(5 * time.Minute),
	}
}

func TestTokenComesBackAsItWasIssued(t *testing.T) {
	t.Parallel()
	signer, ring := newRing(t)
	want := grant()
	token, err := want.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	got, err := transfer.VerifyToken(ring, token, "aeemesh/paris", issued.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if err := got.Covers(want.Source, want.AgentID, want.RunID, want.StateID, want.Checksum); err != nil {
		t.Error(err)
	}
}

func TestTokenGetsAnIDAndTheLongestLife(t *testing.T) {
	t.Parallel()
	signer, ring := newRing(t)
	g := grant()
	g.ID, g.Expires = "", time.Time{}
	seen := map[string]bool{}
	for range 2 {
		token, err := g.Sign(signer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := transfer.VerifyToken(ring, token, g.Target, issued.Add(15*time.Minute-time.Second))
		if err != nil {
			t.Fatal(err)
		}
		seen[got.ID] = true
		if !got.Expires.Equal(issued.Add(15 * time.Minute)) {
			t.Errorf("expires %v", got.Expires)
		}
	}
	if len(seen) != 2 {
		t.Errorf("two tokens have the ids %v", seen)
	}
}

func TestInvalidGrantsAreNotSigned(t *testing.T) {
	t.Parallel()
	signer, _ := newRing(t)
	for name, change := range map[string]func(*transfer.Grant){
		"lives too long":          func(g *transfer.Grant) { g.Expires = issued.Add(15*time.Minute + time.Second) },
		"expires before":          func(g *transfer.Grant) { g.Expires = issued },
		"has no issuer":           func(g *transfer.Grant) { g.Issuer = "" },
		"has no source":           func(g *transfer.Grant) { g.Source = "" },
		"has no target":           func(g *transfer.Grant) { g.Target = "" },
		"has no agent":            func(g *transfer.Grant) { g.AgentID = "" },
		"has no run":              func(g *transfer.Grant) { g.RunID = "" },
		"has no state":            func(g *transfer.Grant) { g.StateID = "" },
		"has no checksum":         func(g *transfer.Grant) { g.Checksum = "" },
		"has an id that is a key": func(g *transfer.Grant) { g.ID = "a.b.>" },
		"has no time":             func(g *transfer.Grant) { g.Issued = time.Time{} },
	} {
		g := grant()
		change(&g)
		if token, err := g.Sign(signer); err == nil {
			t.Errorf("a token that %s was issued: %s", name, token)
		}
	}
	shared, _, err := sign.NewKey("shared", sign.HS256, "agent.x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := grant().Sign(shared); err == nil {
		t.Error("an HS256 key issued a token")
	}
}

func TestTokenIsRefused(t *testing.T) {
	t.Parallel()
	signer, ring := newRing(t)
	stranger, _ := newRing(t) // another key with the same kid
	add := func(kid string, change func(*sign.Key), from ...string) *sign.Signer {
		s, key, err := sign.NewKey(kid, sign.Ed25519, from...)
		if err != nil {
			t.Fatal(err)
		}
		change(&key)
		if err := ring.Put(sign.Local, key); err != nil {
			t.Fatal(err)
		}
		return s
	}
	revoked := add("revoked", func(k *sign.Key) { k.Revoked = true }, "agent.x")
	expired := add("expired", func(k *sign.Key) { k.Expires = issued }, "agent.x")
	foreign := add("foreign", func(*sign.Key) {}, "agent.y")
	unknown, _, _ := sign.NewKey("unknown", sign.Ed25519, "agent.x")
	hs, hsKey, _ := sign.NewKey("hs", sign.HS256, "agent.x")
	if err := ring.Put(sign.Local, hsKey); err != nil {
		t.Fatal(err)
	}
	_ = hs

	by := func(s *sign.Signer) string {
		token, err := grant().Sign(s)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	// forge signs tokens that Grant.Sign would never sign.
	forge := func(s *sign.Signer, change func(header map[string]any, claims jwt.MapClaims)) string {
		g := grant()
		token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
			"jti": g.ID, "iss": g.Issuer, "aud": g.Target, "iat": g.Issued.Unix(), "exp": g.Expires.Unix(),
			"source_platform": g.Source, "agent_id": g.AgentID, "run_id": g.RunID, "state_id": g.StateID, "checksum": g.Checksum,
		})
		token.Header["typ"], token.Header["kid"] = "aaif-migration+jwt", s.KID()
		change(token.Header, token.Claims.(jwt.MapClaims))
		key, err := s.CryptoSigner()
		if err != nil {
			t.Fatal(err)
		}
		text, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	claim := func(name string, value any) string {
		return forge(signer, func(_ map[string]any, c jwt.MapClaims) {
			if c[name] = value; value == nil {
				delete(c, name)
			}
		})
	}
	none := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": "agent.x", "aud": "aeemesh/paris"})
	none.Header["kid"] = "source-1"
	unsigned, err := none.SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	mac := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": "agent.x", "aud": "aeemesh/paris"})
	mac.Header["kid"], mac.Header["typ"] = "source-1", "aaif-migration+jwt"
	key, _ := ring.Lookup("source-1")
	confused, err := mac.SignedString([]byte(key.Public)) // the public key as a shared secret
	if err != nil {
		t.Fatal(err)
	}
	good := by(signer)
	cut := strings.LastIndexByte(good, '.')
	other := grant()
	other.Checksum = strings.Repeat("cd", 32)
	another, err := other.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	mixed := another[:strings.LastIndexByte(another, '.')] + good[cut:] // the claims of one token with the signature of another

	for name, tt := range map[string]struct {
		token string
		at    time.Time
		want  error
	}{
		"empty":                      {"", issued, transfer.ErrTokenInvalid},
		"no token":                   {"a.b.c", issued, transfer.ErrTokenInvalid},
		"too long":                   {claim("agent_id", strings.Repeat("a", 9000)), issued, transfer.ErrTokenInvalid},
		"no signature":               {good[:cut+1], issued, transfer.ErrTokenInvalid},
		"another's signature":        {mixed, issued, transfer.ErrTokenInvalid},
		"a stranger's key":           {by(stranger), issued, transfer.ErrTokenInvalid},
		"alg none":                   {unsigned, issued, transfer.ErrTokenInvalid},
		"alg HS256 with the public":  {confused, issued, transfer.ErrTokenInvalid},
		"an unknown key":             {by(unknown), issued, transfer.ErrTokenKey},
		"a revoked key":              {by(revoked), issued, transfer.ErrTokenKey},
		"an expired key":             {by(expired), issued, transfer.ErrTokenKey},
		"a key of another agent":     {by(foreign), issued, transfer.ErrTokenKey},
		"another's issuer":           {claim("iss", "agent.y"), issued, transfer.ErrTokenKey},
		"no issuer":                  {claim("iss", nil), issued, transfer.ErrTokenKey},
		"expired":                    {good, issued.Add(5 * time.Minute), transfer.ErrTokenExpired},
		"from the future":            {good, issued.Add(-2 * time.Minute), transfer.ErrTokenExpired},
		"no expiry":                  {claim("exp", nil), issued, transfer.ErrTokenInvalid},
		"a second too long a life":   {claim("exp", issued.Add(15*time.Minute+time.Second).Unix()), issued, transfer.ErrTokenExpired},
		"no time of issue":           {claim("iat", nil), issued, transfer.ErrTokenInvalid},
		"not yet":                    {claim("nbf", issued.Add(time.Minute).Unix()), issued, transfer.ErrTokenExpired},
		"another platform":           {claim("aud", "aeemesh/rome"), issued, transfer.ErrTokenAudience},
		"two platforms":              {claim("aud", []string{"aeemesh/paris", "aeemesh/rome"}), issued, transfer.ErrTokenAudience},
		"no platform":                {claim("aud", nil), issued, transfer.ErrTokenInvalid},
		"an id that is no UUID":      {claim("jti", "x"), issued, transfer.ErrTokenInvalid},
		"no UUID of its length":      {claim("jti", strings.Repeat("x", 36)), issued, transfer.ErrTokenInvalid},
		"another spelling of an id":  {claim("jti", "urn:uuid:"+grant().ID), issued, transfer.ErrTokenInvalid},
		"no checksum":                {claim("checksum", nil), issued, transfer.ErrTokenInvalid},
		"another kind of token":      {forge(signer, func(h map[string]any, _ jwt.MapClaims) { h["typ"] = "JWT" }), issued, transfer.ErrTokenInvalid},
		"an HS256 key of the ring":   {forge(signer, func(h map[string]any, _ jwt.MapClaims) { h["kid"] = "hs" }), issued, transfer.ErrTokenKey},
		"a kid that is no string":    {forge(signer, func(h map[string]any, _ jwt.MapClaims) { h["kid"] = 1 }), issued, transfer.ErrTokenKey},
		"claims of another type":     {claim("agent_id", 7), issued, transfer.ErrTokenInvalid},
		"base64 with bits to spare":  {good[:len(good)-1] + string(good[len(good)-1]+1), issued, transfer.ErrTokenInvalid},
		"something behind the token": {good + "=", issued, transfer.ErrTokenInvalid},
	} {
		g, err := transfer.VerifyToken(ring, tt.token, "aeemesh/paris", tt.at)
		if !errors.Is(err, tt.want) || g != (transfer.Grant{}) {
			t.Errorf("%s: %+v, %v; want %v", name, g, err, tt.want)
		}
	}
	if _, err := transfer.VerifyToken(ring, good, "aeemesh/paris", issued); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func TestTokenThatHasExpiredMayBeRefused(t *testing.T) {
	t.Parallel()
	signer, ring := newRing(t)
	token, err := grant().Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := transfer.VerifyOldToken(ring, token, "aeemesh/paris"); err != nil || got != grant() {
		t.Errorf("got %+v, %v", got, err)
	}
	stranger, _ := newRing(t)
	if token, err = grant().Sign(stranger); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{token, "", "a.b.c"} {
		if _, err := transfer.VerifyOldToken(ring, bad, "aeemesh/paris"); !errors.Is(err, transfer.ErrTokenInvalid) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

func TestGrantForSomethingElse(t *testing.T) {
	t.Parallel()
	g := grant()
	right := [5]string{g.Source, g.AgentID, g.RunID, g.StateID, g.Checksum}
	for i := range right {
		args := right
		args[i] = "other"
		if err := g.Covers(args[0], args[1], args[2], args[3], args[4]); !errors.Is(err, transfer.ErrTokenState) {
			t.Errorf("argument %d: %v", i, err)
		}
	}
}

// FuzzVerifyToken: a token that is verified was signed, and no other token is verified.
func FuzzVerifyToken(f *testing.F) {
	signer, ring := newRing(f)
	good, err := grant().Sign(signer)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	f.Add(strings.Replace(good, ".", "..", 1))
	f.Fuzz(func(t *testing.T, token string) {
		g, err := transfer.VerifyToken(ring, token, "aeemesh/paris", issued)
		if (err == nil) != (token == good) || err == nil && g != grant() {
			t.Fatalf("%q: %+v, %v", token, g, err)
		}
	})
}

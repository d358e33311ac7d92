package sign

import (
	"fmt"
	"strings"
	"testing"
)

func TestKeyCheck(t *testing.T) {
	t.Parallel()
	_, ed := newTestKey(t, "k", Ed25519, 1, ">")
	_, hs := newTestKey(t, "k", HS256, 1, ">")
	for name, change := range map[string]func(*Key){
		"no kid":           func(k *Key) { k.KID = "" },
		"long kid":         func(k *Key) { k.KID = strings.Repeat("k", 65) },
		"kid with a slash": func(k *Key) { k.KID = "a/b" },
		"kid of dots":      func(k *Key) { k.KID = ".." },
		"kid with dots":    func(k *Key) { k.KID = "a..b" },
		"kid with a space": func(k *Key) { k.KID = "a b" },
		"kid with a star":  func(k *Key) { k.KID = "a*" },
		"kid like a flag":  func(k *Key) { k.KID = "-k" },
		"kid not ASCII":    func(k *Key) { k.KID = "schlüssel" },
		"no alg":           func(k *Key) { k.Alg = "" },
		"unknown alg":      func(k *Key) { k.Alg = "EdDSA" },
		"no key":           func(k *Key) { k.Public, k.Secret = nil, nil },
		"both keys":        func(k *Key) { k.Public, k.Secret = ed.Public, hs.Secret },
		"short key":        func(k *Key) { k.Public, k.Secret = k.Public[:len(k.Public)/2], k.Secret[:len(k.Secret)/2] },
		"no from":          func(k *Key) { k.From = nil },
		"bad from":         func(k *Key) { k.From = []string{"agent.>", "agent.x*"} },
		"turned times":     func(k *Key) { k.NotBefore, k.Expires = noon, noon },
	} {
		for _, k := range []Key{ed, hs} {
			if err := k.Check(); err != nil {
				t.Fatal(err)
			}
			change(&k)
			if err := k.Check(); err == nil {
				t.Errorf("%s (%s): no error", name, k.Alg)
			}
		}
	}
	for _, kid := range []string{"k", "key-2", "a.b_c-D", strings.Repeat("k", 64), "_", "01JFB2R1JZKQ9V3K8W8Y9W1F2A"} {
		if err := CheckKID(kid); err != nil {
			t.Errorf("%q: %v", kid, err)
		}
	}
}

// TestSecretsAreNotPrinted formats the types that hold secrets in every usual way.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	s, k := newTestKey(t, "k", HS256, 0x41, ">")
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, v := range []any{k, &k, s, []Key{k}, Entry{Key: k}} {
			out := fmt.Sprintf(format, v)
			if strings.Contains(out, "AAAA") || strings.Contains(out, "65 65") || strings.Contains(out, "0x41") || strings.Contains(out, "4141") {
				t.Errorf("%s of %T shows the secret: %s", format, v, out)
			}
		}
	}
}

func TestMatchFrom(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern string
		yes, no []string
	}{
		{"agent.reviewer", []string{"agent.reviewer"}, []string{"agent.reviewer2", "agent", "agent.reviewer.x", "Agent.reviewer", ""}},
		{"agent.*", []string{"agent.a", "agent.*"}, []string{"agent", "agent.", "agent.a.b", "service.a", ".a"}},
		{"agent.>", []string{"agent.a", "agent.a.b"}, []string{"agent", "service.a", "agents.a"}},
		{"*.a", []string{"agent.a"}, []string{".a", "a", "agent.b"}},
		{"*", []string{"a"}, []string{"a.b", ""}},
		{">", []string{"a", "a.b", "did:key:z6Mk"}, []string{""}},
		{"*.team.>", []string{"agent.team.x.y"}, []string{"agent.team", "agent.x.team"}},
	} {
		if err := CheckPattern(tt.pattern); err != nil {
			t.Error(err)
		}
		for _, from := range tt.yes {
			if !MatchFrom(tt.pattern, from) {
				t.Errorf("%q must match %q", tt.pattern, from)
			}
		}
		for _, from := range tt.no {
			if MatchFrom(tt.pattern, from) {
				t.Errorf("%q must not match %q", tt.pattern, from)
			}
		}
	}
	for _, p := range []string{"", ".", "a.", ".a", "a..b", "a.>.b", "a*", "agent.x>", "> ", "a b", "a\tb"} {
		if CheckPattern(p) == nil {
			t.Errorf("pattern %q accepted", p)
		}
	}
}

package secret_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/gob"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

const value = "hunter2-Zq/8+k=&<7>"

// No way of printing, logging or encoding shows the value, also where fmt cannot
// call methods: in private fields, and under verbs that do not fit.
func TestSecretNeverPrints(t *testing.T) {
	t.Parallel()
	s := secret.New(value)
	shown := map[string]any{
		"alone": s, "pointer": &s, "exported": struct{ S secret.Secret }{s}, "private": struct{ s secret.Secret }{s},
		"nested": &struct{ in struct{ p *secret.Secret } }{struct{ p *secret.Secret }{&s}}, "slice": []secret.Secret{s}, "map": map[string]secret.Secret{"a": s},
		"error": fmt.Errorf("with %v and %s and %x", s, s, s),
	}
	var texts []string
	for name, v := range shown {
		for verb := 'A'; verb <= 'z'; verb++ {
			for _, flags := range []string{"%", "%+", "%#", "% ", "%-20.3"} {
				texts = append(texts, name+" "+fmt.Sprintf(flags+string(verb), v))
			}
		}
		data, err := json.Marshal(v)
		texts = append(texts, string(data), fmt.Sprint(err))
		data, err = xml.Marshal(v)
		texts = append(texts, string(data), fmt.Sprint(err))
		var log bytes.Buffer
		for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
			slog.New(h).Info("message", "v", v)
		}
		var blob bytes.Buffer
		err = gob.NewEncoder(&blob).Encode(v)
		texts = append(texts, log.String(), blob.String(), fmt.Sprint(err))
	}
	for _, text := range texts {
		if found := secrettest.Find(text, map[string]string{"it": value}); found != nil {
			t.Errorf("shown: %q", text)
		}
	}
	if got := fmt.Sprintf("%v %s %d %x %q %#v", s, s, s, s, s, s); got != strings.TrimSpace(strings.Repeat(secret.Redacted+" ", 6)) {
		t.Errorf("printed as %q", got)
	}
	if s.Reveal() != value || s.IsZero() || !s.Equal(secret.New(value)) || s.Equal(secret.Secret{}) {
		t.Error("the value itself is lost")
	}
	if z := (secret.Secret{}); z.Reveal() != "" || !z.IsZero() || !secret.New("").IsZero() {
		t.Error("the zero Secret holds something")
	}
}

func TestRedactorTakesOutEveryForm(t *testing.T) {
	t.Parallel()
	var r secret.Redactor
	if got := r.Scrub(value); got != value {
		t.Errorf("a Redactor that knows no secret makes %q of a text", got)
	}
	r.Add(secret.New(value), secret.New("abc"), secret.New(value)) // what comes later is taken out, too
	quoted, _ := json.Marshal(map[string]string{"authorization": "Bearer " + value})
	for _, text := range []string{
		"401: Bearer " + value + " is expired",
		string(quoted),
		"https://x.example/?token=" + url.QueryEscape(value) + "&y=1",
		"https://x.example/" + url.PathEscape(value),
		"Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+value)),
		"Basic " + base64.StdEncoding.EncodeToString([]byte("us:"+value)),
		"Basic " + base64.StdEncoding.EncodeToString([]byte(value+":x")),
		"Basic " + base64.URLEncoding.EncodeToString([]byte("u:"+value+"\n")),
		fmt.Sprintf("%x", value),
		fmt.Sprintf("%X", value),
	} {
		got := r.Scrub(text)
		if !strings.Contains(got, secret.Redacted) || secrettest.Find(got, map[string]string{"it": value}) != nil {
			t.Errorf("Scrub(%q) = %q", text, got)
		}
		if !r.Holds(text) || r.Holds(got) {
			t.Errorf("Holds is wrong about %q", text)
		}
	}
	if got := r.Scrub("abc and nothing else"); got != "abc and nothing else" {
		t.Errorf("a word of every text is taken out: %q", got)
	}
	cause := fmt.Errorf("denied %s: %w", value, context.Canceled)
	err := r.Error(cause)
	if strings.Contains(err.Error(), value) || !errors.Is(err, context.Canceled) {
		t.Errorf("Error = %v", err)
	}
	if clean := errors.New("clean"); r.Error(clean) != clean || r.Error(nil) != nil {
		t.Error("an error without a secret is changed")
	}
	if got := (*secret.Redactor)(nil).Scrub(value); got != value {
		t.Error("a nil Redactor does something")
	}
}

// A text that was cut is scrubbed of the part of a secret at the cut, at each place of it.
func TestRedactorTakesOutPartsAtACut(t *testing.T) {
	t.Parallel()
	var r secret.Redactor
	r.Add(secret.New("first-"+value), secret.New(value))
	for _, form := range []string{value, "first-" + value, url.QueryEscape(value), fmt.Sprintf("%x", value)} {
		for n := secret.MinScrubbed; n <= len(form); n++ {
			if got := r.Head("it is " + form[:n]); got != "it is "+secret.Redacted {
				t.Errorf("Head of %d bytes of %q is %q", n, form, got)
			}
			if got := r.Tail(form[len(form)-n:] + " it is"); got != secret.Redacted+" it is" {
				t.Errorf("Tail of %d bytes of %q is %q", n, form, got)
			}
		}
	}
	for _, text := range []string{"", "abc", value[:3], value[:8] + " or so", "and so " + value[len(value)-3:]} {
		if head, tail := r.Head(text), r.Tail(text); head != text || tail != text {
			t.Errorf("%q is %q and %q", text, head, tail)
		}
	}
	if got := (*secret.Redactor)(nil).Head(value) + (*secret.Redactor)(nil).Tail(value); got != value+value {
		t.Error("a nil Redactor does something")
	}
}

// A text may have been clipped before it is scrubbed, by a validator or by the server that wrote it.
func TestRedactorTakesOutWhatAClipHasLeft(t *testing.T) {
	t.Parallel()
	var r secret.Redactor
	r.Add(secret.New("first-"+value), secret.New(value), secret.New("with…dots…within"))
	for _, form := range []string{value, "first-" + value[:8], url.QueryEscape(value), fmt.Sprintf("%x", value)} {
		for n := secret.MinScrubbed; n < len(form); n++ {
			text := clip.Text("it is "+form, len("it is ")+n)
			got := r.Scrub(text + " and " + text + `" of with…dots…within…`)
			if want := "it is [redacted]… and it is [redacted]…\" of [redacted]…"; got != want {
				t.Errorf("%q becomes %q", text, got)
			}
		}
	}
	for _, text := range []string{"…", "hun…", "so on… and so on…", value[:3] + "…", value[:8] + " …"} {
		if got := r.Scrub(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// A key of several lines reaches a log line by line when a program writes it to standard error.
func TestRedactorTakesOutTheLinesOfAKey(t *testing.T) {
	t.Parallel()
	der := make([]byte, 150)
	for i := range der {
		der[i] = byte(i*7 + 1)
	}
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	var r secret.Redactor
	r.Add(secret.New(strings.ReplaceAll(key, "\n", "\r\n")), secret.New("{\n  \"type\": \"service_account\"\n}"))
	for line := range strings.Lines(key) {
		line = strings.TrimSpace(line)
		want := secret.Redacted
		if strings.HasPrefix(line, "-----") || len(line) < 16 {
			want = line
		}
		if got := r.Scrub("x " + line); got != "x "+want {
			t.Errorf("Scrub(%q) = %q", line, got)
		}
	}
	if text := `"type": "service_account"`; r.Holds(text) {
		t.Errorf("a line of words, %s, is taken out", text)
	}
}

// Escapes of other languages: PHP's JSON, JavaScript's encodeURIComponent, small letters, HTML.
func TestRedactorKnowsTheEscapesOfOthers(t *testing.T) {
	t.Parallel()
	var r secret.Redactor
	r.Add(secret.New(`aB/c+d &(e)!'f"`))
	for _, text := range []string{`aB\/c+d &(e)!'f\"`, `aB%2Fc%2Bd%20%26(e)!'f%22`, `aB%2fc+d%20&%28e%29%21%27f%22`, `aB%2fc%2bd+%26%28e%29%21%27f%22`, `aB/c+d &amp;(e)!&#39;f&#34;`} {
		if got := r.Scrub("x " + text + " y"); got != "x [redacted] y" {
			t.Errorf("Scrub(%q) = %q", text, got)
		}
	}
}

// An error can quote a text that has a secret: as a name in a JSON pointer, with Go's %q, in JSON of
// a server that writes ASCII only, and in JSON within JSON.
func TestRedactorKnowsTheSecretInQuotedTexts(t *testing.T) {
	t.Parallel()
	const hard = `p~q/r%s"t\uéß😀` + "\n\x7f\u2028v"
	var r secret.Redactor
	r.Add(secret.New(hard), secret.New("a~b/c"), secret.New(`p~a;b,c@d/e:f&g=h`))
	asJSON, err := json.Marshal(map[string]string{"k": hard})
	if err != nil {
		t.Fatal(err)
	}
	pointer := strings.NewReplacer("~", "~0", "/", "~1").Replace(hard)
	ascii := `p~q/r%s\"t\\u\u00e9\u00df\ud83d\ude00\n\u007f\u2028v`
	for name, text := range map[string]string{
		"a pointer":               pointer,
		"a pointer in a fragment": url.PathEscape(pointer),
		"a pointer in a query":    url.QueryEscape(pointer),
		"a pointer in JSON":       strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\u2028", `\u2028`).Replace(pointer),
		"quoted by Go":            strings.Trim(strconv.Quote(hard), `"`),
		"quoted by Go, ASCII":     strings.Trim(strconv.QuoteToASCII(hard), `"`),
		"Python's JSON":           ascii,
		"JSON in capitals":        strings.NewReplacer("00e9", "00E9", "00df", "00DF", "ud83d", "uD83D", "ude00", "uDE00", "007f", "007F").Replace(ascii),
		"PHP's JSON":              strings.ReplaceAll(ascii, "/", `\/`),
		"JSON, quoted by Go":      strings.Trim(strconv.Quote(string(asJSON)), `"`),
		"a password in a URL":     url.UserPassword("u", `p~a;b,c@d/e:f&g=h`).String(),
		"a path":                  (&url.URL{Path: "/" + hard}).String(),
		"a fragment":              (&url.URL{Fragment: hard}).String(),
		"a short pointer":         "a~0b~1c",
	} {
		if got := r.Scrub("x " + text + " y"); strings.Contains(got, "p~") || strings.Contains(got, "~0") || !strings.Contains(got, secret.Redacted) {
			t.Errorf("%s: %s becomes %s", name, text, got)
		}
	}
}

// The longer of two secrets is taken out whole, where one begins like the other.
func TestRedactorPrefersTheLonger(t *testing.T) {
	t.Parallel()
	var r secret.Redactor
	r.Add(secret.New("token"), secret.New("token-and-more"))
	if got := r.Scrub("x token-and-more y"); got != "x [redacted] y" {
		t.Errorf("Scrub = %q", got)
	}
}

func TestSetResolves(t *testing.T) {
	t.Parallel()
	vault := secrettest.NewVault(map[string]string{"a/b": "from-the-vault", "a/json": `{"k":"from-json","n":17}`})
	env := map[string]string{"BILLING_TOKEN": "from-env", "OTHER": "other-value", "NATS_PASSWORD": "mesh-password", "AEEMESH_STATE_KEY": "state", "EMPTY_TOKEN": ""}
	set := &secret.Set{
		Env:      func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		AllowEnv: []string{"BILLING_*", "EMPTY_TOKEN", "UNSET", "NATS_*", "NATS_PASSWORD", "Nats_*", "*_KEY"},
		Vaults:   map[aaif.VaultProvider]secret.Vault{aaif.VaultCustom: vault},
	}
	ref := func(path, key string) *aaif.VaultRef {
		return &aaif.VaultRef{Provider: aaif.VaultCustom, Path: path, Key: key}
	}
	for _, tt := range []struct {
		name string
		auth *aaif.Auth
		want string
		kind error
	}{
		{"no auth", nil, "", nil},
		{"type none", &aaif.Auth{Type: aaif.AuthNone, EnvVar: "BILLING_TOKEN"}, "", nil},
		{"nothing named", &aaif.Auth{Type: aaif.AuthMTLS}, "", nil},
		{"variable", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "BILLING_TOKEN"}, "from-env", nil},
		{"vault", &aaif.Auth{Type: aaif.AuthBearer, VaultRef: ref("a/b", "")}, "from-the-vault", nil},
		{"key", &aaif.Auth{Type: aaif.AuthBearer, VaultRef: ref("a/json", "k")}, "from-json", nil},
		{"number", &aaif.Auth{Type: aaif.AuthBearer, VaultRef: ref("a/json", "n")}, "17", nil},
		{"both: the vault goes first", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "BILLING_TOKEN", VaultRef: ref("a/b", "")}, "from-the-vault", nil},
		{"both: a vault that fails is not replaced", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "BILLING_TOKEN", VaultRef: ref("none", "")}, "", secret.ErrNotFound},
		{"no such vault", &aaif.Auth{Type: aaif.AuthBearer, VaultRef: &aaif.VaultRef{Provider: aaif.VaultHashiCorp, Path: "x"}}, "", secret.ErrNotAllowed},
		{"variable not allowed", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "OTHER"}, "", secret.ErrNotAllowed},
		{"variable not set", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "UNSET"}, "", secret.ErrNotFound},
		{"variable empty", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "EMPTY_TOKEN"}, "", secret.ErrNotFound},
		{"the mesh's password", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "NATS_PASSWORD"}, "", secret.ErrNotAllowed},
		{"in another case", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "Nats_Password"}, "", secret.ErrNotAllowed},
		{"the state's key", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "AEEMESH_STATE_KEY"}, "", secret.ErrNotAllowed},
	} {
		got, err := set.Resolve(t.Context(), tt.auth)
		if !errors.Is(err, tt.kind) || got.Reveal() != tt.want {
			t.Errorf("%s: %q, %v; want %q, %v", tt.name, got.Reveal(), err, tt.want, tt.kind)
		}
		if err := set.Check(tt.auth); errors.Is(tt.kind, secret.ErrNotAllowed) != (err != nil) {
			t.Errorf("%s: Check = %v", tt.name, err)
		}
		if got, err := (*secret.Set)(nil).Resolve(t.Context(), tt.auth); !got.IsZero() || tt.want != "" && !errors.Is(err, secret.ErrNotAllowed) {
			t.Errorf("%s: a nil Set gives %q, %v", tt.name, got.Reveal(), err)
		}
	}
	for _, own := range []string{"NATS_PASSWORD", "Nats_Password", "AEEMESH_STATE_KEY"} {
		if _, err := set.Variable(own); set.AllowsEnv(own) || err == nil || !strings.Contains(err.Error(), "never given to a document") {
			t.Errorf("%s: allowed %v, %v", own, set.AllowsEnv(own), err)
		}
	}
	// At call time: what changed is seen.
	env["BILLING_TOKEN"] = "changed-env"
	vault.Put("a/b", "changed-in-the-vault")
	for want, auth := range map[string]*aaif.Auth{"changed-env": {Type: aaif.AuthBearer, EnvVar: "BILLING_TOKEN"}, "changed-in-the-vault": {Type: aaif.AuthBearer, VaultRef: ref("a/b", "")}} {
		if got, err := set.Resolve(t.Context(), auth); err != nil || got.Reveal() != want {
			t.Errorf("%q, %v; want %q", got.Reveal(), err, want)
		}
	}
	for _, known := range []string{"from-env", "from-the-vault", "from-json", "changed-env", "changed-in-the-vault"} {
		if !set.Redactor().Holds(known) {
			t.Errorf("the Redactor does not know %s", known)
		}
	}
	if set.Redactor().Holds("other-value mesh-password") {
		t.Error("the Redactor knows what nobody was given")
	}
}

// An empty secret is none: a credential that is empty would be sent as one.
func TestAnEmptyMemberIsNoSecret(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`{"k":""}`, `{"k":null}`, `{}`} {
		if got, err := secret.Member(aaif.VaultRef{Provider: aaif.VaultCustom, Path: "p", Key: "k"}, value); !errors.Is(err, secret.ErrNotFound) || !got.IsZero() {
			t.Errorf("%s: %q, %v", value, got.Reveal(), err)
		}
	}
}

func TestFakeVaultPassesTheSuite(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(secret.Vault) secret.Vault{
		"alone":   func(v secret.Vault) secret.Vault { return v },
		"guarded": func(v secret.Vault) secret.Vault { return secret.Guard(v, secret.Options{Allow: []string{"**"}}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secrettest.Run(t, func(*testing.T) secrettest.Subject {
				member, _ := json.Marshal(map[string]string{secrettest.MemberKey: secrettest.MemberValue})
				v := secrettest.NewVault(map[string]string{"plain": secrettest.PlainValue, "plain@1": secrettest.OldValue, "json": string(member)})
				ref := func(path, key, version string) aaif.VaultRef {
					return aaif.VaultRef{Provider: aaif.VaultCustom, Path: path, Key: key, Version: version}
				}
				return secrettest.Subject{Vault: wrap(v), Plain: ref("plain", "", ""), Member: ref("json", secrettest.MemberKey, ""), Old: ref("plain", "", "1"),
					Missing: ref("none", "", ""), MissingVersion: ref("plain", "", "9"), Denied: ref("denied/x", "", ""),
					Break: func() { v.Fail(secret.ErrUnavailable) }}
			})
		})
	}
}

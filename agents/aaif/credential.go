package aaif

import (
	"encoding/base64"
	"math"
	"net/url"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// credentialForms are the forms in which services issue credentials.
var credentialForms = []struct {
	name  string
	needs string // every match contains it, and most texts do not
	form  *pattern.Pattern
}{
	{"a private key", "-----BEGIN ", pattern.Of(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`)},
	{"an nkeys seed", "S", pattern.Of(`\bS[ACNOUX][A-Z2-7]{56}\b`)},
	{"an nkeys seed", "-----BEGIN ", pattern.Of(`-----BEGIN [A-Z ]*SEED-----`)},
	{"a JSON Web Token", "eyJ", pattern.Of(`\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*`)},
	{"an AWS access key id", "A", pattern.Of(`\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b`)},
	{"a GitHub token", "_", pattern.Of(`\b(?:gh[opsru]_[A-Za-z0-9]{20,}|github_pat_\w{20,})`)},
	{"a GitLab token", "gl", pattern.Of(`\bgl(?:pat|ptt|dt|rt)-[\w-]{20,}`)},
	{"a Slack token", "xox", pattern.Of(`\bxox[abcdeoprs]-[A-Za-z0-9-]{10,}`)},
	{"a Slack webhook", "hooks.slack.com/", pattern.Of(`hooks\.slack\.com/services/T\w+/B\w+/\w{16,}`)},
	{"a Google API key", "AIza", pattern.Of(`\bAIza[\w-]{35}`)},
	{"a Google OAuth token", "ya29.", pattern.Of(`\bya29\.[\w-]{20,}`)},
	{"a Stripe key", "k_", pattern.Of(`\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}`)},
	{"a Hugging Face token", "hf_", pattern.Of(`\bhf_[A-Za-z0-9]{30,}`)},
	{"a Groq key", "gsk_", pattern.Of(`\bgsk_[A-Za-z0-9]{30,}`)},
	{"an xAI key", "xai-", pattern.Of(`\bxai-[A-Za-z0-9]{30,}`)},
	{"a SendGrid key", "SG.", pattern.Of(`\bSG\.[\w-]{16,}\.[\w-]{16,}`)},
	{"an npm token", "npm_", pattern.Of(`\bnpm_[A-Za-z0-9]{36}`)},
	{"a Vault token", "hv", pattern.Of(`\bhv[bs]\.[\w-]{20,}`)},
	{"a Replicate token", "r8_", pattern.Of(`\br8_[A-Za-z0-9]{30,}`)},
}

var (
	skKey       = pattern.Of(`\bsk-[\w-]{20,}`)
	bearerToken = pattern.Of(`(?i)\bbearer[ :]+([\w.~+/=-]{16,})`)
	basicToken  = pattern.Of(`(?i)\bbasic[ ]+([A-Za-z0-9+/]{10,}={0,2})`)
	urlInText   = pattern.Of(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"'<>]+`)
)

// Credential returns the kind of credential that a text contains, if any.
func Credential(text string) (what string, found bool) {
	if longestWord(text) < 10 && !strings.Contains(text, "BEGIN ") {
		return "", false // most texts are prose
	}
	for _, f := range credentialForms {
		if strings.Contains(text, f.needs) && f.form.RE().MatchString(text) {
			return f.name, true
		}
	}
	if strings.Contains(text, "sk-") {
		for _, key := range skKey.RE().FindAllString(text, -1) {
			if slices.ContainsFunc(strings.FieldsFunc(key, isDashOrScore), randomRun) {
				return "an API key (sk-…)", true
			}
		}
	}
	for _, m := range bearerToken.RE().FindAllStringSubmatch(text, -1) {
		if looksRandom(m[1]) {
			return "a bearer token", true
		}
	}
	for _, m := range basicToken.RE().FindAllStringSubmatch(text, -1) {
		if isUserPassword(m[1]) {
			return "a user name and password (Basic)", true
		}
	}
	if strings.Contains(text, "://") {
		for _, raw := range urlInText.RE().FindAllString(text, -1) {
			if what, found := urlCredential(withoutPunctuation(raw)); found {
				return what, true
			}
		}
	}
	return "", false
}

// withoutPunctuation returns a URL without the punctuation of the text around it. Full stops that
// stand for a part that was left out stay.
func withoutPunctuation(raw string) string {
	for {
		raw = strings.TrimRight(raw, "`)],:;!?*\\")
		if !strings.HasSuffix(raw, ".") || strings.HasSuffix(raw, "...") {
			return raw
		}
		raw = raw[:len(raw)-1]
	}
}

// longestWord is the length of the longest run without white space.
func longestWord(text string) int {
	longest, start := 0, 0
	for i := range len(text) {
		if c := text[i]; c == ' ' || c == '\n' || c == '\t' || c == '\r' {
			longest, start = max(longest, i-start), i+1
		}
	}
	return max(longest, len(text)-start)
}

func isDashOrScore(r rune) bool { return r == '-' || r == '_' }

// randomRun reports whether s may be the random part of an issued key: long,
// with letters and digits mixed.
func randomRun(s string) bool {
	return len(s) >= 16 && strings.ContainsAny(s, digits) && strings.ContainsFunc(s, isLetter)
}

const digits = "0123456789"

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

// isUserPassword reports whether base64 decodes to user:password.
func isUserPassword(b64 string) bool {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(b64, "="))
	if err != nil {
		return false
	}
	user, password, ok := strings.Cut(string(raw), ":")
	printable := func(s string) bool {
		return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
	}
	return ok && user != "" && password != "" && printable(user) && printable(password)
}

// urlCredential looks for a credential in the user part and the query of a URL.
func urlCredential(raw string) (what string, found bool) {
	rest := raw[strings.Index(raw, "://")+3:]
	authority, _, _ := strings.Cut(rest, "/")
	authority, _, _ = strings.Cut(authority, "?")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, password, _ := strings.Cut(authority[:i], ":")
		if !placeholder(password) {
			return "a password in a URL", true
		}
		if unused(password) && looksRandom(user) {
			return "a token in a URL", true
		}
	}
	_, query, _ := strings.Cut(rest, "?")
	query, _, _ = strings.Cut(query, "#")
	for _, pair := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		if v, err := url.QueryUnescape(value); err == nil {
			value = v
		}
		switch secretName(name) {
		case secretPassword:
			if len(value) >= 4 && !placeholder(value) {
				return "a credential in a URL's query", true
			}
		case secretKey:
			if len(value) >= 4 && !placeholder(value) && !elided(value) {
				return "a credential in a URL's query", true
			}
		default:
			if weakQueryNames[strings.ToLower(name)] && looksRandom(value) {
				return "a credential in a URL's query", true
			}
		}
	}
	return "", false
}

// unused reports whether a password in a URL stands for none, or is masked: some services take a token
// as the user name, and an empty password or any, such as X.
func unused(password string) bool { return strings.Trim(password, mask) == "" }

// mask are the signs of a text that is masked.
const mask = "xX*.…•-_"

// weakQueryNames are parameters that hold credentials in some APIs and harmless
// values in others.
var weakQueryNames = map[string]bool{"key": true, "sig": true, "signature": true, "auth": true, "code": true, "subscription-key": true}

// A nameClass is the kind of value that a member's name suggests.
type nameClass int

const (
	harmless       nameClass = iota
	secretKey                // a key or token, generated by a machine: random
	secretPassword           // a password, chosen by a person
)

// secretName classifies a member's name, however its words are joined.
func secretName(name string) nameClass {
	switch fold(name) {
	case "password", "passwd", "passphrase", "pwd":
		return secretPassword
	case "secret", "clientsecret", "secretkey", "secretaccesskey", "awssecretaccesskey", "sharedsecret", "signingkey",
		"token", "accesstoken", "refreshtoken", "authtoken", "bearertoken", "idtoken", "sessiontoken", "apitoken",
		"apikey", "xapikey", "apisecret", "privatekey", "seed", "credential", "credentials", "authorization",
		"accesskey", "authkey", "personalaccesstoken":
		return secretKey
	}
	return harmless
}

var (
	// filled is one or more references to values, such as ${NAME}, {name}, {{ name }}, <your key>
	// and {user}.{key}; or $NAME, $name.path, $.path[*], env:NAME, vault:path.
	filled = pattern.Of(`^(?:(?:\$?\{[^{}]+\}|\{\{[^{}]+\}\}|<[^<>]+>)[-_.:]?)+$|^\$(?:[A-Za-z_]\w*|\.\w+|\[\w+\])(?:\.\w+|\[(?:\w+|\*)\])*$|^(?:env|vault):[\w./-]+$`)
	// sample is a word for a placeholder: yourpassword, EXAMPLE.
	sample = pattern.Of(`^(?i:(?:your|example|dummy|placeholder|changeme|redacted)(?:api|access|auth|client|secret|private|password|passwd|pass|token|key|user|name|id|value|here)*)$`)
)

// placeholder reports whether a text as a whole stands for a value to be filled in. A password
// may contain any sign, and any word.
func placeholder(s string) bool {
	switch {
	case strings.Trim(s, mask) == "":
		return true
	case strings.Contains(s, ":-"): // ${NAME:-default} has a value
		return false
	case filled.RE().MatchString(s):
		return true
	}
	words := strings.FieldsFunc(s, func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	for _, word := range words {
		if strings.ContainsFunc(word, func(r rune) bool { return !isLetter(r) }) {
			return false
		}
	}
	return sample.RE().MatchString(words[0]) || sample.RE().MatchString(words[len(words)-1]) || strings.EqualFold(strings.Join(words, ""), "changeme")
}

// elided reports whether a part of a text was left out, as in the examples of a document.
func elided(s string) bool { return strings.Contains(s, "...") || strings.Contains(s, "…") }

// IsUUID reports whether s has the form of a UUID (RFC 9562).
func IsUUID(s string) bool { return uuidForm.RE().MatchString(s) }

var uuidForm = pattern.Of(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)

// looksRandom reports whether a text was probably generated by a machine:
// without spaces, long, of many different characters, with digits among the
// letters, and not made of words. UUIDs and elided texts do not count.
func looksRandom(s string) bool {
	if len(s) < 16 || IsUUID(s) || elided(s) {
		return false
	}
	nDigits := 0
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
			nDigits++
		case isLetter(rune(c)), strings.IndexByte("+/=_.~-!@#%^&", c) >= 0:
		default:
			return false
		}
	}
	if nDigits < 2 || nDigits == len(s) || entropy(s) < 3.2 {
		return false
	}
	// Names consist of words and numbers that are joined:
	// claude-3-5-sonnet-20241022, arn-like paths, INTERNAL_TOKEN_2.
	words := strings.FieldsFunc(s, func(r rune) bool { return !isLetter(r) && (r < '0' || r > '9') })
	longest := slices.MaxFunc(append(words, ""), func(a, b string) int { return len(mixed(a)) - len(mixed(b)) })
	return len(mixed(longest)) >= 12
}

// mixed returns a part in which letters and digits alternate more often than in
// a word with a number at its end.
func mixed(word string) string {
	changes := 0
	for i := 1; i < len(word); i++ {
		if isLetter(rune(word[i])) != isLetter(rune(word[i-1])) {
			changes++
		}
	}
	if changes < 2 {
		return ""
	}
	return word
}

// entropy is the Shannon entropy of a text's bytes, in bits per byte.
func entropy(s string) float64 {
	var counts [256]int
	for _, c := range []byte(s) {
		counts[c]++
	}
	h := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(s))
			h -= p * math.Log2(p)
		}
	}
	return h
}

package review

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"path"
	"strings"
	"unicode"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// shape describes the form of one kind of credential. The secret is the group of the expression, or
// the whole match if there is no group.
type shape struct {
	rule     string
	what     string
	form     *pattern.Pattern
	mayGuess bool // the name indicates a secret, not the value: require randomness
}

var shapes = []shape{
	{"private-key", "a private key", pattern.Of(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----`), false},
	{"aws-key", "an AWS access key id", pattern.Of(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`), false},
	{"github-token", "a GitHub token", pattern.Of(`\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})`), false},
	{"slack-token", "a Slack token", pattern.Of(`\bxox[abposr]-[A-Za-z0-9-]{10,}`), false},
	{"google-key", "a Google API key", pattern.Of(`\bAIza[A-Za-z0-9_-]{35}`), false},
	{"stripe-key", "a Stripe key", pattern.Of(`\b[rs]k_live_[A-Za-z0-9]{16,}`), false},
	{"api-key", "an API key", pattern.Of(`\bsk-[A-Za-z0-9_-]{20,}`), false},
	{"nats-seed", "an nkeys seed", pattern.Of(`\bS[UAOCNX][A-Z2-7]{56}\b`), false},
	{"jwt", "a signed token", pattern.Of(`\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}`), false},
	{"url-password", "a password in a URL", pattern.Of(`\b[a-z][a-z0-9+.-]*://[^\s/:@"']+:([^\s/@"'{}$<>%]{4,})@[A-Za-z0-9.-]+`), false},
	{"hardcoded-secret", "a hard-coded secret", pattern.Of(`(?i)(?:passw(?:or)?d|secret|token|api[_-]?key|access[_-]?key|credential)[a-z0-9_]*["']?\s*(?::=|=|:)\s*["` + "`" + `']([^"` + "`" + `'\s]{8,})["` + "`" + `']`), true},
}

// bare is the hardcoded-secret of files where values need no quotes.
var bare = shape{"hardcoded-secret", "a hard-coded secret", pattern.Of(`(?i)^\s*(?:export\s+)?[a-z0-9_.-]*(?:passw(?:or)?d|secret|token|api[_-]?key|access[_-]?key|credential)[a-z0-9_]*\s*[=:]\s*([^\s"'#]{8,})\s*$`), true}

// mayHoldSecrets chooses the files to read: Go, and usual configuration.
func mayHoldSecrets(name string) bool {
	switch path.Ext(name) {
	case ".go", ".env", ".yaml", ".yml", ".json", ".toml", ".ini", ".conf", ".properties", ".pem", ".key", ".creds", ".tf", ".sh":
		return true
	}
	return strings.HasPrefix(path.Base(name), ".env")
}

// FindSecrets reports shapes of credentials in Go and configuration files.
func FindSecrets(ctx context.Context, root, at string) (*Report, error) {
	files, skipped, err := ReadFiles(ctx, root, at, mayHoldSecrets)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		found = append(found, secretsIn(f)...)
	}
	return NewReport(len(files), skipped, found), nil
}

func secretsIn(f Source) (found []Finding) {
	kinds := shapes
	if !IsGo(f.Name) {
		kinds = append(kinds[:len(kinds):len(kinds)], bare)
	}
	for i, line := range bytes.Split(f.Data, []byte("\n")) {
		for _, s := range kinds {
			m := s.form.RE().FindSubmatchIndex(line)
			if m == nil {
				continue
			}
			from, to := m[0], m[1]
			if len(m) > 2 && m[2] >= 0 {
				from, to = m[2], m[3]
			}
			secret := string(line[from:to])
			if s.mayGuess && !looksRandom(secret) {
				continue
			}
			found = append(found, Finding{f.Name, i + 1, from + 1, s.rule, SeverityError,
				fmt.Sprintf("this looks like %s: %s", s.what, mask(secret))})
			break // the most telling shape of a line is enough
		}
	}
	return found
}

// mask shows at most the first four characters, and never more than a quarter.
func mask(secret string) string {
	r := []rune(secret)
	return fmt.Sprintf("%s… (%d characters)", string(r[:min(4, len(r)/4)]), len(r))
}

// looksRandom tells a secret from a word or a placeholder.
func looksRandom(s string) bool {
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") {
		return false // where the secret is, not what
	}
	lower := strings.ToLower(s)
	for _, word := range []string{"example", "changeme", "placeholder", "your", "xxxx", "****", "${", "{{", "<", "%s", "redacted", "dummy"} {
		if strings.Contains(lower, word) {
			return false
		}
	}
	letters, others := false, false
	count := make(map[rune]int)
	n := 0
	for _, r := range s {
		if unicode.IsLetter(r) {
			letters = true
		} else if r != '_' && r != '-' && r != '.' && r != '/' {
			others = true
		}
		count[r]++
		n++
	}
	entropy := 0.0
	for _, c := range count {
		p := float64(c) / float64(n)
		entropy -= p * math.Log2(p)
	}
	return letters && others && entropy >= 2.5
}

package secret

import (
	"regexp"
	"strings"
)

// allowed is an entry of Options.Allow. key and version are nil where it does not
// name one.
type allowed struct{ path, key, version *regexp.Regexp }

// parseAllowed reads an entry. A reference's path has neither ? nor # (see
// [CheckRef]), so that what follows these cannot be a part of it.
func parseAllowed(entry string) allowed {
	var a allowed
	entry, key, named := strings.Cut(entry, "#")
	if named {
		a.key = compile(key)
	}
	path, version, named := strings.Cut(entry, "?version=")
	if named {
		a.version = compile(version)
	}
	a.path = compile(path)
	return a
}

// part reports whether a key or version is allowed; strict is true of one that
// has to be named.
func part(pattern *regexp.Regexp, text string, strict bool) bool {
	if pattern == nil {
		return !strict
	}
	return pattern.MatchString(text)
}

// Matches reports whether a path fits a pattern of Options.Allow.
func Matches(pattern, path string) bool { return compile(pattern).MatchString(path) }

// stars are what a pattern's stars become.
var stars = strings.NewReplacer(`\*\*`, `.*`, `\*`, `[^/]*`)

// compile makes a pattern an expression, which takes time in proportion to the
// path: patterns are the operator's, paths a stranger's.
func compile(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)\A` + stars.Replace(regexp.QuoteMeta(pattern)) + `\z`)
}

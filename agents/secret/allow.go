package secret

import (
	"regexp"
	"strings"
)

// allowed is a parsed entry of Options.Allow. key and version are nil if the
// entry does not name one.
type allowed struct{ path, key, version *regexp.Regexp }

// parseAllowed parses an entry. A reference's path contains neither ? nor #
// (see [CheckRef]), so the text after these is not part of it.
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

// part reports whether a key or version is permitted. If strict, the entry must
// name it.
func part(pattern *regexp.Regexp, text string, strict bool) bool {
	if pattern == nil {
		return !strict
	}
	return pattern.MatchString(text)
}

// stars replaces the stars of a pattern by regular expressions.
var stars = strings.NewReplacer(`\*\*`, `.*`, `\*`, `[^/]*`)

// compile converts a pattern to a regular expression, which matches in time
// linear in the path: patterns are the operator's, paths a stranger's.
func compile(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)\A` + stars.Replace(regexp.QuoteMeta(pattern)) + `\z`)
}

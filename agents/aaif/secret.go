package aaif

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// A document must not contain credentials: it names an environment variable
// (auth.env_var) or a vault entry (auth.vault_ref), and a runtime MUST reject a
// document that contains a credential (Tool Definitions, Security
// Considerations). This scan reads every string of a definition. It looks for
//
//   - the forms in which well-known services issue credentials, anywhere;
//   - credentials in URLs: user:password@host, and query parameters such as access_token;
//   - texts that look random, or like a password, under names such as api_key or password;
//   - an env_var that is no variable name, and a header that is more than a name.
//
// Prose, UUIDs, hashes and model names are none of these. The scan cannot find
// a credential that looks like an ordinary word in a place where any text is
// allowed.

// secretHint is the hint of every such problem.
const secretHint = "name the environment variable in auth.env_var, or the vault entry in auth.vault_ref; and revoke this credential"

// scanSecrets reports every credential in a document. Agent states are not
// scanned: they contain conversations, whose content the author does not
// choose, and by design a migration token.
func scanSecrets(k Kind, tree any) []Problem {
	if k == KindState {
		return nil
	}
	var s secretScan
	s.value(tree, "", harmless)
	return s.problems
}

type secretScan struct{ problems []Problem }

func (s *secretScan) full() bool { return len(s.problems) > maxProblems }

func (s *secretScan) found(pointer, what string) {
	s.problems = append(s.problems, errorf(pointer, RuleSecret, "this looks like %s", what).hint("%s", secretHint))
}

// value scans a value that stands below a name of the given class.
func (s *secretScan) value(v any, pointer string, class nameClass) {
	if s.full() {
		return
	}
	switch v := v.(type) {
	case string:
		s.text(v, pointer, class)
	case []any:
		for i, item := range v {
			s.value(item, child(pointer, i), class)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			s.member(name, v[name], pointer, class)
		}
	}
}

// member scans one member. Values below a secret name inherit its class, so
// that a JSON Schema's default or examples for a parameter named password count
// as passwords; its descriptive keywords do not.
func (s *secretScan) member(name string, v any, parent string, class nameClass) {
	at := child(parent, name)
	if text, ok := v.(string); ok {
		switch {
		case (name == "env_var" || name == "header") && authObject.RE().MatchString(parent):
			s.authField(name, text, at)
			return
		case endpointFields[name] && hasUser(text):
			s.found(at, "a URL with user information")
			return
		}
	}
	if c := secretName(name); c != harmless {
		class = c
	} else if schemaWords[name] {
		class = harmless
	}
	s.value(v, at, class)
}

// endpointFields are the URLs that a runtime calls.
var endpointFields = map[string]bool{
	"endpoint": true, "base_url": true, "token_url": true, "otlp_endpoint": true, "url": true, "manifest_url": true,
}

// hasUser reports whether a URL contains a user name without a password, or any
// name with a password, other than placeholders. An unused password is none.
func hasUser(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return false
	}
	if password, _ := u.User.Password(); !unused(password) {
		return !placeholder(password)
	}
	return !placeholder(u.User.Username())
}

// schemaWords are the keywords of a JSON Schema that describe a value rather
// than give one.
var schemaWords = map[string]bool{
	"description": true, "title": true, "type": true, "format": true, "pattern": true, "$comment": true, "$ref": true, "$id": true,
}

func (s *secretScan) text(text, pointer string, class nameClass) {
	if what, found := Credential(text); found {
		s.found(pointer, what)
		return
	}
	switch class {
	case secretKey:
		if looksRandom(text) {
			s.found(pointer, "a credential")
		}
	case secretPassword:
		if looksRandom(text) || looksLikePassword(text) {
			s.found(pointer, "a password")
		}
	}
}

// looksLikePassword reports whether s is one word with a digit or a sign in it,
// as people choose passwords.
func looksLikePassword(s string) bool {
	return len(s) >= 6 && len(s) <= 64 && !placeholder(s) && !IsUUID(s) &&
		!strings.ContainsAny(s, " \t\n/:") && strings.ContainsFunc(s, isLetter) && strings.ContainsAny(s, digits+"!@#%^&+=$*{}<>")
}

var (
	envVarName = pattern.Of(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerName = pattern.Of("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	authObject = pattern.Of(`^/agent/tools/[0-9]+/auth$`)
)

// authField checks that env_var and header are names: any other value is most
// likely the credential itself.
func (s *secretScan) authField(name, text, pointer string) {
	if what, found := Credential(text); found {
		s.found(pointer, what)
		return
	}
	switch {
	case text == "":
	case name == "env_var" && (looksRandom(text) || !envVarName.RE().MatchString(text) && !placeholder(text)):
		p := errorf(pointer, RuleSecret, "env_var is a value, not the name of an environment variable")
		s.problems = append(s.problems, p.hint("write the variable's name, such as BILLING_API_TOKEN; and revoke this credential if it is one"))
	case name == "header" && !headerName.RE().MatchString(text):
		p := errorf(pointer, RuleSecret, "header is more than the name of a header")
		s.problems = append(s.problems, p.hint("write the name alone, such as X-API-Key; the value comes from env_var or vault_ref"))
	}
}

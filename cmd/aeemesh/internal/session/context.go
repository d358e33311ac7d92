package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"
	"golang.org/x/net/proxy"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// applyContext fills in settings that neither flags nor environment set from
// the named NATS context, or else from the selected one, if there is one.
func (a *App) applyContext(c *natsconn.Config) error {
	name := a.Conn.context
	if name == "" {
		if name = a.Env.selectedContext(); name == "" {
			return nil
		}
	}
	s, err := a.Env.readContext(name)
	if err != nil {
		return err
	}
	a.Term.Progress("context %s", name)
	fill := func(to *string, from string) {
		if *to == "" {
			*to = from
		}
	}
	fill(&c.URL, s.URL)
	if !hasCredentials(*c) {
		c.User, c.Password, c.Token = s.User, s.Password, s.Token
		switch { // the nats CLI uses the first kind that is set
		case s.User != "":
			c.Token = ""
		case s.Creds != "":
			c.Creds, c.Token = a.Env.expand(s.Creds), ""
		case s.NKey != "":
			c.NKey, c.Token = a.Env.expand(s.NKey), ""
		case s.UserJwt != "":
			c.Options, c.Token = append(c.Options, userJWT(s.UserJwt, s.UserSeed)), ""
		}
	}
	if c.Cert == "" && c.Key == "" {
		c.Cert, c.Key = a.Env.expand(s.Cert), a.Env.expand(s.Key)
	}
	fill(&c.CA, a.Env.expand(s.CA))
	fill(&c.InboxPrefix, s.InboxPrefix)
	fill(&a.Conn.Domain, s.JSDomain)
	if p := strings.TrimSuffix(s.JSAPIPrefix, "."); a.Conn.Domain == "" && p != "" && p != strings.TrimSuffix(natsjs.DefaultAPIPrefix, ".") {
		rest, is := strings.CutPrefix(p, "$JS.")
		domain, api := strings.CutSuffix(rest, ".API")
		if !is || !api || strings.Contains(domain, ".") {
			return fmt.Errorf("context %s: jetstream_api_prefix %q is not that of a domain ($JS.DOMAIN.API): aeemesh knows no other", name, s.JSAPIPrefix)
		}
		a.Conn.Domain = domain
	}
	c.TLSFirst = c.TLSFirst || s.TLSFirst
	if s.SocksProxy != "" {
		dialer, err := socks(s.SocksProxy)
		if err != nil {
			return fmt.Errorf("context %s: socks_proxy: %w", name, err)
		}
		c.Options = append(c.Options, nats.SetCustomDialer(dialer))
	}
	return nil
}

// Environment looks up an environment variable; it returns "" if the variable
// is not set.
type Environment func(string) string

// contextSettings are the settings of a context, with the seed for user_jwt,
// which natscontext does not read.
type contextSettings struct {
	natscontext.Settings
	UserSeed string `json:"user_seed"`
}

// userJWT authenticates with a user's JWT, with the seed that signs the
// server's nonce, or without one for a bearer JWT.
func userJWT(token, seed string) nats.Option {
	if seed != "" {
		return nats.UserJWTAndSeed(token, seed)
	}
	return nats.UserJWT(
		func() (string, error) { return token, nil },
		func([]byte) ([]byte, error) { return nil, nil },
	)
}

// readContext reads a context of the nats CLI, or a file if name is a path.
func (e Environment) readContext(name string) (contextSettings, error) {
	var s contextSettings
	paths := []string{name}
	if !filepath.IsAbs(name) {
		if strings.ContainsAny(name, `/\`) || strings.Contains(name, "..") {
			return s, fmt.Errorf("NATS context %q: a name contains no slash, backslash or \"..\"; give the absolute path of a file", name)
		}
		paths = nil
		for _, dir := range e.ContextDirs() {
			paths = append(paths, filepath.Join(dir, "context", name+".json"))
		}
	}
	raw, err := []byte(nil), error(fs.ErrNotExist)
	for _, path := range paths {
		if raw, err = os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		hint := "There is none; \"nats context add\" makes one."
		if have := e.Contexts(); len(have) > 0 {
			hint = "There are: " + strings.Join(have, ", ") + "."
		}
		return s, outcome.Hinted(outcome.NotFound("NATS context %q is unknown", name), "%s", hint)
	}
	if err != nil {
		return s, fmt.Errorf("NATS context %q: %w", name, err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("NATS context %q: %w", name, err)
	}
	if s.NSCLookup != "" && s.Creds == "" {
		return s, outcome.Hinted(fmt.Errorf("NATS context %q takes its credentials from nsc, which aeemesh does not run", name),
			"Write them to a file with \"nsc generate creds\" and give --creds FILE.")
	}
	return s, nil
}

// Contexts returns the names of the stored contexts.
func (e Environment) Contexts() []string {
	var out []string
	for _, dir := range e.ContextDirs() {
		files, _ := filepath.Glob(filepath.Join(dir, "context", "*.json"))
		for _, f := range files {
			out = append(out, strings.TrimSuffix(filepath.Base(f), ".json"))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// selectedContext returns the context that "nats context select" has chosen, or
// "".
func (e Environment) selectedContext() string {
	for _, dir := range e.ContextDirs() {
		if raw, err := os.ReadFile(filepath.Join(dir, "context.txt")); err == nil {
			return strings.TrimSpace(string(raw))
		}
	}
	return ""
}

// ContextDirs are the folders with contexts of the nats CLI: below the home
// directory of the environment, and below that of the user's account, where the
// nats CLI looks regardless of $HOME.
func (e Environment) ContextDirs() []string {
	var dirs []string
	if dir := e.configHome(); dir != "" {
		dirs = append(dirs, filepath.Join(dir, "nats"))
	}
	if own := AccountHome(); own != "" && !filepath.IsAbs(e("XDG_CONFIG_HOME")) && e("HOME") != "" {
		if dir := filepath.Join(own, ".config", "nats"); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// configHome is the XDG directory of configuration; "" without a home directory.
func (e Environment) configHome() string { return e.base("XDG_CONFIG_HOME", ".config") }

// DataHome is the XDG directory of data; "" without a home directory.
func (e Environment) DataHome() string { return e.base("XDG_DATA_HOME", ".local/share") }

func (e Environment) base(variable, under string) string {
	if dir := e(variable); filepath.IsAbs(dir) {
		return dir
	}
	home := e("HOME")
	if home == "" {
		home, _ = os.UserHomeDir()
	}
	if home == "" {
		home = AccountHome()
	}
	if !filepath.IsAbs(home) {
		return "" // a relative path would depend on the working directory
	}
	return filepath.Join(home, filepath.FromSlash(under))
}

// AccountHome is the home directory of the user's account; "" if there is none,
// as in an image without /etc/passwd.
func AccountHome() string {
	u, err := user.Current()
	if err != nil || !filepath.IsAbs(u.HomeDir) {
		return ""
	}
	return u.HomeDir
}

// expand replaces a leading ~ and variables, as the nats CLI does.
func (e Environment) expand(path string) string {
	path = os.Expand(path, e)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(e.base("", ""), rest)
	}
	return path
}

func socks(proxyURL string) (nats.CustomDialer, error) {
	u, err := url.Parse(proxyURL)
	if err != nil {
		return nil, errors.New("is no URL")
	}
	return proxy.FromURL(u, proxy.Direct)
}

// RedactedURL removes the credentials from server URLs.
func RedactedURL(urls string) string {
	if urls == "" {
		return nats.DefaultURL
	}
	parts := strings.Split(urls, ",")
	for i, p := range parts {
		scheme, rest, ok := strings.Cut(p, "://")
		if !ok {
			scheme, rest = "nats", p
		}
		if at := strings.LastIndex(rest, "@"); at >= 0 {
			rest = rest[at+1:]
		}
		parts[i] = scheme + "://" + rest
	}
	return strings.Join(parts, ",")
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/natscontext"
	"golang.org/x/net/proxy"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// applyContext fills in settings that neither flags nor environment set from
// the named NATS context, or else from the selected one, if there is one.
func (a *progApp) applyContext(c *natsconn.Config) error {
	name := a.conn.context
	if name == "" {
		if name = a.selectedContext(); name == "" {
			return nil
		}
	}
	s, err := a.readContext(name)
	if err != nil {
		return err
	}
	a.term.Progress("context %s", name)
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
			c.Creds, c.Token = a.expand(s.Creds), ""
		case s.NKey != "":
			c.NKey, c.Token = a.expand(s.NKey), ""
		case s.UserJwt != "":
			c.Options, c.Token = append(c.Options, userJWT(s.UserJwt, s.UserSeed)), ""
		}
	}
	if c.Cert == "" && c.Key == "" {
		c.Cert, c.Key = a.expand(s.Cert), a.expand(s.Key)
	}
	fill(&c.CA, a.expand(s.CA))
	fill(&c.InboxPrefix, s.InboxPrefix)
	fill(&a.conn.domain, s.JSDomain)
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
func (a *progApp) readContext(name string) (contextSettings, error) {
	var s contextSettings
	paths := []string{name}
	if !filepath.IsAbs(name) {
		if strings.ContainsAny(name, `/\`) || strings.Contains(name, "..") {
			return s, fmt.Errorf("NATS context %q: no such name is legal", name)
		}
		paths = nil
		for _, dir := range a.contextDirs() {
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
		if have := a.contexts(); len(have) > 0 {
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

// contexts returns the names of the stored contexts.
func (a *progApp) contexts() []string {
	var out []string
	for _, dir := range a.contextDirs() {
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
func (a *progApp) selectedContext() string {
	for _, dir := range a.contextDirs() {
		if raw, err := os.ReadFile(filepath.Join(dir, "context.txt")); err == nil {
			return strings.TrimSpace(string(raw))
		}
	}
	return ""
}

// contextDirs are the folders with contexts of the nats CLI: below the home
// directory of the environment, and below that of the user's account, where the
// nats CLI looks regardless of $HOME.
func (a *progApp) contextDirs() []string {
	var dirs []string
	if dir := a.configHome(); dir != "" {
		dirs = append(dirs, filepath.Join(dir, "nats"))
	}
	if own := accountHome(); own != "" && !filepath.IsAbs(a.env("XDG_CONFIG_HOME")) && a.env("HOME") != "" {
		if dir := filepath.Join(own, ".config", "nats"); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// configHome and dataHome are the XDG base directories; "" without a home
// directory.
func (a *progApp) configHome() string { return a.base("XDG_CONFIG_HOME", ".config") }
func (a *progApp) dataHome() string   { return a.base("XDG_DATA_HOME", ".local/share") }

func (a *progApp) base(variable, under string) string {
	if dir := a.env(variable); filepath.IsAbs(dir) {
		return dir
	}
	home := a.env("HOME")
	if home == "" {
		home, _ = os.UserHomeDir()
	}
	if home == "" {
		home = accountHome()
	}
	if !filepath.IsAbs(home) {
		return "" // a relative path would depend on the working directory
	}
	return filepath.Join(home, filepath.FromSlash(under))
}

// accountHome is the home directory of the user's account; "" if there is none,
// as in an image without /etc/passwd.
func accountHome() string {
	u, err := user.Current()
	if err != nil || !filepath.IsAbs(u.HomeDir) {
		return ""
	}
	return u.HomeDir
}

// expand replaces a leading ~ and variables, as the nats CLI does.
func (a *progApp) expand(path string) string {
	path = os.Expand(path, a.env)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(a.base("", ""), rest)
	}
	return path
}

// socksDialer adapts a SOCKS proxy to nats.go.
type socksDialer struct{ proxy.Dialer }

func (d socksDialer) Dial(network, address string) (net.Conn, error) {
	return d.Dialer.Dial(network, address)
}

func socks(proxyURL string) (nats.CustomDialer, error) {
	u, err := url.Parse(proxyURL)
	if err != nil {
		return nil, errors.New("is no URL")
	}
	d, err := proxy.FromURL(u, proxy.Direct)
	if err != nil {
		return nil, err
	}
	return socksDialer{d}, nil
}

// redactedURL removes the credentials from server URLs.
func redactedURL(urls string) string {
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

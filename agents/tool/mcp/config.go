package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/subprocess"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// The defaults of [Config].
const (
	DefaultConnectTimeout = 30 * time.Second
	DefaultPing           = 30 * time.Second
	DefaultMaxMessage     = 8 << 20 // bytes
)

// Server is an entry of the operator's list: a program or an address. Documents
// name it as mcp://NAME/CAPABILITY.
type Server struct {
	// Command is the program and its arguments. It is started without a shell,
	// once for all agents of the process, and communicates over standard input
	// and output. A name without a slash is looked up in the worker's PATH.
	Command []string `json:"command,omitzero"`

	// Env lists variables for the program in addition to [subprocess.BaseEnv]:
	// NAME passes on the worker's own variable, NAME=value sets one. NATS_* and
	// AEEMESH_* give access to the mesh and are not passed on. Do not write
	// secrets here; name their variables.
	Env []string `json:"env,omitzero"`

	// Dir is the program's working directory. Default: that of the worker.
	Dir string `json:"dir,omitzero"`

	// URL is the server's address instead of a Command: http, https, ws or wss.
	URL string `json:"url,omitzero"`

	// Transport is the transport for an http address: streamable or sse.
	// Default: streamable, and sse if the server supports nothing else.
	Transport string `json:"transport,omitzero"`

	// Auth is the authentication at URL, in AAIF's form: it names the secret.
	// It replaces the document's. Default: the document's.
	Auth *aaif.Auth `json:"auth,omitzero"`

	// Tools are the tools that documents may have, by the server's names; a * at
	// the end stands for any rest. Default: all.
	Tools []string `json:"tools,omitzero"`

	// Untrusted ignores the server's annotations that its tools are safe to
	// repeat; see [Tool.RepeatSafe].
	Untrusted bool `json:"untrusted,omitzero"`
}

// ServerName matches the names of servers: the host of mcp://NAME/CAPABILITY.
var ServerName = pattern.Of(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckNamed reports all errors in a server's entry and in its name.
func (s *Server) CheckNamed(name string) error {
	err := s.Check()
	if !ServerName.RE().MatchString(name) {
		err = errors.Join(errors.New("the name is not a letter or digit, then up to 63 letters, digits, dots, underscores or hyphens"), err)
	}
	return err
}

// Check reports all errors in a server's entry.
func (s *Server) Check() error {
	var bad []error
	switch {
	case len(s.Command) == 0 && s.URL == "":
		bad = append(bad, errors.New("it needs a command or a url"))
	case len(s.Command) > 0 && s.URL != "":
		bad = append(bad, errors.New("it has both a command and a url"))
	case len(s.Command) > 0 && s.Command[0] == "":
		bad = append(bad, errors.New("command: the program is empty"))
	case s.URL != "":
		bad = append(bad, checkURL(s.URL))
	}
	for i, arg := range s.Command {
		if strings.ContainsRune(arg, 0) {
			bad = append(bad, fmt.Errorf("command[%d]: has a NUL", i))
		}
	}
	for i, e := range s.Env {
		if err := subprocess.CheckEntry(e); err != nil {
			bad = append(bad, fmt.Errorf("env[%d]: %w", i, err))
		}
	}
	if s.URL != "" && (len(s.Env) > 0 || s.Dir != "") {
		bad = append(bad, errors.New("env and dir are for a command"))
	}
	if s.URL == "" && (s.Auth != nil || s.Transport != "") {
		bad = append(bad, errors.New("auth and transport are for a url"))
	}
	if !slices.Contains([]string{"", transportStreamable, transportSSE}, s.Transport) {
		bad = append(bad, fmt.Errorf("transport %q: want %s or %s", s.Transport, transportStreamable, transportSSE))
	}
	for i, t := range s.Tools {
		if t == "" || strings.Contains(strings.TrimSuffix(t, "*"), "*") {
			bad = append(bad, fmt.Errorf("tools[%d]: %q: want a name, or a prefix and *", i, t))
		}
	}
	return errors.Join(bad...)
}

const (
	transportStreamable = "streamable"
	transportSSE        = "sse"
)

func checkURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return fmt.Errorf("url: %w", errors.Unwrap(err)) // without the address, which may contain a password
	case !slices.Contains([]string{"http", "https", "ws", "wss"}, u.Scheme):
		return fmt.Errorf("url: the scheme %q is not one of http, https, ws, wss", u.Scheme)
	case u.Host == "":
		return errors.New("url: it has no host")
	case u.User != nil:
		return errors.New("url: a credential has no place in it, use auth")
	}
	return nil
}

// Config lists the servers, and says what documents may reach.
type Config struct {
	// Servers are the operator's list, by name.
	Servers map[string]Server

	// Env looks up a variable of the worker's environment. Default: none is set.
	Env func(name string) (string, bool)

	// Allow returns nil if a document may name an address that is not in the
	// list. It does no I/O. Default: no address is permitted.
	Allow func(endpoint string) error

	// Client makes the client for an address with a credential: for each
	// session, and when an entry is opened, to report unsupported settings.
	// listed says that the address is in the operator's list. Client must do no
	// I/O. The client must not time out streams, nor wrap the body of a 101.
	// Default: a client of this package, without credentials.
	Client func(ctx context.Context, endpoint string, auth *aaif.Auth, listed bool) (*http.Client, error)

	// Progress is called for progress reports of a server. It must return soon.
	// Default: reports are ignored.
	Progress func(Progress)

	// ConnectTimeout bounds the start of a server and the handshake. A server that
	// does not answer the newest handshake is started once more for the older one,
	// with the same timeout. Default 30 s.
	ConnectTimeout time.Duration

	// Ping is the interval of pings to a silent server. After two pings without
	// an answer its session is closed, and the next call starts another. Pings
	// during a call with a deadline do not count: a server may do one thing at a
	// time. Protocol 2026-07-28 has none over HTTP. Default 30 s; negative: never.
	//
	// It is also the age at which a list of tools is requested again, over HTTP,
	// while there is no stream for the server's notices. If negative: 30 s.
	Ping time.Duration

	// MaxMessage bounds one message of a server, in bytes. Default 8 MiB.
	MaxMessage int

	// Version is the worker's version, which is sent to servers. Default "dev".
	Version string

	// Log receives the servers' standard error, and the starts and ends of
	// sessions. Default: discarded.
	Log *slog.Logger

	// Redactor removes credentials from the servers' texts before they are
	// shortened. Default: none are known.
	Redactor tool.Redactor

	writeTimeout time.Duration // of sending a message; default [writeTimeout]
}

// Progress is a server's report about a running call. Its content is untrusted.
type Progress struct {
	Server, Tool    string
	Progress, Total float64 // Total is 0 if unknown
	Message         string
}

func (c Config) withDefaults() Config {
	c.Servers = maps.Clone(c.Servers)
	if c.Env == nil {
		c.Env = func(string) (string, bool) { return "", false }
	}
	if c.Allow == nil {
		c.Allow = func(string) error {
			return errors.New("no policy permits addresses that are not those of configured servers")
		}
	}
	if c.Client == nil {
		c.Client = plainClient
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = DefaultConnectTimeout
	}
	c.Ping = cmp.Or(c.Ping, DefaultPing)
	if c.MaxMessage <= 0 {
		c.MaxMessage = DefaultMaxMessage
	}
	c.writeTimeout = cmp.Or(c.writeTimeout, writeTimeout)
	c.Version = cmp.Or(c.Version, "dev")
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Redactor == nil {
		c.Redactor = tool.NoRedactor{}
	}
	return c
}

// plainClient is the default of Config.Client.
func plainClient(_ context.Context, _ string, auth *aaif.Auth, _ bool) (*http.Client, error) {
	if auth != nil && auth.Type != "" && auth.Type != aaif.AuthNone {
		return nil, fmt.Errorf("auth %s: there are no credentials here", auth.Type)
	}
	return &http.Client{}, nil
}

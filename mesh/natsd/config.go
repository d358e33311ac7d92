package natsd

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"
)

// RandomPort as a port lets the operating system choose a free one.
const RandomPort = -1

// DefaultPort is where NATS servers listen.
const DefaultPort = 4222

// Config says how the server runs. Its zero value is a plain server without
// JetStream on 127.0.0.1:4222.
type Config struct {
	// ConfigFile is a nats-server configuration file, read by Start. Fields of
	// this struct that are set win over the file; so does what they imply: with
	// Users, Nkeys or Token set, the file's authorization of the same kind is
	// replaced.
	ConfigFile string

	// Name is the server's name. Default: nats-server makes one up.
	Name string

	// Host is the address to listen on. Default: 127.0.0.1, or the ConfigFile's
	// if there is one. An address that others can reach needs authorization or
	// a network that keeps others out; that is the caller's to decide.
	Host string

	// Port is where clients connect. Default: 4222, or the ConfigFile's.
	// RandomPort lets the system choose.
	Port int

	// InProcessOnly opens no port: clients connect with [Server.InProcess].
	InProcessOnly bool

	// MonitorPort serves nats-server's HTTP monitoring (/varz, /jsz, …) on
	// Host. Default: 0, none. RandomPort lets the system choose. It shows
	// subjects, addresses and user names to every client that can connect.
	MonitorPort int

	// JetStream turns persistence on. It needs a StoreDir.
	JetStream bool

	// StoreDir is where JetStream keeps its data; Start makes it, readable by
	// the owner alone, if it is missing.
	StoreDir string

	// Domain is the JetStream domain. Default: none.
	Domain string

	// MaxStore bounds all file storage, in bytes. Default: nats-server takes three
	// quarters of the free disk space.
	MaxStore int64

	// SyncInterval is how often JetStream calls fsync. Default: two minutes.
	// See the package comment.
	SyncInterval time.Duration

	// SyncAlways calls fsync before every acknowledgement.
	SyncAlways bool

	// MaxPayload bounds a message, headers included, in bytes. Default: 1 MiB.
	// NATS advises against more than 8 MiB.
	MaxPayload int32

	// Websocket also serves NATS over websockets. Default: no.
	Websocket *Websocket

	// TLS for the client port. Default: none.
	TLS *TLS

	// Users, Nkeys and Token list the clients that may connect. Without any of them every client
	// may.
	Users []User
	Nkeys []NkeyUser
	Token string

	// Logger takes the server's words: at Info and above, and at Debug if it is
	// enabled at that level. Default: none.
	Logger *slog.Logger
}

// Websocket configures the websocket port. Exactly one of TLS and NoTLS must
// be set: browsers' credentials travel in clear without TLS.
type Websocket struct {
	Port  int // RandomPort lets the system choose. Required.
	TLS   *TLS
	NoTLS bool

	// AllowedOrigins are the Origins that a browser's page may have, such as
	// https://app.example; [AnyOrigin] among them allows every page. Default:
	// only the request's own host, or any page that a developer visits could
	// use a server without a password. A client that is no browser sends no
	// Origin and is not held up.
	AllowedOrigins []string
}

// AnyOrigin in [Websocket.AllowedOrigins] allows pages of every origin.
const AnyOrigin = "*"

// TLS is a server's certificate.
type TLS struct {
	CertFile, KeyFile string // PEM
	CAFile            string // PEM; who signed the clients' certificates
	Verify            bool   // ask clients for a certificate and verify it (mTLS)
}

// User may connect with a name and a password. The password may be a bcrypt
// hash.
type User struct {
	Name, Password string
	Permissions    *Permissions // nil: everything
}

// NkeyUser may connect by proving that it has the seed of a public nkey.
type NkeyUser struct {
	Public string // "U…"
}

// Permissions bound what a user may publish and subscribe to, as in a
// nats-server configuration file.
type Permissions struct {
	Publish, Subscribe Subjects
	AllowResponses     *AllowResponses // nil: no
}

// Subjects allow and deny patterns. Without Allow everything is allowed that is
// not denied.
type Subjects struct{ Allow, Deny []string }

// AllowResponses lets a subscriber answer on the reply subject of a message it
// got, although its permissions to publish do not cover it.
type AllowResponses struct {
	Max     int           // messages for each request. 0: nats-server's default, 1. -1: no bound
	Expires time.Duration // after the request. 0: nats-server's default, 2 minutes. -1: never
}

// problems lists everything that is wrong with the configuration without
// touching the disk or the network.
func (c *Config) problems() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	checkPort := func(name string, p int) {
		if p < RandomPort || p > 65535 {
			bad("%s %d: must be 1 to 65535, or -1 for a random one", name, p)
		}
	}
	checkPort("port", c.Port)
	checkPort("monitor port", c.MonitorPort)
	if c.JetStream && c.StoreDir == "" && c.ConfigFile == "" {
		bad("jetstream needs a store directory")
	}
	if !c.JetStream && c.ConfigFile == "" && (c.SyncAlways || c.SyncInterval != 0 || c.StoreDir != "" || c.Domain != "") {
		bad("store directory, sync interval and domain need jetstream")
	}
	if c.SyncInterval < 0 {
		bad("sync interval %s: must not be negative", c.SyncInterval)
	}
	if c.SyncAlways && c.SyncInterval != 0 {
		bad("sync interval %s: sync always leaves nothing to do for it", c.SyncInterval)
	}
	if c.MaxPayload < 0 {
		bad("max payload %d: must not be negative", c.MaxPayload)
	}
	if strings.ContainsAny(c.Name, " \t\r\n") {
		bad("server name %q: must have no spaces", c.Name)
	}
	errs = append(errs, c.TLS.problems("tls"))
	if w := c.Websocket; w != nil {
		checkPort("websocket port", w.Port)
		switch {
		case w.Port == 0:
			bad("websocket: needs a port")
		case w.TLS == nil && !w.NoTLS:
			bad("websocket: needs tls, or no_tls said explicitly: without it credentials travel in clear")
		case w.TLS != nil && w.NoTLS:
			bad("websocket: tls and no_tls exclude one another")
		}
		for _, o := range w.AllowedOrigins {
			if u, err := url.Parse(o); o != AnyOrigin && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "") {
				bad("websocket origin %q: must be a scheme and a host such as https://app.example, or %s", o, AnyOrigin)
			}
		}
		errs = append(errs, w.TLS.problems("websocket tls"))
	}
	if c.Token != "" && (len(c.Users) > 0 || len(c.Nkeys) > 0) {
		bad("token and users exclude one another")
	}
	for i, u := range c.Users {
		if u.Name == "" || u.Password == "" {
			bad("user %d: needs a name and a password", i)
		}
	}
	for i, u := range c.Nkeys {
		if !strings.HasPrefix(u.Public, "U") {
			bad("nkey user %d: needs a public user key, U…", i)
		}
	}
	return errors.Join(errs...)
}

func (t *TLS) problems(what string) error {
	switch {
	case t == nil:
		return nil
	case t.CertFile == "" || t.KeyFile == "":
		return fmt.Errorf("%s: needs a certificate file and a key file", what)
	case t.Verify && t.CAFile == "":
		return fmt.Errorf("%s: needs a CA file to verify clients' certificates", what)
	}
	return nil
}

package natsd

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// options turns the configuration into nats-server's, reading the files that
// it names.
func options(c *Config) (*server.Options, error) {
	opts := &server.Options{}
	if c.ConfigFile != "" {
		fromFile, err := server.ProcessConfigFile(c.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("read nats-server configuration: %w", err)
		}
		opts = fromFile
	}
	opts.NoSigs = true
	opts.NoLog = true
	opts.DisableJetStreamBanner = true
	opts.DontListen = c.InProcessOnly
	set(&opts.ServerName, c.Name)
	set(&opts.Host, c.Host)
	opts.Host = cmp.Or(opts.Host, "127.0.0.1")
	set(&opts.Port, c.Port)
	opts.Port = cmp.Or(opts.Port, DefaultPort)
	if c.MonitorPort != 0 {
		opts.HTTPHost, opts.HTTPPort = opts.Host, c.MonitorPort
	}
	opts.JetStream = opts.JetStream || c.JetStream
	set(&opts.StoreDir, c.StoreDir)
	if opts.JetStream && opts.StoreDir == "" {
		return nil, fmt.Errorf("jetstream needs a store directory, and %s names none", c.ConfigFile)
	}
	set(&opts.JetStreamDomain, c.Domain)
	set(&opts.JetStreamMaxStore, c.MaxStore)
	set(&opts.SyncInterval, c.SyncInterval)
	set(&opts.SyncAlways, c.SyncAlways)
	set(&opts.MaxPayload, c.MaxPayload)
	set(&opts.Authorization, c.Token)
	if len(c.Users) > 0 {
		opts.Users = nil // the file's
	}
	for _, u := range c.Users {
		opts.Users = append(opts.Users, &server.User{Username: u.Name, Password: u.Password, Permissions: u.Permissions.server()})
	}
	if len(c.Nkeys) > 0 {
		opts.Nkeys = nil
	}
	for _, u := range c.Nkeys {
		opts.Nkeys = append(opts.Nkeys, &server.NkeyUser{Nkey: u.Public})
	}
	if c.TLS != nil {
		tc, err := c.TLS.load()
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		opts.TLS, opts.TLSConfig, opts.TLSVerify = true, tc, c.TLS.Verify
	}
	if w := c.Websocket; w != nil {
		opts.Websocket = server.WebsocketOpts{Host: opts.Host, Port: w.Port, NoTLS: w.NoTLS, SameOrigin: len(w.AllowedOrigins) == 0}
		if !slices.Contains(w.AllowedOrigins, AnyOrigin) {
			opts.Websocket.AllowedOrigins = w.AllowedOrigins
		}
		if w.TLS != nil {
			tc, err := w.TLS.load()
			if err != nil {
				return nil, fmt.Errorf("websocket tls: %w", err)
			}
			opts.Websocket.TLSConfig = tc
		}
	}
	return opts, nil
}

func set[T comparable](dst *T, v T) {
	var zero T
	if v != zero {
		*dst = v
	}
}

func (t *TLS) load() (*tls.Config, error) {
	return server.GenTLSConfig(&server.TLSConfigOpts{CertFile: t.CertFile, KeyFile: t.KeyFile, CaFile: t.CAFile, Verify: t.Verify})
}

func (p *Permissions) server() *server.Permissions {
	if p == nil {
		return nil
	}
	sp := &server.Permissions{Publish: p.Publish.server(), Subscribe: p.Subscribe.server()}
	if r := p.AllowResponses; r != nil {
		sp.Response = &server.ResponsePermission{MaxMsgs: r.Max, Expires: r.Expires}
		if r.Max == 0 {
			sp.Response.MaxMsgs = server.DEFAULT_ALLOW_RESPONSE_MAX_MSGS
		}
		if r.Expires == 0 {
			sp.Response.Expires = server.DEFAULT_ALLOW_RESPONSE_EXPIRATION
		}
		// As in a configuration file: with allow_responses, a missing list of
		// what may be published means nothing, not everything.
		if sp.Publish == nil {
			sp.Publish = &server.SubjectPermission{}
		}
		if sp.Publish.Allow == nil {
			sp.Publish.Allow = []string{}
		}
	}
	return sp
}

func (s Subjects) server() *server.SubjectPermission {
	if s.Allow == nil && s.Deny == nil {
		return nil
	}
	return &server.SubjectPermission{Allow: s.Allow, Deny: s.Deny}
}

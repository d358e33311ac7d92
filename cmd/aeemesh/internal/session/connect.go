package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// connectFlags are the flags of every command that connects to NATS, with the
// names that the nats CLI uses.
type connectFlags struct {
	Url, context                       string
	creds, nkey, user, password, token string
	cert, key, ca                      string
	tlsFirst                           bool
	InboxPrefix, Prefix, Domain        string
	Timeout                            time.Duration
	patient                            bool // without --timeout, wait for the server without limit
}

// defaultTimeout is the timeout of the connection and of each request of a
// command.
const defaultTimeout = 5 * time.Second

// AddConnectFlags adds the flags of the connection.
func (a *App) AddConnectFlags(flags *pflag.FlagSet) {
	c := &a.Conn
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = false
	own.StringVarP(&c.Url, "nats", "s", "", "server `URLs`, comma-separated (default the context's, else "+nats.DefaultURL+")")
	own.StringVar(&c.context, "context", "", "NATS `context` to use (default the selected one, where no URL is given)")
	own.StringVar(&c.creds, "creds", "", "credentials `file`")
	own.StringVar(&c.nkey, "nkey", "", "`file` with an nkey seed")
	own.StringVar(&c.user, "user", "", "user `name`")
	own.StringVar(&c.password, "password", "", "its password; better in the environment than on the command line")
	own.StringVar(&c.token, "token", "", "token; better in the environment than on the command line")
	own.StringVar(&c.cert, "tls-cert", "", "client certificate `file`")
	own.StringVar(&c.key, "tls-key", "", "its private key `file`")
	own.StringVar(&c.ca, "tls-ca", "", "`file` of certificates to trust")
	own.BoolVar(&c.tlsFirst, "tls-first", false, "TLS handshake before the server's INFO")
	own.StringVar(&c.InboxPrefix, "inbox-prefix", "", "`prefix` of reply subjects (default _INBOX and who speaks, as in _INBOX.agent=2Eecho)")
	own.StringVar(&c.Domain, "js-domain", "", "JetStream `domain`")
	own.StringVar(&c.Prefix, "prefix", "", "the mesh's subject `prefix`")
	own.DurationVar(&c.Timeout, "timeout", 0, "how long to wait for the server, and for an answer (default 5s, for a task 5m)")
	for flag, variable := range map[string]string{
		"nats": "NATS_URL", "context": "NATS_CONTEXT", "creds": "NATS_CREDS", "nkey": "NATS_NKEY",
		"user": "NATS_USER", "password": "NATS_PASSWORD", "token": "NATS_TOKEN",
		"tls-cert": "NATS_CERT", "tls-key": "NATS_KEY", "tls-ca": "NATS_CA", "prefix": "AEEMESH_PREFIX",
	} {
		BindEnv(own, flag, variable)
	}
	own.VisitAll(func(f *pflag.Flag) { InGroup(own, GroupConnect, f.Name) })
	flags.AddFlagSet(own)
}

// Wait is the timeout of one request.
func (c *connectFlags) Wait() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return defaultTimeout
}

// CheckConnection returns all that is wrong with the values of the connection's flags.
func (a *App) CheckConnection() (bad []error) {
	if a.Conn.Timeout < 0 {
		bad = append(bad, fmt.Errorf("--timeout %v: it cannot be negative", a.Conn.Timeout))
	}
	if a.Conn.Url != "" {
		if err := natsconn.CheckURLs(a.Conn.Url); err != nil {
			bad = append(bad, fmt.Errorf("--nats: %w", err))
		}
	}
	if _, err := subject.New(a.Conn.Prefix); err != nil {
		bad = append(bad, fmt.Errorf("--prefix: %w", err))
	}
	for flag, value := range map[string]string{"js-domain": a.Conn.Domain, "inbox-prefix": a.Conn.InboxPrefix} {
		if strings.ContainsAny(value, " \t\r\n*>") {
			bad = append(bad, fmt.Errorf("--%s %q: white space and wildcards cannot be in it", flag, value))
		}
	}
	return bad
}

// connection combines flags, environment and NATS context.
func (a *App) connection(cmd *cobra.Command) (natsconn.Config, error) {
	c := &a.Conn
	if bad := a.CheckConnection(); len(bad) > 0 {
		return natsconn.Config{}, &outcome.UsageError{Err: errors.Join(bad...), Cmd: cmd}
	}
	out := natsconn.Config{
		URL: c.Url, Cert: c.cert, Key: c.key, CA: c.ca, TLSFirst: c.tlsFirst, InboxPrefix: c.InboxPrefix,
		Wait: c.Wait(), Logger: nil,
	}
	if c.patient && c.Timeout == 0 {
		out.Wait = -1
	}
	a.Credentials(cmd, &out)
	if c.context != "" || c.Url == "" {
		if err := a.applyContext(&out); err != nil {
			return natsconn.Config{}, err
		}
	}
	return out, nil
}

// Credentials takes the kinds of credentials that the command line gives, and
// where it gives none those of the environment, and else of the configuration file:
// a flag is not spoiled by a variable of another kind.
func (a *App) Credentials(cmd *cobra.Command, out *natsconn.Config) {
	take := func(level func(*pflag.Flag) bool) bool {
		found := false
		for name, set := range map[string]func(string){
			"creds": func(v string) { out.Creds = v }, "nkey": func(v string) { out.NKey = v }, "token": func(v string) { out.Token = v },
			"user": func(v string) { out.User = v },
		} {
			if f := cmd.Flags().Lookup(name); f != nil && level(f) && f.Value.String() != "" {
				set(f.Value.String())
				found = true
			}
		}
		return found
	}
	if !take(func(f *pflag.Flag) bool { return f.Changed }) && !take(func(f *pflag.Flag) bool { return a.ByEnv[f.Name] }) {
		take(func(f *pflag.Flag) bool { return a.ByFile[f.Name] != "" })
	}
	if out.User != "" || out.Creds == "" && out.NKey == "" && out.Token == "" {
		out.Password = a.Conn.password
	}
}

// hasCredentials reports whether any kind of credentials is set.
func hasCredentials(c natsconn.Config) bool {
	return c.User != "" || c.Password != "" || c.Token != "" || c.Creds != "" || c.NKey != ""
}

// Connect connects, and reports changes of the connection to status.
func (a *App) Connect(ctx context.Context, cmd *cobra.Command, status func(natsconn.Status), opts ...nats.Option) (*nats.Conn, error) {
	c, err := a.connection(cmd)
	if err != nil {
		return nil, err
	}
	c.Name = cmd.CommandPath()
	if c.InboxPrefix == "" {
		c.InboxPrefix = perms.InboxPrefix(cmp.Or(a.speaker, a.DefaultFrom()))
	}
	c.OnStatus = status
	if c.SigningKeys, err = a.signingKeys(cmd); err != nil {
		return nil, err
	}
	c.Options = append(c.Options, opts...)
	a.Term.Progress("connecting to %s", RedactedURL(c.URL))
	conn, err := natsconn.Connect(ctx, c)
	if err != nil {
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
			return nil, outcome.Stopped(context.Cause(ctx), "interrupted while connecting to %s", RedactedURL(c.URL))
		}
		if errors.Is(err, nats.ErrNoServers) { // the hint says the rest
			return nil, fmt.Errorf("connect to NATS at %s: %w", RedactedURL(c.URL), nats.ErrNoServers)
		}
		return nil, err
	}
	return conn, nil
}

// ConnectAs is [App.Connect] with the reply subjects of an entity, unless the command line or the
// NATS context names others.
func (a *App) ConnectAs(ctx context.Context, cmd *cobra.Command, entity string, status func(natsconn.Status)) (*nats.Conn, error) {
	speaker := a.speaker
	defer func() { a.speaker = speaker }()
	a.speaker = entity
	return a.Connect(ctx, cmd, status)
}

// JetStream returns the connection's JetStream, in the requested domain.
func (a *App) JetStream(conn *nats.Conn) (natsjs.JetStream, error) {
	return jetstream.New(conn, a.Conn.Domain)
}

// Streams returns the connection's JetStream and the mesh's subjects: what the stores of
// package jetstream are opened with.
func (a *App) Streams(conn *nats.Conn) (natsjs.JetStream, subject.Map, error) {
	m, err := a.Subjects()
	if err != nil {
		return nil, m, err
	}
	js, err := a.JetStream(conn)
	return js, m, err
}

// Subjects returns the mesh's subjects; connection has validated the prefix.
func (a *App) Subjects() (subject.Map, error) {
	m, err := subject.New(a.Conn.Prefix)
	if err != nil {
		return m, outcome.Usagef(nil, "--prefix: %w", err)
	}
	return m, nil
}
